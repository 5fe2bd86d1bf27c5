"""`rocketapp run --reload`: watches sources and settings; at an edit the workers drain and start again.

Source files and the settings file are watched, not bytecode, logs or files of the embedded broker, so that an app
cannot restart itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from rocketapp.app.sources import DEFAULT_FILE
from rocketapp.cli.failure import CommandError, shown_path

SOURCES = frozenset({".py", ".toml"})
"""Endings of the files whose edits count; a settings file counts whatever its name is."""
LEFT_OUT = frozenset({"__pycache__", "node_modules", "venv"})
"""Folders in which users write no code. A name that begins with a dot is left out too: an editor's own file, say."""
SHOWN = 3
"""Files that the log names; the rest are counted."""

_log = logging.getLogger("rocketapp.run")


class Watched:
    """The files whose edits restart an app."""

    def __init__(self, folders: Sequence[str], settings: str | None) -> None:
        """`folders`: without any, the current one. Raises CommandError for one that is not there."""
        for folder in folders:
            if not folder:
                raise CommandError("--reload-dir is empty: leave it out, or give it a value")
            if not Path(folder).is_dir():
                raise CommandError(f"--reload-dir {folder}: no such folder")
        self._folders = [Path(folder).resolve() for folder in folders or (".",)]
        self._settings = Path(settings or DEFAULT_FILE).resolve()

    def __repr__(self) -> str:
        return f"<Watched {', '.join(map(str, self.roots))}>"

    @property
    def roots(self) -> list[Path]:
        """The folders to watch: editors replace files, so folders are watched, not files."""
        known = any(self._settings.is_relative_to(folder) for folder in self._folders)
        return self._folders if known else [*self._folders, self._settings.parent]

    def has(self, path: str) -> bool:
        """Whether an edit of this file restarts the app."""
        file = Path(path)
        if file == self._settings:
            return True
        if file.suffix not in SOURCES:
            return False
        return any(
            not any(_is_left_out(part) for part in file.relative_to(folder).parts)
            for folder in self._folders
            if file.is_relative_to(folder)
        )

    async def edits(self) -> AsyncIterator[str]:
        """Watch until cancelled: at each edit the names of the files, for the log."""
        from watchfiles import awatch

        chatty = logging.getLogger("watchfiles.main")
        if chatty.level == logging.NOTSET:  # it counts at INFO what our own line names
            chatty.setLevel(logging.WARNING)
        # When the loop comes to this, the first step of what follows has begun to watch.
        folders = ", ".join(shown_path(str(root)) for root in self.roots)
        asyncio.get_running_loop().call_soon(_log.info, "watching %s for edits", folders)
        async for changes in awatch(*self.roots, watch_filter=lambda _change, path: self.has(path)):
            yield _shown(sorted({path for _change, path in changes}))


def _is_left_out(name: str) -> bool:
    return name.startswith(".") or name in LEFT_OUT


def watched_by(reload: bool, folders: Sequence[str], settings: str | None) -> Watched | None:
    """The files that the command line asks to watch.

    Raises CommandError for a missing folder, or without watchfiles.
    """
    if not reload:
        return None
    from rocketapp.cli.source import require

    require("--reload", "watchfiles", "reload")
    return Watched(folders, settings)


def _shown(paths: Sequence[str]) -> str:
    """The files, and how many there are beyond those that are named."""
    named = ", ".join(shown_path(path) for path in paths[:SHOWN])
    rest = len(paths) - SHOWN
    return f"{named} and {rest} more" if rest > 0 else named
