"""What consume modes are made from when no group stands around them, and sessions of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.delivery import Mode, ModeContext
from rocketapp.consumer.retry.attempts import FailedAttempts
from rocketapp.consumer.retry.breaker import FailurePauses
from rocketapp.consumer.workers.callers import Callers
from rocketapp.consumer.workers.in_threads import Threads
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.lease import Lease
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.wire.record import Message
from tests.unit.consumer.members import member_alone


class NobodyElse:
    """In place of `Forwarder`: no other member wants what no handler here takes."""

    def caller(self, topic: str, message: Message) -> None:
        return None


class DroppedFailures:
    """In place of the redelivery: failed messages are not tried again."""

    park = None

    def fail(self, handler: Handler, queue: ProcessQueue[Message], message: Message, failure: Failure) -> None:
        handler.stats.handled += 1
        queue.finish(message)


def mode_context(handlers: Sequence[Handler], *, dead_letters: Any = None, **others: Any) -> ModeContext:
    """`dead_letters` takes messages that failed for good."""
    member = member_alone(handlers, config=ConsumerConfig(suspend=1.0))
    redelivery, stopping = cast(Any, dead_letters or DroppedFailures()), FailurePauses(member)
    values: dict[str, Any] = {
        "member": member,
        "callers": Callers(member, others.pop("threads", Threads), others.get("journal")),
        "redelivery": redelivery,
        "stopping": stopping,
        "attempts": FailedAttempts(member, redelivery, stopping),
        "forwarding": NobodyElse(),
        "prompt": lambda _: None,
    }
    return ModeContext(**{**values, **others})


class ScriptedLock(Lease):
    """A lease that a test ends and grants."""

    def __init__(self) -> None:
        super().__init__(lasts=1e9, renew_interval=20)
        self._now = asyncio.get_running_loop().time
        self.granted(self._now())

    def run_out(self) -> None:
        self.certain_until = self._now()

    def decide(self, usable: bool) -> None:
        if usable:
            self.granted(self._now())
        else:
            self.lose()


def under(lock: Lease, process_queue: ProcessQueue[Message]) -> ProcessQueue[Message]:
    """The same process queue, which is consumed under this lock from now on."""
    process_queue.lease = lock
    return process_queue


class DeadLetters:
    """Takes dead letters, at once, later or never."""

    park = None

    def __init__(self, after: float = 0.0) -> None:
        """`after`: seconds until one is stored."""
        self.letters: list[tuple[int, str]] = []
        self._after = after
        self.are_stored = True
        """False: no broker takes them."""

    def store_dead_letter(
        self, handler: Handler, queue: Any, message: Message, failure: Failure
    ) -> asyncio.Future[None]:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def store() -> None:
            self.letters.append((message.offset, str(failure)))
            handler.stats.dead_lettered += 1
            queue.finish(message)
            stored.set_result(None)

        if self._after:
            asyncio.get_running_loop().call_later(self._after, store)
        elif self.are_stored:
            store()
        return stored


def opened(mode: Mode, queue: MessageQueue, *messages: Message) -> tuple[ProcessQueue[Message], Any]:
    """A session that has pulled these messages: its process queue and its delivery."""
    process_queue: ProcessQueue[Message] = ProcessQueue(queue, 0)
    delivery = mode.open(under(ScriptedLock(), process_queue))
    process_queue.put(messages)
    delivery.deliver(messages)
    return process_queue, delivery
