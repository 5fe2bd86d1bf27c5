"""What the engine tells whoever observes it: facts, after they happened.

Never one event per message: `Handled` is a count. Retries and dead letters are rare
and tell their message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rocketapp.model.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened."""


@dataclass(frozen=True, slots=True)
class Connected(Event):
    """A connection to a broker or name server was made."""

    address: str


@dataclass(frozen=True, slots=True)
class Disconnected(Event):
    """A connection ended that we did not end."""

    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class LoopFailed(Event):
    """A background loop (heartbeat, routes, rebalance, commit, pull ...) met an error and goes on."""

    loop: str
    error: str


@dataclass(frozen=True, slots=True)
class Assigned(Event):
    """A queue is ours; consumption begins at `offset`."""

    group: str
    queue: MessageQueue
    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Released(Event):
    """A queue is no longer ours."""

    group: str
    queue: MessageQueue
    reason: str


@dataclass(frozen=True, slots=True)
class TopicMissing(Event):
    """A subscribed topic has no route when its group starts; it is asked for until it has one."""

    group: str
    topic: str


@dataclass(frozen=True, slots=True)
class StandingStill(Event):
    """A queue does not move, and why: told once per reason."""

    group: str
    queue: MessageQueue
    reason: str


@dataclass(frozen=True, slots=True)
class Moving(Event):
    """A queue that stood still moves again."""

    group: str
    queue: MessageQueue


@dataclass(frozen=True, slots=True)
class Handled(Event):
    """So many messages were done by this handler since the last such event."""

    group: str
    handler: str
    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class Unmatched(Event):
    """So many messages were taken that no handler wants."""

    group: str
    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class Retried(Event):
    """A failed message is sent back, or stays for a retry in place (orderly)."""

    group: str
    handler: str
    topic: str
    message_id: str
    attempt: int
    """The attempt that failed; the first is 1."""
    delay: float
    """Seconds until the next attempt."""
    error: str


@dataclass(frozen=True, slots=True)
class DeadLettered(Event):
    """A message went to the dead-letter topic of its group."""

    group: str
    handler: str
    topic: str
    message_id: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class SendBackFailed(Event):
    """A failed message could not be handed back; it stays and is tried again."""

    group: str
    handler: str
    topic: str
    message_id: str
    error: str


@dataclass(frozen=True, slots=True)
class SendAttemptFailed(Event):
    """One attempt to send failed; what became of the send, its caller hears."""

    group: str
    topic: str
    broker_name: str
    """Empty when it failed before a broker was chosen."""
    error: str


@dataclass(frozen=True, slots=True)
class CommitFailed(Event):
    """An offset could not be committed; it stays for the next round."""

    group: str
    queue: MessageQueue
    offset: int
    error: str


@dataclass(frozen=True, slots=True)
class HandlerSlow(Event):
    """A handler runs for very long; no second copy is started while it does."""

    group: str
    handler: str
    topic: str
    message_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class DrainCut(Event):
    """A handler still ran when the time of the drain was over: what it had in hand is somebody else's again."""

    group: str
    handler: str
    topic: str
    message_id: str
    others: int
    """So many further calls of this handler were cut with it."""
    seconds: float
    """How long the drain lasted."""


@dataclass(frozen=True, slots=True)
class StoreRecovered(Event):
    """The store of the embedded broker was opened, and so much of its log had to be read again."""

    scanned_bytes: int
    records: int
    is_rebuilt: bool
    """The consume queues were made anew from the whole log."""


@dataclass(frozen=True, slots=True)
class LogCut(Event):
    """Bytes behind the last whole record were cut off the commit log: an unfinished write of a crash."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class RecordDamaged(Event):
    """A stored message cannot be read any more; what lies before and after it can."""

    topic: str
    queue_id: int
    offset: int
    """-1 when the damage hides which message it was."""
    physical_offset: int


@dataclass(frozen=True, slots=True)
class StoreReadOnly(Event):
    """The disk failed in a way that forbids further writes: nothing is stored until a restart."""

    problem: str


Observe = Callable[[Event], None]
"""Receives every event; must not block and must not raise."""


def unobserved(event: Event) -> None:
    """An observer for those who have none."""
