"""The events that the engine reports to its observer, each after the fact.

Successful messages are never reported one by one: `Handled` carries a count. Retries and dead
letters are rare, so each of them is an event of its own with its message id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rocketapp.model.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class Event:
    """The base class of all events."""


@dataclass(frozen=True, slots=True)
class _OfQueue(Event):
    group: str
    queue: MessageQueue


@dataclass(frozen=True, slots=True)
class _OfMessage(Event):
    group: str
    handler: str
    topic: str
    message_id: str


@dataclass(frozen=True, slots=True)
class _GivenUp(_OfMessage):
    attempt: int
    reason: str
    message: Any = field(default=None, repr=False, compare=False)
    """The `Message` itself."""
    error: BaseException | None = field(default=None, repr=False, compare=False)
    """What the handler raised in its last attempt; None when it asked for the dead letter."""


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
    """A background loop (heartbeat, routes, rebalance, commit, pull ...) met an error. It continues to run."""

    loop: str
    error: str


@dataclass(frozen=True, slots=True)
class Assigned(_OfQueue):
    """A queue was assigned to this member. Consumption begins at `offset`."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Released(_OfQueue):
    """This member gave up a queue."""

    reason: str


@dataclass(frozen=True, slots=True)
class TopicMissing(Event):
    """A subscribed topic has no route when its group starts; it is asked for until it has one."""

    group: str
    topic: str


@dataclass(frozen=True, slots=True)
class SubscriptionsDiffer(Event):
    """Members of the group subscribe differently in a way that may lose messages, or could not be asked."""

    group: str
    problem: str


@dataclass(frozen=True, slots=True)
class RollOut(Event):
    """A changed subscription is rolled out: this member pulls what all members want, or no longer has to."""

    group: str
    text: str
    """Who subscribes what, and what is pulled; empty when all members subscribe alike again."""


@dataclass(frozen=True, slots=True)
class ReadFromSlave(Event):
    """Messages of a broker are read from its slave, because its master cannot be reached; or from its master again."""

    group: str
    broker_name: str
    broker_id: int
    """The slave's id; 0 when the master is read again."""


@dataclass(frozen=True, slots=True)
class Adjusted(Event):
    """Limits of a topic were changed while the app runs (`app.adjust`)."""

    group: str
    topic: str
    text: str
    """What holds from now on."""


@dataclass(frozen=True, slots=True)
class QueueBlocked(_OfQueue):
    """A queue makes no progress. Reported once per reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Moving(_OfQueue):
    """A queue that stood still moves again."""


@dataclass(frozen=True, slots=True)
class Handled(Event):
    """How many messages this handler finished since the last such event."""

    group: str
    handler: str
    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class Unmatched(Event):
    """How many messages matched no handler since the last such event. They count as done."""

    group: str
    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class Retried(_OfMessage):
    """A failed message is sent back, or stays for a retry in place (orderly)."""

    attempt: int
    """The attempt that failed; the first is 1."""
    delay: float
    """Seconds until the next attempt."""
    error: str
    message: Any = field(default=None, repr=False, compare=False)
    """The `Message` itself."""


@dataclass(frozen=True, slots=True)
class DeadLettered(_GivenUp):
    """A message went to the dead-letter topic of its group."""


@dataclass(frozen=True, slots=True)
class Dropped(_GivenUp):
    """A member of a broadcast group gave a message up: such a group has no retry topic and no dead letters."""


@dataclass(frozen=True, slots=True)
class OffsetsFile(Event):
    """What is to be known of the file in which a broadcast group keeps its offsets: why it cannot be relied on."""

    group: str
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class SendBackFailed(_OfMessage):
    """The broker did not take a failed message back. `error` says why, and whether the message is tried again."""

    error: str


@dataclass(frozen=True, slots=True)
class SendAttemptFailed(Event):
    """One attempt to send failed. The caller of `publish` learns the final result separately."""

    group: str
    topic: str
    broker_name: str
    """Empty when it failed before a broker was chosen."""
    error: str


@dataclass(frozen=True, slots=True)
class CommitFailed(_OfQueue):
    """An offset could not be committed. The next round of commits tries again, unless it was the last one."""

    offset: int
    error: str
    is_last: bool = False
    """The queue is given up: messages that were finished since the last commit are delivered again."""


@dataclass(frozen=True, slots=True)
class HandlerSlow(_OfMessage):
    """A handler has run for longer than `handler_warning`, and once more for twice as long.

    Its message is not started a second time in this process meanwhile.
    """

    seconds: float
    place: str = ""
    """`file:line` where it stands; empty when that is not known."""

    @property
    def text(self) -> str:
        """What is the matter, in the words of the log and of `rocketapp doctor`."""
        where = f" at {self.place}" if self.place else ""
        about = f"{self.topic} {self.message_id}{where}"
        return f"handler {self.handler} has been running for {self.seconds:.0f} s on {about}"


@dataclass(frozen=True, slots=True)
class OrderKeyMissing(Event):
    """None of a handler's first messages has the property that its `order_by=` names: they share one key."""

    group: str
    handler: str
    topic: str
    property: str
    count: int
    """Messages that were looked at."""


@dataclass(frozen=True, slots=True)
class LoopBlocked(Event):
    """Code has blocked the event loop: nothing else of this process ran meanwhile.

    Reported twice: with `is_over` False while it lasts, by a thread of its own, and when the loop runs again.
    """

    seconds: float
    place: str
    """`file:line` where it stood."""
    handler: str
    """The handler that was called; empty when it was other code."""
    is_over: bool = True
    stack: str = ""
    """The lines that led to the place, outermost first: `charge app.py:12, parse prices.py:30`."""


@dataclass(frozen=True, slots=True)
class DrainCut(_OfMessage):
    """A handler still ran when the drain timed out, or its message could not be sent back.

    The message was not committed and will be delivered again.
    """

    others: int
    """Further calls or messages of this handler for which it is the same."""
    seconds: float
    """How long the drain lasted."""
    has_failed: bool = False
    """The call has ended, and no broker has taken its message back."""


@dataclass(frozen=True, slots=True)
class StoreRecovered(Event):
    """The store of the embedded broker was opened after `scanned_bytes` of its commit log were read again."""

    scanned_bytes: int
    records: int
    is_rebuilt: bool
    """The consume queues were rebuilt from the whole log."""


@dataclass(frozen=True, slots=True)
class LogCut(Event):
    """Bytes after the last whole record were cut off the commit log: a crash left an unfinished write."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class RecordDamaged(Event):
    """A stored message cannot be read any more. The messages before and after it can."""

    topic: str
    queue_id: int
    offset: int
    """-1 when the damage also hides the message's offset."""
    physical_offset: int


@dataclass(frozen=True, slots=True)
class StoreReadOnly(Event):
    """The disk failed in a way that forbids further writes: nothing is stored until a restart."""

    problem: str


@dataclass(frozen=True, slots=True)
class BrokerRegistered(Event):
    """A name server of Apache RocketMQ knows the embedded broker, which was not so before."""

    broker_name: str
    address: str
    """Where its clients will look for the broker."""
    name_server: str


@dataclass(frozen=True, slots=True)
class SlaveJoined(Event):
    """A slave copies the log of the embedded broker, from `position` on."""

    address: str
    position: int


@dataclass(frozen=True, slots=True)
class SlaveLeft(Event):
    """A slave copies the log no more, or was refused. It has confirmed the log up to `position`."""

    address: str
    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class FollowsMaster(Event):
    """The embedded broker copies the log of its master, from `position` on."""

    master: str
    position: int


@dataclass(frozen=True, slots=True)
class LeftMaster(Event):
    """The embedded broker does not copy the log of its master at the moment. It has the log up to `position`."""

    master: str
    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class TableRestored(Event):
    """A table of the embedded broker could not be read: its content before the last change was taken in its place."""

    path: str
    """The file that could not be read. What was taken is in the file of this name that ends in `.bak`."""
    problem: str


Observe = Callable[[Event], None]
"""Receives every event; must not block and must not raise."""


def unobserved(event: Event) -> None:
    """Stands for an observer where nobody observes."""
