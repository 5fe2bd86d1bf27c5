"""One child process, seen from its parent: started, heard, told, ended.

A child lives in a session of its own, so that Ctrl-C reaches only the parent. Its
stdin is its lifeline: the parent writes what the child must know and then keeps the
pipe open; when the parent is gone, even by kill -9, the child reads the end of it.
It answers with reports on a second pipe, one a line. Its stdout and stderr are the parent's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rocketapp.cli.processes.reports import Report

REAP_INTERVAL = 0.1
"""Seconds between looks whether the process has ended. A grandchild may hold the report
pipe open, so its end alone would not tell."""

# sys.path is the parent's own, whichever way the parent found its modules.
_BOOT = (
    "import json,sys;line=sys.stdin.buffer.readline() or sys.exit();spec=json.loads(line);sys.path[:]=spec['path'];"
    "from rocketapp.cli.processes.child_main import main;main(spec)"
)


class Child:
    """A worker or a broker. `on_report` hears its lines; `ended` tells its exit code."""

    def __init__(
        self,
        name: str,
        spec: Mapping[str, Any],
        on_report: Callable[[Report], None],
        *,
        descriptors: Sequence[int] = (),
    ) -> None:
        """`descriptors` are open in the process, under the same numbers."""
        self.name = name
        self._spec = dict(spec)
        self._descriptors = tuple(descriptors)
        self._on_report = on_report
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = self._unsaid = b""
        self._reports = -1
        self._gone: asyncio.Future[int] | None = None
        self._reaper: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Child {self.name}: {self.pid or 'not started'}>"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Spawn it; to be called inside a running loop, once. Raises OSError when the machine has no room for it."""
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        try:
            spec = {**self._spec, "name": self.name, "path": sys.path, "reports": writing, "parent": os.getpid()}
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, self.name],
                stdin=subprocess.PIPE,
                pass_fds=(writing, *self._descriptors),
                start_new_session=True,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._reports = reading
        self._gone = loop.create_future()
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        os.set_blocking(self._reports, False)
        loop.add_reader(self._reports, self._read)
        self.tell(spec)
        self._reaper = loop.call_later(REAP_INTERVAL, self._reap)

    def tell(self, fields: Mapping[str, Any]) -> None:
        """Write one JSON line to its stdin. A child that is gone is found by `ended`.

        Never waits: what a frozen child does not read is written when it goes on.
        """
        assert self._gone is not None, "start comes first"
        if self.is_alive:
            is_waiting = bool(self._unsaid)
            self._unsaid += json.dumps(fields).encode() + b"\n"
            if not is_waiting:
                self._say()

    def _say(self) -> None:
        assert self._process is not None and self._process.stdin is not None
        loop, descriptor = asyncio.get_running_loop(), self._process.stdin.fileno()
        try:
            while self._unsaid:
                self._unsaid = self._unsaid[os.write(descriptor, self._unsaid) :]
        except BlockingIOError:
            loop.add_writer(descriptor, self._say)
            return
        except BrokenPipeError:
            self._unsaid = b""
        loop.remove_writer(descriptor)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal unless it has ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    @property
    def is_alive(self) -> bool:
        return self._gone is not None and not self._gone.done()

    async def ended(self) -> int:
        """Its exit code, as soon as it has one; negative is the signal that killed it."""
        assert self._gone is not None, "start comes first"
        return await asyncio.shield(self._gone)

    async def stop(self, *, timeout: float) -> int:
        """SIGTERM, and SIGKILL when it is still there after `timeout` seconds."""
        self.signal(signal.SIGTERM)
        return await self.await_or_kill(timeout)

    async def await_or_kill(self, timeout: float) -> int:
        """Its exit code; killed when it takes longer."""
        assert self._gone is not None, "start comes first"
        await asyncio.wait({self._gone}, timeout=timeout)
        if not self._gone.done():
            self.signal(signal.SIGKILL)
        return await self.ended()

    def _read(self) -> None:
        if self._hear():
            asyncio.get_running_loop().remove_reader(self._reports)
            self._reap()

    def _hear(self) -> bool:
        """Hear what is in the pipe; True at its end."""
        try:
            while data := os.read(self._reports, 65536):
                *lines, self._heard = (self._heard + data).split(b"\n")
                for line in lines:
                    self._on_report(Report.decode(line))
        except BlockingIOError:
            return False
        return True

    def _reap(self) -> None:
        """When the process has ended, read its last lines and resolve `ended`."""
        assert self._process is not None and self._gone is not None
        if self._gone.done():
            return
        code = self._process.poll()
        loop = asyncio.get_running_loop()
        if self._reaper is not None:
            self._reaper.cancel()
        if code is None:
            self._reaper = loop.call_later(REAP_INTERVAL, self._reap)
            return
        self._hear()
        loop.remove_reader(self._reports)
        os.close(self._reports)
        if self._process.stdin is not None:
            loop.remove_writer(self._process.stdin.fileno())
            self._process.stdin.close()
        self._gone.set_result(code)


class Presence:
    """Tells an embedded broker when the last worker has ended, also when their parent was killed.

    A pipe: each worker holds its writing end, and writes nothing. The broker reads its end when the parent and every
    worker are gone, however they ended. Until then workers that drain commit.
    """

    def __init__(self) -> None:
        self.reading: int
        self.writing: int
        self.reading, self.writing = os.pipe()

    def close(self) -> None:
        """When all children have ended."""
        os.close(self.reading)
        os.close(self.writing)


def exit_text(code: int) -> str:
    """`exit code 1` or `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
