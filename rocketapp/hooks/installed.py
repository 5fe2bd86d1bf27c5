"""The entry points of the installed distributions: read once per process, for plugins and for their commands.

Reading them opens a file of every distribution. A process that puts another folder on `sys.path` reads them anew; one
that is installed meanwhile is found by the next process.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


def entry_points(group: str) -> EntryPoints:
    """Those of one group."""
    return _read(group, tuple(sys.path))


@lru_cache(maxsize=2)  # plugins and their commands
def _read(group: str, path: tuple[str, ...]) -> EntryPoints:
    from importlib.metadata import entry_points as read  # it takes 10 ms to import, and `import rocketapp` does without

    return read(group=group)
