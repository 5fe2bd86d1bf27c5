"""What a plugin's way of consuming consists of: an intake per session of a queue, which acknowledges by itself.

The engine assigns queues, pulls, holds paused topics, commits offsets and gives queues back, as for every way. The
intake says when a message is done: at once, or much later, when a table has stored a hundred of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.queue_start import Begin
from rocketapp.model.subscription import Subscription
from rocketapp.state.flow_control import IsFull
from rocketapp.wire.record import Message
from rocketapp.wire.stored_records import StoredRecords


class Intake(Protocol):
    """Consumes one queue for one session: from its assignment until it is given back. Called on the event loop."""

    def take(self, messages: Sequence[Message]) -> None:
        """Messages of the queue in offset order. Must not block: start what takes time.

        What it raises ends the session: after a second the queue is read again from what was acknowledged.
        """
        ...

    async def drain(self) -> None:
        """The queue is given back: finish what was taken, acknowledge it, and return. It is the time to flush.

        Nothing more is taken. What is not acknowledged goes to the next owner. May be cancelled when time is over.
        """
        ...

    def discard(self) -> None:
        """The session is over, drained or void: start nothing more. Acknowledging has no effect now."""
        ...


class RecordsIntake(Protocol):
    """An intake of a way with `records=True`: as `Intake`, but for what it takes."""

    def take(self, records: Sequence[StoredRecords]) -> None:
        """Records of the queue in offset order, as brokers store them, not decoded. Each one is acknowledged whole."""
        ...

    async def drain(self) -> None:
        """See `Intake`."""
        ...

    def discard(self) -> None:
        """See `Intake`."""
        ...


class QueueSession(Protocol):
    """What an intake is given: its queue, and how it acknowledges. For the event loop only."""

    @property
    def subscription(self) -> Subscription:
        """What was declared."""
        ...

    @property
    def queue(self) -> MessageQueue:
        """The queue, or the one of a topic of another name that it is read from."""
        ...

    @property
    def call(self) -> Callable[[Any], Any]:
        """The handler behind its wrappers: an intake may call it, or do without. One of a sync handler blocks."""
        ...

    @property
    def position(self) -> int:
        """Everything below is done, or did not match the subscription: what is committed to the broker."""
        ...

    def done(self, messages: Sequence[Message] | Sequence[StoredRecords]) -> None:
        """These are done, as they were taken, in any order: the committed offset passes them when all below are."""
        ...

    def failed(self, message: Message, error: BaseException) -> None:
        """This one failed: `error` is judged as if the handler had raised it, by its Policy, breaker and retries.

        An outcome means what it says: a Skip is done; a Stop pauses the topic, and the message is taken again when that
        is resumed. What is retried goes to the handler, concurrently. Not for an intake of records.
        """
        ...

    def broken(self, error: BaseException) -> None:
        """Nothing can be done now: end the session. After a second the queue is read again from what is done."""
        ...

    def still(self, reason: str) -> None:
        """Why the queue is blocked, for logs and snapshots; it holds until `moving`, or the end of the session."""
        ...

    def moving(self) -> None:
        """The reason of `still` is gone. Costs little when there was none."""
        ...


NewIntake = Callable[[QueueSession], Intake]
"""Makes the intake of one session of one queue, on the event loop."""
NewRecordsIntake = Callable[[QueueSession], RecordsIntake]
"""The same for a way with `records=True`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeWay:
    """A way of consuming that asks for more than an intake per session."""

    new_intake: NewIntake | NewRecordsIntake
    records: bool = False
    """Its intakes take records as brokers store them, of which they make messages themselves, or columns."""
    locked: bool = False
    """Queues are consumed under the lock of their broker, by one member at a time; the next one waits for `drain`."""
    begin: Begin | None = None
    """For offsets that are kept elsewhere: in the table that holds the rows. Asked under the lock, if there is one."""
    max_messages: int | None = None
    """Messages of one queue that are not acknowledged and stop its pulls; None: `consumer.queue_max_messages`."""
    max_bytes: int | None = None
    """The same for bytes; None: `consumer.queue_max_bytes`. `consumer.cache_max_bytes` bounds all queues together."""
    is_full: IsFull | None = None
    """For what all queues of the plugin hold together; asked before each pull of a queue that holds something."""
