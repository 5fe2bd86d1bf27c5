"""Notifies systemd: ready, draining, watchdog.

A unit with `Type=notify` gives the process `NOTIFY_SOCKET`, with `WatchdogSec=` also `WATCHDOG_USEC`. Without them
nothing is sent; a notification that cannot be delivered is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

LOOKS: Final = 3
"""Signs of life within the time of the watchdog: one more than systemd advises, for a loop that is late once."""
START_UP: Final = 60.0
"""Seconds beyond `app.connect_timeout` that functions which run at the start get before systemd gives up."""


def watchdog_of(environ: Mapping[str, str]) -> float | None:
    """The watchdog time of systemd in seconds; None: no watchdog. `WATCHDOG_PID` may name another process than ours."""
    microseconds, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    is_ours = "NOTIFY_SOCKET" in environ and pid in ("", str(os.getpid()))
    is_on = is_ours and microseconds.isascii() and microseconds.isdigit() and int(microseconds) > 0
    return int(microseconds) / 1e6 if is_on else None


def tell(*lines: str) -> None:
    """Send these lines as one datagram to the socket that systemd names; never waits."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith(("/", "@")):
        # An abstract socket has a zero byte where systemd writes "@".
        place = f"\0{address[1:]}" if address.startswith("@") else address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.setblocking(False)
            end.sendto("\n".join(lines).encode(), place)


def starting(connect_timeout: float) -> None:
    """Extend systemd's start timeout (90 s) to the time that we wait for the cluster."""
    tell("STATUS=starting", _extended(connect_timeout + START_UP))


def ready(workers: int = 1) -> None:
    """Every process of the app consumes."""
    tell("READY=1", f"STATUS=consuming in {workers} process{'' if workers == 1 else 'es'}")


def draining(reason: str, limit: float) -> None:
    """The drain has begun; `limit`: seconds after which the process ends itself."""
    tell("STOPPING=1", f"STATUS=draining: {reason}", _extended(limit))


async def keep_alive(look: Callable[[], None] = lambda: None) -> None:
    """Notify the watchdog for as long as the event loop runs; calls `look` before each. Runs until cancelled."""
    watchdog = watchdog_of(os.environ)
    while watchdog is not None:
        look()
        tell("WATCHDOG=1")
        await asyncio.sleep(watchdog / LOOKS)


def _extended(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}"


class SilentWorkers:
    """Finds workers that did not report in several successive looks.

    Looks are counted, not seconds: after the whole machine was frozen, no worker is blamed for it.
    """

    def __init__(self, looks: int = LOOKS) -> None:
        self._looks = looks
        self._seen: dict[int, tuple[float, int]] = {}

    def look(self, heard_at: Mapping[int, float]) -> list[int]:
        """The workers that are silent now. `heard_at`: when each worker last reported."""
        before = self._seen
        self._seen = {
            worker: (at, before[worker][1] + 1 if before.get(worker, (None, 0))[0] == at else 0)
            for worker, at in heard_at.items()
        }
        return [worker for worker, (_, looks) in self._seen.items() if looks >= self._looks]
