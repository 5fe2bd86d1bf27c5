"""A child process, as its parent sees it: start, reports, messages, end.

A child has a session of its own, so that Ctrl-C reaches only the parent. A `Pipe` connects the two: the parent sends
the spec and requests, the child sends reports, and each notices by the pipe's end that the other is gone. The child's
stdin is empty; stdout and stderr are the parent's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rocketapp.cli.processes.pipe import Pipe
from rocketapp.cli.processes.reports import Report

# sys.path is the parent's own, whichever way the parent found its modules.
_BOOT = (
    "import json,sys;pipe=open(int(sys.argv[2]),'rb',buffering=0,closefd=False);line=pipe.readline() or sys.exit();"
    "spec=json.loads(line);sys.path[:]=spec['path'];from rocketapp.cli.processes.child_main import main;main(spec)"
)


class Child:
    """A worker or broker process. `on_report` receives its reports; `ended` returns its exit code."""

    def __init__(
        self,
        name: str,
        spec: Mapping[str, Any],
        on_report: Callable[[Report], None],
        *,
        descriptors: Sequence[int] = (),
    ) -> None:
        """Start it, inside a running loop. Raises OSError when the machine has no room for it.

        `descriptors` are open in the process, under the same numbers.
        """
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        number = theirs.fileno()
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, name, str(number)],
                stdin=subprocess.DEVNULL,
                pass_fds=(number, *descriptors),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        pipe, gone = Pipe(ours), loop.create_future()
        self.name: str = name
        self.pid: int = process.pid
        self._process, self._pipe = process, pipe
        self._gone: asyncio.Future[int] = gone
        self.tell({**spec, "name": name, "path": sys.path, "pipe": number, "parent": os.getpid()})

        def hear(line: bytes) -> None:
            on_report(Report.decode(line))

        def listen() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
                pipe.listen(lambda line: loop.call_soon_threadsafe(hear, line), lambda: process.poll() is None)
                loop.call_soon_threadsafe(gone.set_result, process.wait())
            pipe.close()

        threading.Thread(target=listen, name=f"rocketapp-{name}", daemon=True).start()

    def __repr__(self) -> str:
        return f"<Child {self.name}: {self.pid}>"

    def tell(self, fields: Mapping[str, Any]) -> None:
        """Send an object as JSON. From any thread; does not wait. Use `ended` to notice that the child is gone."""
        self._pipe.tell(json.dumps(fields).encode())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal unless it has ended."""
        if self.is_alive:
            self._process.send_signal(number)

    @property
    def is_alive(self) -> bool:
        return not self._gone.done()

    async def ended(self) -> int:
        """Wait for its end and its last report. Returns the exit code; negative: the signal that killed it."""
        return await asyncio.shield(self._gone)

    async def stop(self, *, timeout: float) -> int:
        """Send SIGTERM, then SIGKILL when it has not ended after `timeout` seconds."""
        self.signal(signal.SIGTERM)
        return await self.await_or_kill(timeout)

    async def await_or_kill(self, timeout: float) -> int:
        """Wait for its end, and kill it after `timeout` seconds. Returns the exit code."""
        await asyncio.wait({self._gone}, timeout=timeout)
        if not self._gone.done():
            self.signal(signal.SIGKILL)
        return await self.ended()


def exit_text(code: int) -> str:
    """`exit code 1` or `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
