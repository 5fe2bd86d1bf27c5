"""The pull loop of one assignment.

The next pull is under way before the present batch is handed over, and carries the offset
that is done by then. Whatever goes wrong is waited out and said aloud; the loop ends only
when it is cancelled, or when the broker calls its offset illegal and another one takes its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rocketapp.client.calls import pull
from rocketapp.client.calls.pull import PullResult
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.offsets import Offsets
from rocketapp.consumer.pull.flow_control import Flow
from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.errors import BrokerError, ConnectionLostError, RocketAppError, TransportError
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.model.route import MASTER_ID
from rocketapp.model.subscription import SubscriptionData
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.start_position import Correction, correct
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message, decode_records

Deliver = Callable[[Sequence[Message]], None]

_BUSY_DELAY = 0.02
"""Seconds to wait for a broker that is busy (Java: PULL_TIME_DELAY_MILLS_WHEN_BROKER_FLOW_CONTROL)."""
_FLOW_PATIENCE = 5.0
"""Seconds of flow control after which it is told: shorter pauses are its work."""
_LOST_DELAY = 0.1
"""Seconds until a pull whose connection was lost is tried again: dialling has waits of its own."""
_LOST_PATIENCE = 1.0
"""Seconds that a queue may be without its broker before it is told."""
_HELD = 1.0
"""Seconds after which a pull that was not answered is held by a broker that works."""
_BUSY = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})
_UNKNOWN_TO_BROKER = frozenset({ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST})
"""The broker does not know our group or our subscription (yet): a heartbeat mends it."""
_ELSEWHERE = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER})
"""The topic or the queue is not there (any more): the route may have changed."""


@dataclass(frozen=True, slots=True)
class PullContext:
    """What all pull loops of a group share."""

    brokers: Brokers
    offsets: Offsets
    flow: Flow
    stall_reasons: StallReasons
    observe: Observe
    config: ConsumerConfig
    max_inflated_bytes: int
    heartbeat: Callable[[], None]
    """Asks for a heartbeat soon."""
    refresh: Callable[[str], None]
    """Asks for the topic's route soon."""


class Puller:
    """Fills one process queue."""

    def __init__(
        self,
        queue: ProcessQueue[Message],
        subscription: SubscriptionData,
        deliver: Deliver,
        context: PullContext,
        *,
        orderly: bool,
    ) -> None:
        self._queue, self._subscription, self._deliver, self._context = queue, subscription, deliver, context
        self._orderly = orderly
        self._broker_id = MASTER_ID
        self._carried: int | None = None
        """The offset that travels with the pull under way."""
        self._coming: asyncio.Future[Command]

    def __repr__(self) -> str:
        return f"<Puller {self._queue.message_queue} at {self._queue.end_offset}>"

    async def run(self) -> Correction:
        """Pull until cancelled, or until the broker has nothing at our offset: where to go on instead."""
        context, queue = self._context, self._queue.message_queue
        while True:
            try:
                return await self._pull_on()
            except RocketAppError as error:
                # The slave that a broker sent us to may be gone; the master says anew where to read.
                self._broker_id = MASTER_ID
                patience = _LOST_PATIENCE if isinstance(error, TransportError) else 0.0
                context.stall_reasons.still(queue, f"pull failed: {error}", kind="pull failed", patience=patience)
                await asyncio.sleep(self._delay(error))
            except Exception as error:
                # A bug must not stop the queue for good without a word.
                context.observe(LoopFailed(f"pull {queue}", f"{type(error).__name__}: {error}"))
                await asyncio.sleep(context.config.pull_retry_delay)

    def _delay(self, error: RocketAppError) -> float:
        """Seconds until the next try, and what else may help."""
        delay = self._context.config.pull_retry_delay
        if isinstance(error, ConnectionLostError):
            return min(_LOST_DELAY, delay)
        if isinstance(error, BrokerError):
            if error.code in _BUSY:
                return min(_BUSY_DELAY, delay)
            if error.code in _UNKNOWN_TO_BROKER:
                self._context.heartbeat()
            if error.code in _ELSEWHERE:
                self._context.refresh(self._queue.message_queue.topic)
        return delay

    async def _pull_on(self) -> Correction:
        self._coming = await self._start(self._queue.end_offset)
        try:
            if not (await asyncio.wait([self._coming], timeout=_HELD))[0]:
                # Neither answered nor refused: the broker holds the pull until there is a message.
                self._context.stall_reasons.moving(self._queue.message_queue)
            while (result := pull.read(await self._coming)).status != "illegal":
                await self._take(result)
        finally:
            # Whatever it still brings belongs to nobody; a failure it has brought is seen.
            if not self._coming.cancel() and not self._coming.cancelled():
                self._coming.exception()
        bounds = {"min_offset": result.min_offset, "max_offset": result.max_offset}
        return correct(self._queue.end_offset, next_offset=result.next_offset, **bounds)

    async def _take(self, result: PullResult) -> None:
        """Make use of one answer, with the next pull under way."""
        context, queue = self._context, self._queue
        context.offsets.arrived(queue, self._carried)
        context.stall_reasons.moving(queue.message_queue)
        self._broker_id = result.suggested_broker_id
        early = result.status == "found" and context.flow.closed_by(queue, orderly=self._orderly) is None
        if early:
            self._coming = await self._start(result.next_offset)
        if result.status == "found":
            found = decode_records(result.body, queue.message_queue, max_inflated_bytes=context.max_inflated_bytes)
            messages = queue.put(found)
            context.flow.took(len(result.body))
            if messages:
                self._hand_over(messages)
        queue.advance(result.next_offset)
        if not early:
            await self._wait_for_gate()
            self._coming = await self._start(result.next_offset)

    def _hand_over(self, messages: Sequence[Message]) -> None:
        try:
            self._deliver(messages)
        except Exception:
            # What nobody was given would never be finished: it is pulled again.
            self._queue.withdraw(messages[0].offset)
            raise

    async def _wait_for_gate(self) -> None:
        context, queue = self._context, self._queue
        reason = context.flow.closed_by(queue, orderly=self._orderly)
        if reason is not None:
            context.stall_reasons.still(queue.message_queue, reason, kind="flow control", patience=_FLOW_PATIENCE)
            await context.flow.opened(queue, orderly=self._orderly)
            context.stall_reasons.moving(queue.message_queue)

    async def _start(self, offset: int) -> asyncio.Future[Command]:
        carried = self._context.offsets.travelling(self._queue)
        coming = await self._context.brokers.start_pull(
            self._queue.message_queue, self._subscription, offset, carried, self._broker_id
        )
        self._carried = carried if self._broker_id == MASTER_ID else None
        return coming
