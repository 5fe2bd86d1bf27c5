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

LOOKS: Final = 3
"""Signs of life within the time of the watchdog: one more than systemd advises, for a loop that is late once."""
START_UP: Final = 60.0
"""Seconds beyond `app.connect_timeout` that functions which run at the start get before systemd gives up."""


def watchdog_of(environ: Mapping[str, str]) -> float | None:
    """Seconds without a sign of life after which systemd ends this process; None: it never does.

    `WATCHDOG_PID` may name another process, whose watchdog is not ours.
    """
    microseconds, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    is_ours = "NOTIFY_SOCKET" in environ and pid in ("", str(os.getpid()))
    is_on = is_ours and microseconds.isascii() and microseconds.isdigit() and int(microseconds) > 0
    return int(microseconds) / 1e6 if is_on else None


def tell(*lines: str) -> None:
    """Send these lines as one message to the socket that systemd names; never waits."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith(("/", "@")):
        # An abstract socket has a zero byte where systemd writes "@".
        place = f"\0{address[1:]}" if address.startswith("@") else address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.setblocking(False)
            end.sendto("\n".join(lines).encode(), place)


def starting(connect_timeout: float) -> None:
    """The start may take as long as the cluster is waited for: without this, systemd gives up after 90 s."""
    tell("STATUS=starting", _extended(connect_timeout + START_UP))


def ready(workers: int = 1) -> None:
    """Every process of the app consumes."""
    tell("READY=1", f"STATUS=consuming in {workers} process{'' if workers == 1 else 'es'}")


def draining(reason: str, limit: float) -> None:
    """The end has begun; `limit`: seconds after which the process ends itself."""
    tell("STOPPING=1", f"STATUS=draining: {reason}", _extended(limit))


async def keep_alive(look: Callable[[], None] = lambda: None) -> None:
    """Give signs of life for as long as the event loop runs; `look` is called before each. Ends when cancelled."""
    watchdog = watchdog_of(os.environ)
    while watchdog is not None:
        look()
        tell("WATCHDOG=1")
        await asyncio.sleep(watchdog / LOOKS)


def _extended(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}"


class SilentWorkers:
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
