"""What consume modes have in common that call a handler for each message, or for a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.items import messages_of
from rocketapp.consumer.modes.context import ModeContext
from rocketapp.consumer.modes.delivery import PulledMode
from rocketapp.consumer.quarantine import QueueQuarantine
from rocketapp.consumer.rollout.forward import UnmatchedMessages
from rocketapp.consumer.stalls import waits_for_call
from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.callers import Callers
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message


class ModeByCallers(PulledMode):
    """A mode that calls all its handlers in one group."""

    def __init__(self, context: ModeContext) -> None:
        self.context: ModeContext = context
        self.callers: Callers = Callers(context.member, context.threads, context.journal)
        self.unmatched: UnmatchedMessages[Caller] = UnmatchedMessages(context.forwarding, self.callers.one)
        """Who takes messages that no handler here does."""

    def quarantine(self, process_queue: ProcessQueue[Message]) -> QueueQuarantine | None:
        """What is quarantined in a new session, if anything is."""
        if self.context.journal is None:
            return None
        return QueueQuarantine(self.context.journal, self.context.member, process_queue) or None

    def recorder(self, process_queue: ProcessQueue[Message]) -> Callable[[int, int], bytes] | None:
        """Makes what a worker notes down that takes some offsets of this queue; None: nothing is noted down."""
        journal = self.context.journal
        if journal is None:
            return None
        return partial(journal.record, self.context.member.name, process_queue.message_queue)

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """With a span: one message that is not finished holds up the committed offset of all above it."""
        return QueueLimits(
            config.queue_max_messages,
            config.queue_max_bytes,
            config.queue_max_span,
            topic_messages=config.topic_max_messages,
            topic_bytes=config.topic_max_bytes,
        )

    def in_flight(self) -> list[tuple[Handler, Any]]:
        """Every running call: its handler, and the message or batch that it works on."""
        return self.callers.in_flight()

    def waits_for_calls(self, process_queue: ProcessQueue[Message]) -> str:
        """Why nothing of this queue runs, if all calls of its handlers are busy with other queues; otherwise empty."""
        messages = process_queue.unfinished()
        running = {id(message) for _, item in self.in_flight() for message in messages_of(item)}
        if any(id(message) in running for message in messages):
            return ""
        topics = {message.topic for message in messages}
        busy = [caller for caller in self.callers.busy() if caller.handler.subscription.topic in topics]
        return ", ".join(waits_for_call(caller.handler.name, caller.most) for caller in busy)

    def grow(self, times: int) -> None:
        """Run that many times as many calls at once as declared, up to the most of each handler."""
        self.callers.grow(times)

    def pace(self, handler: Handler, concurrency: int, rate: float | None, batch: int | None) -> None:
        """Run this many calls of a handler at once, start this many messages a second, at most `batch` in one call."""
        self.callers.pace(handler, concurrency, rate, batch)

    async def stop(self) -> None:
        """Start nothing more, and cancel what can be cancelled."""
        await self.callers.stop()

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        self.callers.halt()
