"""Pulls that found nothing and wait for a message or for their deadline.

A held pull is woken by the first message of its queue whose tag hash matches, and expires at the
time that it asked for. The store is read and the pull is held in one step of the event loop, and
messages arrive in other steps. So no message can arrive unnoticed between "nothing found" and "held".

Time is an argument. Every held pull is returned exactly once, to be run again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
Matches = Callable[[int], bool]
"""Whether a message with this tags code may match the subscription."""

_SLACK = 1024
"""Entries of ended holds that the heap may contain, beyond the number of live ones, before it is rebuilt."""


class HeldPull:
    """One pull that waits for a message of one queue."""

    __slots__ = ("deadline", "from_offset", "live", "matches", "owner", "payload", "queue")

    def __init__(
        self,
        queue: tuple[str, int],
        from_offset: int,
        *,
        deadline: float,
        owner: Hashable,
        matches: Matches | None,
        payload: object,
    ) -> None:
        self.queue: tuple[str, int] = queue
        self.from_offset: int = from_offset
        self.deadline: float = deadline
        self.owner: Hashable = owner
        self.matches: Matches | None = matches
        self.payload: object = payload
        self.live: bool = True

    def __lt__(self, other: HeldPull) -> bool:
        return self.deadline < other.deadline

    def __repr__(self) -> str:
        return f"<HeldPull {self.queue[0]}:{self.queue[1]} from {self.from_offset}>"


class HeldPulls:
    """All held pulls: by queue to wake them, by owner to forget them, by deadline to expire them."""

    def __init__(self) -> None:
        self._by_queue: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._by_owner: dict[Hashable, dict[HeldPull, None]] = {}
        self._by_deadline: list[HeldPull] = []
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def __contains__(self, queue: tuple[str, int]) -> bool:
        """Whether a pull is held at this queue."""
        return queue in self._by_queue

    def __repr__(self) -> str:
        return f"<HeldPulls {self._live} at {len(self._by_queue)} queues>"

    def held_by(self, owner: Hashable) -> int:
        """How many pulls of this owner are held."""
        return len(self._by_owner.get(owner, ()))

    def hold(self, held: HeldPull) -> None:
        """Keep a pull until it is woken, expires or is forgotten."""
        self._by_queue.setdefault(held.queue, {})[held] = None
        self._by_owner.setdefault(held.owner, {})[held] = None
        if len(self._by_deadline) > 2 * self._live + _SLACK:
            self._by_deadline = [other for other in self._by_deadline if other.live]
            heapq.heapify(self._by_deadline)
        heapq.heappush(self._by_deadline, held)
        self._live += 1

    def arrived(self, topic: str, queue_id: int, end_offset: int, tags_code: int) -> list[HeldPull]:
        """A message was stored just below `end_offset`: take out the pulls that it wakes."""
        waiting = self._by_queue.get((topic, queue_id))
        if waiting is None:
            return []
        woken = [
            held
            for held in waiting
            if end_offset > held.from_offset and (held.matches is None or held.matches(tags_code))
        ]
        self._take_out(woken)
        return woken

    def at(self, topic: str) -> list[HeldPull]:
        """Take out every pull held at a queue of this topic, because the topic is being deleted."""
        gone = [held for queue, waiting in self._by_queue.items() if queue[0] == topic for held in waiting]
        self._take_out(gone)
        return gone

    def expire(self, now: float) -> list[HeldPull]:
        """Take out the pulls whose time has run out."""
        expired = []
        while self._by_deadline and (not self._by_deadline[0].live or self._by_deadline[0].deadline <= now):
            held = heapq.heappop(self._by_deadline)
            if held.live:
                expired.append(held)
                self._take_out((held,))
        return expired

    @property
    def next_deadline(self) -> float | None:
        """The earliest deadline; None when no pull is held."""
        while self._by_deadline and not self._by_deadline[0].live:
            heapq.heappop(self._by_deadline)
        return self._by_deadline[0].deadline if self._by_deadline else None

    def forget(self, owner: Hashable) -> None:
        """Drop the pulls of this owner, because its connection has ended."""
        self._take_out(list(self._by_owner.get(owner, ())))

    def clear(self) -> None:
        """Forget everything, as when the broker stops."""
        for owner in list(self._by_owner):
            self.forget(owner)
        self._by_deadline.clear()

    def _take_out(self, pulls: Iterable[HeldPull]) -> None:
        for held in pulls:
            held.live = False
            self._live -= 1
            _discard(self._by_queue, held.queue, held)
            _discard(self._by_owner, held.owner, held)


def _discard(table: dict[K, dict[HeldPull, None]], key: K, held: HeldPull) -> None:
    waiting = table[key]
    del waiting[held]
    if not waiting:
        del table[key]
