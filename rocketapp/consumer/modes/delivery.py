"""The seam between an owned queue and the consume mode of its topic.

A consume mode is one file of this room: its messages reach their handlers through
`consumer.workers`, and it acknowledges what their calls have done: by offset, by handle, or when
a table has stored it. The owner of a queue knows `Mode` and `Delivery` alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Protocol

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.pull.flow import QueueFlow
from rocketapp.consumer.pull.puller import Decode
from rocketapp.consumer.workers.run import Acknowledge
from rocketapp.model.message_queue import Begin, MessageQueue
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.lease import Lease
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message, decode_records


class Delivery(Protocol):
    """The messages of one session of one queue, on their way to handlers and to their acknowledgement."""

    over: asyncio.Future[None]
    """Done when the delivery cannot go on by itself: an orderly one whose lock is lost. Never of a concurrent one.

    It holds an exception when the delivery has failed.
    """

    def deliver(self, messages: Sequence[Any]) -> None:
        """What was just put into the process queue, in offset order."""
        ...

    def end(self, *, start_no_more: bool = False) -> None:
        """Give up the queue: withdraw the messages that were not started; running calls may finish.

        What lies below a started message may still start, for the sake of the offset, until `start_no_more`.
        """
        ...

    async def drained(self) -> None:
        """Returns when everything that was started has ended. Call `end` first."""
        ...

    async def abandon(self) -> bool:
        """Cancel the running calls; True when none runs any more (a thread cannot be stopped)."""
        ...

    def discard(self) -> None:
        """The session is void: acknowledge nothing of it any more."""
        ...


class QueueLock(Protocol):
    """The lock of one queue, as an orderly delivery needs it."""

    @property
    def lease(self) -> Lease:
        """Compared with the clock before each item."""
        ...

    async def usable(self) -> bool:
        """Wait until the lock is certain again: True; or is lost for good: False."""
        ...


class _Unlocked:
    """Stands for the lock of a queue that no other member takes away: it is always held."""

    def __init__(self) -> None:
        self.lease = Lease(lasts=inf, renew_interval=inf)
        self.lease.granted(0.0)

    async def usable(self) -> bool:
        return True


def lock_for(process_queue: ProcessQueue[Any], lock: QueueLock | None, *, needs_lock: bool) -> QueueLock:
    """What a delivery in order goes by; where no lock is needed, one that is always held."""
    if lock is None and needs_lock:
        raise ValueError(f"{process_queue} is consumed in order: it needs a lock")
    return _Unlocked() if lock is None else lock


class NewQueue(Protocol):
    """Makes the process queue of a session."""

    def __call__(self, message_queue: MessageQueue, first_offset: int, epoch: int, /) -> ProcessQueue[Any]: ...


class Mode(Protocol):
    """One consume mode, made once per group."""

    needs_lock: bool
    """Its queues are consumed under a lock of the broker."""
    run_on: float | None
    """Seconds that running calls get when their queue goes to another living member; None: until they have ended.

    Without a lock the next owner waits for `state.handover.LONGEST_WAIT` at most.
    """

    new_queue: NewQueue
    """Makes the process queue of a session."""
    decode: Decode
    """Makes of the answer to a pull what that process queue holds."""

    @property
    def own_start(self) -> Begin | None:
        """Where sessions begin whose offsets are kept elsewhere; None: at the offset of the group."""
        ...

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """How much each of its queues may pull ahead of its handlers."""
        ...

    def open(self, process_queue: ProcessQueue[Any], lock: QueueLock | None, flow: QueueFlow, /) -> Delivery:
        """The delivery of a new session; `lock` is given when the mode needs one. `flow` says when it is full."""
        ...

    def in_flight(self) -> list[tuple[Handler, Any]]:
        """Every running call: its handler, and the message or batch that it works on."""
        ...

    def waits_for_calls(self, process_queue: ProcessQueue[Any], /) -> str:
        """Why nothing of this queue runs, if all calls of its handlers are busy with other queues; otherwise empty."""
        ...

    def pace(self, handler: Handler, concurrency: int, rate: float | None, batch: int | None) -> None:
        """Run this many calls of a handler at once, and start this many of its messages a second if it has a rate.

        `batch`: most messages of a batch, if it takes batches. Nothing happens if this mode does not call it.
        """
        ...

    async def stop(self) -> None:
        """Start nothing more, and cancel what can be cancelled."""
        ...

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        ...


Prompt = Callable[[ProcessQueue[Message]], None]
"""Called on the loop when messages of this queue were finished, so that their offset may be committed soon."""


def no_prompt(process_queue: ProcessQueue[Message]) -> None:
    """Leave the offset to the regular commits."""


Keep = Callable[[Message, float], None]
"""Takes a message that was started and is parked: it starts again after these seconds, if its topic is not paused."""
NewAcks = Callable[[ProcessQueue[Message], Handler, Keep], Acknowledge]
"""Makes what sees to the ended calls of one handler in one session: acks, and what follows a failure."""


class PulledMode:
    """Its process queues hold messages, from the offset that the group has committed."""

    decode: Decode = staticmethod(decode_records)
    new_queue: NewQueue = ProcessQueue

    @property
    def own_start(self) -> Begin | None:
        return None
