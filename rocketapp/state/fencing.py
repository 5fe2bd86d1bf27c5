"""Which queues are certainly still ours: decided per queue, on what its own broker answered.

A queue is uncertain after a disturbance: the connection to its broker was lost, the process stood still, or no list
of members was confirmed for a minute (brokers forget a silent member after two). Nothing is committed for a queue
uncertain before its offset was read again. An offset that we sent, or a lower one, means that no other member went
on with the queue. A broker that does not answer keeps only its own queues uncertain.

An interim owner may commit late. So after a lost connection only an offset counts that was read after a new list of
members had been acted on: by then an interim owner has given the queue back. Queues under a lease are not fenced: it
says as much.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from rocketapp.model.message_queue import MessageQueue

CONFIRMED_FOR = 60.0
"""Seconds for which a list of members is relied upon."""
FROZEN_AFTER = 1.2
"""Seconds between two looks at the clock after which the process must have stood still, and may have lost its queues:
less than a next owner waits before it begins (`handover.WAIT`)."""


class Fencing:
    """Which of its queues one member may still commit for."""

    def __init__(self, now: float) -> None:
        self._confirmed: dict[str, float] = {}
        self._verified: set[MessageQueue] = set()
        self._lost_at: dict[str, float] = {}
        self._listed: set[tuple[str, str]] = set()
        self.fenced: set[MessageQueue] = set()
        """Queues with a session that are not verified."""
        self._looked_at = now
        self.era: int = 0
        """Counts disturbances: an answer that was asked for in an earlier era proves nothing."""

    def __repr__(self) -> str:
        return f"<Fencing in {len(self._verified)} queues>"

    # Disturbances.

    def beat(self, now: float) -> bool:
        """Call it about once a second. Returns whether the process stood still since the last call."""
        was_frozen = now >= self._looked_at + FROZEN_AFTER
        self._looked_at = now
        if was_frozen:
            self._confirmed.clear()
            self._fence(self._verified)
        return was_frozen

    def lost(self, broker_name: str, now: float) -> None:
        """The connection to this broker was lost: the broker removes this member from its groups at once."""
        self._lost_at[broker_name] = now
        self._listed = {(topic, name) for topic, name in self._listed if name != broker_name}
        self._fence(queue for queue in self._verified if queue.broker_name == broker_name)

    def _fence(self, queues: Iterable[MessageQueue]) -> None:
        self.era += 1
        fenced = list(queues)
        self.fenced.update(fenced)
        self._verified.difference_update(fenced)

    # Confirmations.

    def confirm(self, topic: str, now: float, connected: Iterable[str] = ()) -> bool:
        """A list of members that was asked for at `now` decided on this topic; whether its queues can be verified anew.

        `connected`: the brokers that were connected when it was asked for.
        """
        was_confirmed = self.is_confirmed(topic, now)
        if topic in self._confirmed and not was_confirmed:
            self._fence(queue for queue in self._verified if queue.topic == topic)
        self._confirmed[topic] = now
        listed = {(topic, name) for name in connected if self._lost_at.get(name, now) < now} - self._listed
        if listed:
            # What was read before the list proves nothing.
            self.era += 1
            self._listed |= listed
        return bool(listed) or not was_confirmed

    def begin(self, queue: MessageQueue) -> None:
        """A session begins at an offset that was just read: the queue is certain."""
        if not self.verify(queue, self.era):
            self.fenced.add(queue)

    def verify(self, queue: MessageQueue, era: int) -> bool:
        """The offset read in this era shows that the queue is still ours: it is certain again.

        Returns False if another disturbance came after the question was sent.
        """
        is_ours = era == self.era and self.is_listed(queue)
        if is_ours:
            self._verified.add(queue)
            self.fenced.discard(queue)
        return is_ours

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue: its session is over."""
        self._verified.discard(queue)
        self.fenced.discard(queue)

    # What may be relied on.

    def is_confirmed(self, topic: str, now: float) -> bool:
        """Whether the last list of members still holds for this topic."""
        is_awake = now < self._looked_at + FROZEN_AFTER
        return is_awake and now < self._confirmed.get(topic, -inf) + CONFIRMED_FOR

    def is_listed(self, queue: MessageQueue) -> bool:
        """Whether a list of members has been acted on since the broker of this queue was lost."""
        return queue.broker_name not in self._lost_at or (queue.topic, queue.broker_name) in self._listed

    def may_commit(self, queue: MessageQueue, now: float) -> bool:
        """Whether an offset of this queue may be committed."""
        return queue in self._verified and self.is_confirmed(queue.topic, now)
