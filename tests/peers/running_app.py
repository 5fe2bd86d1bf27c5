"""An app under test, run by the real `rocketapp run` as a process of its own: see `forks`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.peers import toolchain
from tests.peers.forks import Fork
from tests.peers.waiting import BUSY, wait_until

PRELUDE = """\
import asyncio
import os
import threading
import time
from datetime import datetime, timedelta, timezone

from recording import Moves, brief, mark, note
from rocketapp import DeadLetter, Message, Retry, RocketApp, Router, Skip

"""
_COUNTS = re.compile(r"handled=(\d+) retried=(\d+) dead_lettered=(\d+) unmatched=(\d+)(?: dropped=\d+)?")
_NEVER = ("never retrieved", "was destroyed but it is pending", "never awaited", "Fatal error")


class Counts(NamedTuple):
    """The last line that `rocketapp run` prints."""

    handled: int
    retried: int
    dead_lettered: int
    unmatched: int


class RunningApp:
    """One `rocketapp run module:app`, the file its handlers write, and the ways to end it."""

    def __init__(
        self,
        directory: Path,
        source: str,
        name_server: str | None,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "app.py").write_text(PRELUDE + textwrap.dedent(source))
        shutil.copy(toolchain.HERE / "recording.py", directory / "recording.py")
        self._directory, self._log = directory, log or directory / "handlers.jsonl"
        self._log.touch()
        self._arguments = [*(("--name-server", name_server) if name_server else ()), *arguments]
        self._environment = {**os.environ, "HANDLER_LOG": str(self._log), **(environment or {})}
        self._events: list[dict[str, Any]] = []
        self._read_bytes = 0
        self._runs = 0
        self.started_at = 0.0
        self.process: Fork
        self.start()

    def start(self) -> None:
        """Start the process; after a kill, start it again."""
        self._runs += 1
        with self._file("stdout").open("wb") as stdout, self._file("stderr").open("wb") as stderr:
            self.started_at = time.monotonic()
            self.process = Fork(
                ["run", "app:app", *self._arguments],
                directory=self._directory,
                environment=self._environment,
                out=stdout,
                err=stderr,
                new_session=True,
            )

    def _file(self, stream: str) -> Path:
        return self._directory / f"{stream}.{self._runs}.txt"

    @property
    def stderr(self) -> str:
        return self._file("stderr").read_text(errors="replace")

    @property
    def last_line(self) -> str:
        """Of stdout."""
        return (self._file("stdout").read_text().splitlines() or [""])[-1]

    def complaints(self) -> list[str]:
        """What a log must never hold: the interpreter's and asyncio's complaints of things left behind."""
        return [word for word in _NEVER if word in self.stderr]

    def describe(self) -> str:
        """What a failed wait shows: is it alive, its last events, the end of its log."""
        tail = "\n".join(json.dumps(event)[:200] for event in self.events()[-5:])
        return f"exit={self.process.poll()} events={len(self._events)}\n{tail}\n{self.stderr[-3000:]}"

    def events(self, event: str | None = None, **facts: Any) -> list[dict[str, Any]]:
        """What the handlers wrote so far, in the order of writing; only those with these facts."""
        with self._log.open("rb") as file:
            file.seek(self._read_bytes)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        self._events += map(json.loads, whole.splitlines())
        if event is not None:
            facts["event"] = event
        wanted = facts.items()
        return [line for line in self._events if all(line.get(key) == value for key, value in wanted)]

    def texts(self, event: str = "done", **facts: Any) -> list[str]:
        """The bodies that the handlers noted, in order."""
        return [line["text"] for line in self.events(event, **facts)]

    def wait_for(self, condition: Callable[[], Any], *, within: float, what: str) -> Any:
        """Wait until a condition holds; fail at once when the process ended."""

        def check() -> Any:
            answer = condition()
            if not answer:
                assert self.process.poll() is None, f"the app ended while waiting for: {what}\n{self.describe()}"
            return answer

        return wait_until(check, within=within, what=lambda: f"{what}\n{self.describe()}")

    def wait_for_count(
        self, count: int, event: str = "done", *, within: float = 20.0, **facts: Any
    ) -> list[dict[str, Any]]:
        """Wait until the handlers wrote `count` of these events; returns them."""
        self.wait_for(
            lambda: len(self.events(event, **facts)) >= count,
            within=within,
            what=f"{count} events {event} {facts}, there are {len(self.events(event, **facts))}",
        )
        return self.events(event, **facts)

    def kill(self) -> None:
        """`kill -9`, and wait until it is gone."""
        self.process.kill()
        self.process.wait(60)

    def wait(self, *, within: float) -> Counts:
        """Wait for an end with exit code 0; returns the counts of its last line."""
        code = self.ended(within=within)
        assert code == 0, f"the app ended with {code}\n{self.describe()}"
        assert not self.complaints(), f"{self.complaints()}\n{self.describe()}"
        match = _COUNTS.fullmatch(self.last_line)
        assert match is not None, f"last line on stdout: {self.last_line!r}\n{self.describe()}"
        return Counts(*map(int, match.groups()))

    def ended(self, *, within: float) -> int:
        """Wait for an end; its exit code."""
        try:
            return self.process.wait(BUSY * within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the app did not end within {BUSY * within:g} s\n{self.describe()}") from None

    def stop(self, *, within: float = 20.0) -> Counts:
        """SIGTERM; wait for a clean drain; returns the counts of its last line."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait(within=within)

    def discard(self) -> None:
        """End it whatever its state: for the end of a test."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
