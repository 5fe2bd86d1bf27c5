"""`http-NAME.json`: where a running app of a folder is watched. Beside the messages of its embedded broker.

After a kill the file stays: a reader finds that nothing answers at its address.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from urllib.parse import quote


def file_of(directory: Path, app: str) -> Path:
    """The app's file in the embedded broker's directory."""
    return directory / f"http-{quote(app, safe='')}.json"


def write_address(directory: Path, app: str, address: str) -> None:
    """Say that this process serves the app at this address. Does nothing when the directory is missing."""
    file = file_of(directory, app)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        unfinished.write_text(json.dumps({"address": address, "pid": os.getpid()}) + "\n")
        unfinished.replace(file)


def remove_address(directory: Path, app: str) -> None:
    """Take the file away if it is ours."""
    file = file_of(directory, app)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if json.loads(file.read_text())["pid"] == os.getpid():
            file.unlink()


def read_address(directory: Path, app: str) -> str:
    """What the file says; empty when it is missing or not readable as one."""
    try:
        return str(json.loads(file_of(directory, app).read_text())["address"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
