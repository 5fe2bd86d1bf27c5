"""What consume modes have in common that leave the calls to the workers of their handlers."""

from __future__ import annotations

from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.delivery import Pulled
from rocketapp.consumer.rollout.forward import Forwarding, Unmatched
from rocketapp.consumer.workers.of_handlers import WorkersOfHandlers
from rocketapp.consumer.workers.work import Workers
from rocketapp.state.flow_control import QueueLimits


class ModeByWorkers(Pulled):
    """A mode over the workers of all handlers of one group."""

    def __init__(self, workers: WorkersOfHandlers, forwarding: Forwarding | None = None) -> None:
        """`forwarding`: what becomes of messages that no handler takes; None: they are done."""
        self._workers = workers
        self.unmatched: Unmatched[Workers] = Unmatched(forwarding, workers.one)

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
        return self._workers.in_flight()

    def grow(self, times: int) -> None:
        """Run that many times as many calls at once as declared, up to the most of each handler."""
        self._workers.grow(times)

    def pace(self, handler: Handler, concurrency: int, rate: float | None, batch: int | None) -> None:
        """Run this many calls of a handler at once, start this many messages a second, at most `batch` in one call."""
        self._workers.pace(handler, concurrency, rate, batch)

    async def stop(self) -> None:
        """Start nothing more, and cancel what can be cancelled."""
        await self._workers.stop()

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        self._workers.halt()
