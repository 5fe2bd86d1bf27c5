"""Which queues are certainly still ours.

An assignment is trusted for a minute after a list of members confirmed it: brokers forget a silent member
after two. When that time is over, when a broker was lost (it forgets us at once), or when the process stood
still, it is in doubt.
"""

from __future__ import annotations

from math import inf

from rocketapp.model.message_queue import MessageQueue

CONFIRMED_FOR = 60.0
"""Seconds that an assignment is trusted after a list of members confirmed it."""
STOOD_STILL = 5.0
"""Seconds between two looks at the clock after which the process must have stood still."""


class Trust:
    """What one member knows about its own queues."""

    def __init__(self, now: float) -> None:
        self._confirmed: dict[str, float] = {}
        self._looked_at = now

    def beat(self, now: float) -> bool:
        """The clock was looked at; whether the process stood still since the last look."""
        stood_still = now >= self._looked_at + STOOD_STILL
        self._looked_at = now
        if stood_still:
            self.doubt_all()
        return stood_still

    def confirm(self, topic: str, now: float) -> None:
        """A list of members that was asked for at `now` decided on this topic."""
        self._confirmed[topic] = now

    def doubt_all(self) -> None:
        """Another member may have any of our queues: trust nothing before the next list of members."""
        self._confirmed.clear()

    def is_trusted(self, queue: MessageQueue, now: float) -> bool:
        """Whether this queue is certainly still ours."""
        return self.is_confirmed(queue.topic, now)

    def is_confirmed(self, topic: str, now: float) -> bool:
        """Whether what the last list of members said of this topic still holds."""
        confirmed = self._confirmed.get(topic, -inf)
        return now < confirmed + CONFIRMED_FOR and now < self._looked_at + STOOD_STILL
