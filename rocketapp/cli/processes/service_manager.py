"""What systemd is told about an app: that it consumes, that it drains, and that its event loops run.

A unit with `Type=notify` gives the process `NOTIFY_SOCKET`, and with `WatchdogSec=` also `WATCHDOG_USEC`. Elsewhere
nothing is sent, and nothing fails: a message that cannot be delivered is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
ALIVE: Final = "WATCHDOG=1"
LOOKS: Final = 3
"""Signs of life within the time of the watchdog: one more than systemd advises, for a loop that is late once."""
START_UP: Final = 60.0
"""Seconds beyond `app.connect_timeout` that functions which run at the start get before systemd gives up."""


class ServiceManager:
    """Datagrams of `NAME=value` lines to the socket that systemd names."""

    def __init__(self, address: str = "", watchdog: float | None = None) -> None:
        """`watchdog`: seconds without a sign of life after which systemd ends the process; None: it never does."""
        self.watchdog: float | None = watchdog if address else None
        self._socket: socket.socket | None = None
        # An abstract socket has a zero byte where systemd writes "@".
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        if address.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ServiceManager:
        """What the variables say: `WATCHDOG_PID` may name another process, whose watchdog is not ours."""
        microseconds, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
        is_ours = microseconds.isascii() and microseconds.isdigit() and pid in ("", str(os.getpid()))
        watchdog = int(microseconds) / 1e6 if is_ours and int(microseconds) else None
        return cls(environ.get("NOTIFY_SOCKET", ""), watchdog)

    def __repr__(self) -> str:
        return f"<ServiceManager {self._address!r} watchdog={self.watchdog}>"

    def close(self) -> None:
        """Close the socket: nothing more is told."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def tell(self, *lines: str) -> None:
        """Send these lines as one message; never waits."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto("\n".join(lines).encode(), self._address)

    def starting(self, connect_timeout: float) -> None:
        """The start may take as long as the cluster is waited for: without this, systemd gives up after 90 s."""
        self.tell("STATUS=starting", _extended(connect_timeout + START_UP))

    def ready(self, workers: int = 1) -> None:
        """Every process of the app consumes."""
        self.tell(READY, f"STATUS=consuming in {workers} process{'' if workers == 1 else 'es'}")

    def draining(self, reason: str, limit: float) -> None:
        """The end has begun; `limit`: seconds after which the process ends itself."""
        self.tell(STOPPING, f"STATUS=draining: {reason}", _extended(limit))

    async def keep_alive(self, look: Callable[[], None] = lambda: None) -> None:
        """Give signs of life for as long as the event loop runs; `look` is called before each. Ends when cancelled."""
        while self.watchdog is not None:
            look()
            self.tell(ALIVE)
            await asyncio.sleep(self.watchdog / LOOKS)


def _extended(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}"


class Silence:
    """Which workers told nothing new in several looks in a row.

    Looks are counted, and not seconds: after the whole machine was frozen, no worker is blamed for it.
    """

    def __init__(self, looks: int = LOOKS) -> None:
        self._looks = looks
        self._seen: dict[int, tuple[float, int]] = {}

    def look(self, heard_at: Mapping[int, float]) -> list[int]:
        """Those that are silent now; `heard_at`: worker -> when it last told something."""
        before = self._seen
        self._seen = {
            worker: (at, before[worker][1] + 1 if before.get(worker, (None, 0))[0] == at else 0)
            for worker, at in heard_at.items()
        }
        return [worker for worker, (_, looks) in self._seen.items() if looks >= self._looks]
