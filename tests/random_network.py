"""A network in memory whose seed chooses where bytes are split and joined, and how long they take."""

from __future__ import annotations

from collections import deque
from random import Random

from rocketapp.transport.memory import MemoryNetwork


class RandomNetwork(MemoryNetwork):
    """As a network between machines: what is written at once need not arrive at once."""

    def __init__(self, random: Random, *, latency: float = 0.0) -> None:
        """`latency`: most seconds until bytes arrive."""
        super().__init__()
        self._random, self._latency = random, latency

    def portion(self, inbox: deque[bytes]) -> bytes:
        joined = b"".join(inbox.popleft() for _ in range(self._random.randint(1, len(inbox))))
        if self._random.random() < 0.5:
            at = self._random.randint(1, len(joined))
            if joined[at:]:
                inbox.appendleft(joined[at:])
            joined = joined[:at]
        return joined

    def delay(self) -> float:
        return self.slowness + (self._random.uniform(0.0, self._latency) if self._latency else 0.0)
