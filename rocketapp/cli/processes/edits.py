"""`rocketapp run --reload`: sources and settings are watched, and at an edit the workers drain and start again.

Source files and the settings file count. Bytecode, logs and the embedded broker's own files do not, so that a run
cannot set itself off.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Collection, Sequence
from importlib.util import find_spec
from pathlib import Path

from rocketapp.app.settings.sources import DEFAULT_FILE
from rocketapp.cli.failure import CommandError, shown_path
from rocketapp.cli.processes.child import Child, exit_text
from rocketapp.cli.processes.stop import SLACK

SOURCES = frozenset({".py", ".toml"})
"""Endings of the files whose edits count; a settings file counts whatever its name is."""
LEFT_OUT = frozenset({"__pycache__", "node_modules", "venv"})
"""Folders in which users write no code. A name that begins with a dot is left out too: an editor's own file, say."""
SHOWN = 3
"""Files that the log names; the rest are counted."""

_log = logging.getLogger("rocketapp.run")


class Watched:
    """Which files an app is made of."""

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
        """Folders to watch: an editor replaces a file, so that its folder has to be watched in its place."""
        known = any(self._settings.is_relative_to(folder) for folder in self._folders)
        return self._folders if known else [*self._folders, self._settings.parent]

    def has(self, path: str) -> bool:
        """Whether an edit of this file counts."""
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


def _is_left_out(name: str) -> bool:
    return name.startswith(".") or name in LEFT_OUT


class Edits:
    """Lets workers drain at an edit, and tells their keepers when they are to start again."""

    def __init__(self, watched: Watched, drain_timeout: float) -> None:
        self._watched = watched
        self.drain_timeout: float = drain_timeout
        self._seen = asyncio.Event()
        self.count: int = 0
        """Edits so far."""

    async def follow(self, children: Callable[[], Collection[Child]]) -> None:
        """Watch until cancelled. At an edit these children drain; one that takes longer than its limit is killed."""
        from watchfiles import awatch

        chatty = logging.getLogger("watchfiles.main")
        if chatty.level == logging.NOTSET:  # it counts at INFO what the line below names
            chatty.setLevel(logging.WARNING)

        def counts(_change: object, path: str) -> bool:
            return self._watched.has(path)

        # A second SIGTERM would cut the drain, and that is what the end of the run sends. SIGHUP may be ignored.
        drain = signal.SIGTERM if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else signal.SIGHUP
        # When the loop comes to this, the first step of what follows has begun to watch.
        folders = ", ".join(shown_path(str(root)) for root in self._watched.roots)
        asyncio.get_running_loop().call_soon(_log.info, "watching %s for edits", folders)
        async for changes in awatch(*self._watched.roots, watch_filter=counts):
            _log.info("%s: starting again", _shown(sorted({path for _change, path in changes})))
            self.count += 1
            self._seen.set()
            self._seen = asyncio.Event()
            ending = [child for child in children() if child.is_alive]
            for child in ending:
                child.signal(drain)
            await asyncio.gather(*(child.await_or_kill(self.drain_timeout + SLACK) for child in ending))

    async def next(self) -> None:
        """Wait for an edit."""
        await self._seen.wait()

    async def again(self, child: Child, since: int, *, was_started: bool) -> bool:
        """Whether a child that has ended starts again because of an edit after the first `since` ones.

        One whose app could not be started waits for an edit; one that died later is left to its keeper.
        """
        if self.count == since and not was_started:
            _log.info(
                "%s could not be started (%s): waiting for the next edit", child.name, exit_text(await child.ended())
            )
            await self._seen.wait()
        return self.count > since


def edits_of(reload: bool, folders: Sequence[str], settings: str | None, drain_timeout: float) -> Edits | None:
    """What the command line asks for. Raises CommandError for a folder that is not there, and without watchfiles."""
    if not reload:
        return None
    if find_spec("watchfiles") is None:
        from rocketapp.cli.projects.extras import missing

        raise missing("--reload", "watchfiles", "reload")
    return Edits(Watched(folders, settings), drain_timeout)


def _shown(paths: Sequence[str]) -> str:
    """The files, and how many there are beyond those that are named."""
    named = ", ".join(shown_path(path) for path in paths[:SHOWN])
    rest = len(paths) - SHOWN
    return f"{named} and {rest} more" if rest > 0 else named
