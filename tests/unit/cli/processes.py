"""The command `rocketapp` as a real process, and what it says."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from tests.peers.forks import Fork

T = TypeVar("T")
LIMIT = 120.0
"""Seconds that anything here may take on a busy machine: only a test that fails waits for them."""
SURROUNDINGS = {"ROCKETAPP_BROKER__LISTEN": "127.0.0.1:0", "PYTHONUNBUFFERED": "1"}
_LAST_LINE = re.compile(r"handled=(\d+) retried=(\d+) dead_lettered=(\d+) unmatched=(\d+)")
_PAUSE = threading.Event()


def wait_until(look: Callable[[], T], what: str, *, within: float = LIMIT, every: float = 0.02) -> T:
    """The first true answer; an assertion with `what` when there is none in time."""
    deadline = time.monotonic() + within
    while not (answer := look()):
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        _PAUSE.wait(every)
    return answer


@contextlib.contextmanager
def inherited(number: signal.Signals, action: signal.Handlers | Callable[..., object]) -> Iterator[None]:
    """What is started meanwhile begins with this signal ignored, as `nohup` has it, or not ignored."""
    before = signal.signal(number, action)
    try:
        yield
    finally:
        signal.signal(number, before)


class Command:
    """One command line in one directory; its output goes to files, so that nothing ever blocks on us.

    It is a fork of a process that has imported what most commands import; a fresh one imports that itself.
    """

    def __init__(
        self, directory: Path, *arguments: str, environment: Mapping[str, str] | None = None, fresh: bool = False
    ) -> None:
        number = len(list(directory.glob("*.out")))
        self._out, self._err = directory / f"{number}.out", directory / f"{number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            # The usual port may be anybody's on this machine; and what is printed must be there at once.
            variables = {**os.environ, **SURROUNDINGS, **(environment or {})}
            self.process: subprocess.Popen[bytes] | Fork = (
                subprocess.Popen(
                    [sys.executable, "-m", "rocketapp", *arguments],
                    cwd=directory,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                )
                if fresh
                else Fork(arguments, directory=directory, environment=variables, out=out, err=err)
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def says(self, pattern: str, *, within: float = LIMIT) -> re.Match[str]:
        """Wait until stdout or stderr has it."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.out + self.err)
            assert found or self.process.poll() is None, f"ended without {pattern!r}:\n{self.out}\n{self.err}"
            return found

        found = wait_until(look, f"{pattern!r} in:\n{self.out}\n{self.err}", within=within)
        assert found is not None
        return found

    def signal(self, number: signal.Signals) -> None:
        """Nothing happens when it has ended."""
        self.process.send_signal(number)

    def ends(self, code: int, *, within: float = LIMIT) -> None:
        """Wait for its end with this exit code."""
        try:
            found = self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {within:g} s:\n{self.out}\n{self.err}") from None
        assert found == code, f"exit code {found}:\n{self.out}\n{self.err}"

    def stops(self, code: int = 0) -> None:
        self.signal(signal.SIGTERM)
        self.ends(code)

    @property
    def summary(self) -> tuple[int, ...]:
        """The four numbers of the last line on stdout."""
        last = self.out.splitlines()[-1]
        match = _LAST_LINE.fullmatch(last)
        assert match is not None, last
        return tuple(map(int, match.groups()))

    def discard(self) -> None:
        """For the end of a test: nothing of it is left, whatever happened."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
            self.process.kill()
            self.process.wait()


def children_of(pid: int) -> list[int]:
    """Process ids, in the order of starting."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                if int(stat.rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return sorted(found)


def is_running(pid: int) -> bool:
    """A zombie does not count as running."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
