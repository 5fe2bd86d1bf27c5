"""Message trace before it is written: a bounded queue of notes that producers and consumers share.

What sends or handles messages adds a note and a function that makes the trace lines later, for many notes at once: on
the way of a message nothing is encoded and nothing waits. A full queue drops and counts new notes: a trace never delays
a message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import count, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rocketapp.clock import Clock
from rocketapp.config.client import ClientConfig

if TYPE_CHECKING:
    from rocketapp.wire.trace import Line

MOST = 32_768
"""Notes that wait to be written. A handled message makes two, a sent one makes one (Java: 2048)."""

Noted = tuple[Callable[[Iterable[Any]], Iterable["Line"]], *tuple[Any, ...]]
"""One event, a send, the begin or the end of a call: what writes the lines of such notes, and what that needs."""


class Traces:
    """The message trace of one client."""

    def __init__(self, topic: str, clock: Clock, *, most: int = MOST) -> None:
        """`topic`: where traces are written; its own messages are not traced."""
        self.topic: str = topic
        self.now: Callable[[], float] = clock.now
        """Seconds since 1970."""
        self.dropped: int = 0
        """Notes that found the pile full."""
        self._most = most
        self._notes: deque[Noted] = deque()
        self._drops = count(1)

    def __repr__(self) -> str:
        return f"<Traces to {self.topic}: {self.waiting} wait, {self.dropped} dropped>"

    @property
    def waiting(self) -> int:
        """How many notes wait to be written."""
        return len(self._notes)

    def add(self, note: Noted) -> None:
        """Add a note, from any thread, without a lock."""
        if len(self._notes) < self._most:
            self._notes.append(note)
        else:
            self.dropped = next(self._drops)

    def take(self, most: int) -> list[Line] | None:
        """The lines of the oldest notes, at most `most` notes; None when there are none."""
        notes = self._notes
        taken = [notes.popleft() for _ in range(min(most, len(notes)))]
        lines: list[Line] = []
        for write, alike in groupby(taken, itemgetter(0)):
            lines += write(alike)
        return lines if taken else None


def trace_topic_of(config: ClientConfig) -> str | None:
    """The trace topic of a client; None when it writes no trace."""
    if not config.message_trace:
        return None
    from rocketapp.wire.trace import TRACE_TOPIC

    return config.trace_topic or TRACE_TOPIC
