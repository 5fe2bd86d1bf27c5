"""What the orderly and the polled way have in common: one call of a queue at a time, under the lock of the queue.

Each session has one runner, so two calls of a queue never overlap; under its lock this holds across the group. When the
lease of the lock is over, nothing starts before the lock is certain again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.stalls import OF_CALL
from rocketapp.consumer.ways.context import WayContext
from rocketapp.consumer.ways.delivery import Pulled, QueueLock
from rocketapp.consumer.workers.free_calls import call_before
from rocketapp.consumer.workers.rated import RatedSerial
from rocketapp.consumer.workers.serial import Permit, SerialExecutor, SerialInThreads, SerialOnLoop
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.pauses import Take
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message

CALL_PATIENCE = 10.0
"""Seconds of waiting for a free call after which a queue is said to be blocked."""


class SerialWay(Pulled):
    """Calls the handlers of one group, one call of a queue at a time."""

    run_on: float | None = None

    def __init__(self, context: WayContext) -> None:
        self.context: WayContext = context
        self.needs_lock: bool = not context.member.broadcast
        self.tasks: Tasks = Tasks(context.member.observe)
        self.deliveries: dict[SerialDelivery, None] = {}
        """Those whose runner has not ended, in the order of their opening."""
        self._executors: list[SerialExecutor] = []
        self._rated: list[RatedSerial] = []
        """Those among them that have a rate."""

    def new_executor(self, handler: Handler) -> SerialExecutor:
        """What calls this handler."""
        executor: SerialExecutor
        is_async, tokens = handler.subscription.is_async, handler.tokens
        executor = SerialOnLoop(handler) if is_async else SerialInThreads(handler, self.context.threads)
        if tokens is not None:
            executor = rated = RatedSerial(executor, tokens)
            self._rated.append(rated)
        self._executors.append(executor)
        return executor

    def in_hand(self) -> list[tuple[Handler, Any]]:
        """Every running call that has messages: its handler, and what it works on."""
        return [hand for delivery in self.deliveries if (hand := delivery.in_hand()) is not None]

    def pace(self, handler: Handler, concurrency: int, rate: float | None, batch: int | None) -> None:
        """Run this many calls of a handler at once, start this many messages a second, at most `batch` in one call."""
        for executor in self._executors:
            if executor.handler is handler:
                executor.resize(concurrency)
                if batch is not None:
                    executor.change_batch(batch)
        for rated in self._rated:
            if rated.handler is handler and rate is not None:
                rated.change_rate(rate)

    async def stop(self) -> None:
        """Cancel what can be cancelled."""
        for delivery in list(self.deliveries):
            delivery.abandon_soon()
        await self.tasks.close()
        for executor in self._executors:
            executor.stop()

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        for delivery in self.deliveries:
            delivery.abandon_soon()
        for executor in self._executors:
            executor.halt()


class SerialDelivery:
    """The messages of one session on their way, one call at a time (consumer.ways.delivery.Delivery).

    A subclass starts its runner when it is complete.
    """

    def __init__(self, process_queue: ProcessQueue[Message], lock: QueueLock, way: SerialWay) -> None:
        self.queue: MessageQueue = process_queue.message_queue
        self._process_queue, self._lock, self._way = process_queue, lock, way
        self._loop = asyncio.get_running_loop()
        self._permit = Permit(lock.lease)
        self._executor: SerialExecutor | None = None
        """That of the last call, or of the one that runs."""
        self._changed = asyncio.Event()
        """Messages came, a pause began or ended, or the delivery was ended."""
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._held = False
        self._take: Take | None = None
        """Asked during a pause whether one call may start all the same."""
        self.over: asyncio.Future[None] = self._loop.create_future()
        """Done when nothing more may start: the lock is lost, or after `end`. With an exception when it has failed."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._process_queue}>"

    def _start(self, calls: Coroutine[Any, Any, None], name: str) -> None:
        """Start the runner: `calls` calls handlers until the delivery is ended, or the lock is lost."""
        self._way.deliveries[self] = None
        self._way.context.member.pauses.watch(self.queue.topic, self._look_at_pauses)
        self._look_at_pauses()
        self._runner = self._way.tasks.start(calls, f"{name} {self.queue}")
        self._runner.add_done_callback(self._close)

    def _close(self, runner: asyncio.Task[None]) -> None:
        """The runner has ended."""
        self._way.deliveries.pop(self, None)
        self._way.context.member.pauses.unwatch(self.queue.topic, self._look_at_pauses)
        error = None if runner.cancelled() else runner.exception()
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)
            self.over.exception()  # reported already, by the owner of the runner

    def in_hand(self) -> tuple[Handler, Any] | None:
        """The running call: its handler, and what it works on."""
        executor, item = self._executor, self._permit.item
        return None if item is None or executor is None else (executor.handler, item)

    # Pauses.

    def _look_at_pauses(self) -> None:
        pauses, topic = self._way.context.member.pauses, self.queue.topic
        self._held, self._take = pauses.is_paused(topic), pauses.leave(topic)
        self._permit.withheld = self._held or self._ended.done()
        self._changed.set()

    # The end.

    def end(self, *, start_no_more: bool = False) -> None:
        """Start nothing more; the running call goes on with what it has."""
        self._permit.withheld = True
        self._changed.set()
        if not self._ended.done():
            self._ended.set_result(None)

    async def drained(self) -> None:
        """Returns when the running call has ended. Call `end` first."""
        await asyncio.wait([self._runner])

    def discard(self) -> None:
        """The session is void: acknowledge nothing of it any more."""
        self._process_queue.close()
        self.abandon_soon()

    async def abandon(self) -> bool:
        """Cancel the running call; whether it has ended. A thread goes on, and so may a handler."""
        self.abandon_soon()
        executor = None if self._permit.item is None else self._executor
        running = None if executor is None else f"handler {executor.handler.name}"
        await self._way.tasks.end([self._runner], running)
        return self._permit.item is None

    def abandon_soon(self) -> None:
        """Start nothing more; a cancellation of the running call is ours from now on."""
        self._permit.abandoned = True
        self.end()

    # What a call needs.

    async def _take_call(self, executor: SerialExecutor) -> bool:
        """Take a free call of its handler, perhaps after a wait; False, with none taken, when ended before."""
        free_calls, stalls = executor.free_calls, self._way.context.member.stalls
        if not free_calls.locked():
            return await free_calls.acquire()
        reason = f"waits for a free call of handler {executor.handler.name} (concurrency {free_calls.most})"
        stalls.blocked(self.queue, reason, patience=CALL_PATIENCE, place=OF_CALL)
        try:
            return await call_before(free_calls, self._ended)
        finally:
            stalls.moving(self.queue, place=OF_CALL)

    async def _is_usable(self) -> bool:
        """Wait until the lock is certain: True; or is lost, or the delivery ended before: False."""
        asking = self._way.tasks.start(self._lock.usable(), f"lock {self.queue}")
        await asyncio.wait([asking, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return bool(asking.result())
        asking.cancel()
        return False
