"""Commands that say how to go on when they are ended: by Ctrl-C, by a service manager, by a terminal that closes."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Within: SIGTERM and SIGHUP raise KeyboardInterrupt where SIGINT does. A SIGHUP that is ignored stays so."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    taken = [number for number, action in before.items() if action == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    # While an event loop runs, this one cancels its main task.
    act = signal.getsignal(signal.SIGINT)
    if callable(act):
        act(signal.SIGINT, frame)
    else:  # ignored, as for a job in the background
        raise KeyboardInterrupt
