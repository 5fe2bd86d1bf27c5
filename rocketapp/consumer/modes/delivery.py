"""The interface between an owned queue and the consume mode of its topic.

Each consume mode is a file of this room: its messages reach handlers through `consumer.workers`, and it acknowledges
what the calls have done: by offset, by handle, or when a table has stored it. The owner of a queue knows only `Mode`
and `Delivery`; that of a popped topic (`queues.popped`) makes its delivery itself.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.blocked import Text
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.member import Member
from rocketapp.consumer.pull.puller import Decode
from rocketapp.consumer.quarantine import QueueQuarantine
from rocketapp.consumer.retry.attempts import FailedAttempts
from rocketapp.consumer.retry.breaker import FailurePauses
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.rollout.forward import Forwarder
from rocketapp.consumer.workers.callers import Callers
from rocketapp.model.message_queue import Begin, MessageQueue
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.handover import RUN_ON
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message, decode_records


class Delivery(Protocol):
    """Brings the messages of one session of one queue to handlers, and acknowledges them."""

    over: asyncio.Future[None]
    """Done when the delivery cannot go on by itself: an orderly one whose lock is lost. Never of a concurrent one.

    It holds an exception when the delivery has failed.
    """

    def deliver(self, messages: Sequence[Any]) -> None:
        """Messages were just put into the process queue, in offset order."""
        ...

    def end(self, *, start_no_more: bool = False) -> None:
        """Give up the queue: withdraw messages that were not started; running calls may finish.

        Messages below a started one may still start, so that the offset can pass them, until `start_no_more`.
        """
        ...

    async def drained(self) -> None:
        """Returns when every started call has ended. Call `end` first."""
        ...

    async def abandon(self) -> bool:
        """Cancel the running calls. True when none runs any more (a thread cannot be stopped)."""
        ...

    def discard(self) -> None:
        """The session is void: acknowledge nothing more."""
        ...

    def why_it_waits(self, stood_still: float) -> Text:
        """Why its queue has finished nothing for so many seconds, if the handlers are the reason; otherwise empty.

        Asked once a second: no message pays for it.
        """
        ...


NewQueue = Callable[[MessageQueue, int, int], ProcessQueue[Any]]
"""Makes the process queue of a session, from its first offset and its epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeContext:
    """What the consume modes of a group share."""

    member: Member
    redelivery: Redelivery
    stopping: FailurePauses
    attempts: FailedAttempts
    """Of messages that are tried again in place."""
    callers: Callers
    """What calls its handlers."""
    forwarding: Forwarder
    """What becomes of messages that no handler takes."""
    prompt: Callable[[ProcessQueue[Message]], None]
    """Called on the loop when messages of a queue in order were finished, so that it may be committed soon."""
    journal: Journal | None = None
    """Where workers note down what they have in flight; None: nowhere."""


class Mode(ABC):
    """One consume mode of a group. By default it pulls messages, from the committed offset on."""

    needs_lock: bool = False
    """Its queues are consumed under a lock of the broker."""
    run_on: float | None = RUN_ON
    """Seconds that running calls get when their queue goes to another living member; None: until they have ended.

    Without a lock the next owner waits for `state.handover.WAIT`.
    """
    new_queue: NewQueue = ProcessQueue
    """Makes the process queue of a session."""
    decode: Decode = staticmethod(decode_records)
    """Makes of the answer to a pull what that process queue holds."""
    own_start: Begin | None = None
    """Where sessions begin whose offsets a plugin keeps; None: at the offset of the group."""

    def __init__(self, context: ModeContext) -> None:
        self.context: ModeContext = context
        self.callers: Callers = context.callers

    @abstractmethod
    def open(self, process_queue: ProcessQueue[Any], /) -> Delivery:
        """A delivery for a new session."""

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """How far each queue may pull ahead of its handlers.

        With a span: one unfinished message holds up the committed offset of all above it.
        """
        return QueueLimits(
            config.queue_max_messages,
            config.queue_max_bytes,
            config.queue_max_span,
            topic_messages=config.topic_max_messages,
            topic_bytes=config.topic_max_bytes,
        )

    def quarantine(self, process_queue: ProcessQueue[Message]) -> QueueQuarantine | None:
        """The quarantine of a new session, if it has quarantined messages."""
        if self.context.journal is None:
            return None
        return QueueQuarantine(self.context.journal, self.context.member, process_queue) or None

    def recorder(self, process_queue: ProcessQueue[Message]) -> Callable[[int, int], bytes] | None:
        """A function that records in the journal what workers have in flight; None: nothing is recorded."""
        journal = self.context.journal
        return None if journal is None else journal.recorder(self.context.member.noted_as, process_queue.message_queue)
