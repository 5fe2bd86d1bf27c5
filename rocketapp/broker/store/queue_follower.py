"""Follows one queue, for state in memory that is made from its messages.

Whoever keeps such state gets each message once, in order, in one way: those that a start finds are read from the
position on that the last run has saved, and a new one is handed over when it is stored. Until all of the old ones are
read, new ones wait for their turn in the queue.
"""

from __future__ import annotations

from rocketapp.broker.store.consume_queue import Take
from rocketapp.broker.store.reading import MOST_BYTES, MOST_MESSAGES
from rocketapp.broker.store.store import MessageStore
from rocketapp.broker.store.stored import Stored, parse_all


class QueueFollower:
    """One queue and who takes its messages. `position` is the offset of the next one."""

    __slots__ = ("_place", "_store", "_take", "position")

    def __init__(self, store: MessageStore, topic: str, queue_id: int, position: int, take: Take) -> None:
        self._store, self._place, self._take = store, (topic, queue_id), take
        self.position: int = min(max(position, store.min_offset(topic, queue_id)), store.max_offset(topic, queue_id))
        store.queues.subscribe_follower(topic, queue_id, self._stored)

    def __repr__(self) -> str:
        return f"<QueueFollower {self._place[0]}:{self._place[1]} at {self.position}, {self.lag} behind>"

    @property
    def lag(self) -> int:
        """How many messages are not taken yet."""
        return self._store.max_offset(*self._place) - self.position

    def _stored(self, stored: Stored) -> None:
        if stored.queue_offset == self.position:
            self.position += 1
            self._take(stored)

    def catch_up(self, most: int) -> bool:
        """Take so many of the messages that are there; whether that was all. Damaged ones are left out."""
        stop = self.position + most
        while self.lag > 0:
            if self.position >= stop:
                return False
            at, count = self.position, min(stop - self.position, MOST_MESSAGES)
            result = self._store.read(*self._place, at, max_messages=count, max_bytes=MOST_BYTES)
            self.position = max(result.next_offset, at + 1)
            for stored in parse_all(result.body):
                self._take(stored)
        return True
