"""Messages of an orderly queue → their handlers, one by one, under the queue's lock.

Each assignment has one runner, so two handlers of a queue never overlap. Before every
message the lease is compared with the clock: when it is over, nothing more starts. A
message that failed is tried again in place, and nothing behind it starts before it is
done, skipped, or stored as a dead letter.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.stats import HandlerStats
from rocketapp.consumer.ways.outcomes import failures_of
from rocketapp.consumer.workers.orderly_calls import Calls, CallsInThreads, CallsOnLoop
from rocketapp.model.event import Observe, Retried
from rocketapp.state.lease import Lease
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Dead, orderly_step
from rocketapp.state.tag_table import TagTable
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message

_BURST = 256
"""Most messages that are handed to a handler's calls at once."""


class Orderly:
    """Calls the orderly handlers of one group."""

    def __init__(
        self,
        topics: Iterable[ConsumedTopic],
        all_stats: Mapping[int, HandlerStats],
        *,
        group: str,
        redelivery: Redelivery,
        unmatched: Callable[[str, int], None],
        observe: Observe,
        suspend: float,
    ) -> None:
        """`suspend`: seconds until a failed message is tried again, when its handler does not say."""
        self.group, self.redelivery, self.observe, self.suspend = group, redelivery, observe, suspend
        self.unmatched = unmatched
        self.tasks = Tasks(observe)
        self.open_deliveries: set[OrderlyDelivery] = set()
        self._calls: list[Calls] = []
        self._tables = {
            topic.topic: TagTable(
                (self._calls_of(all_stats[id(handler)]), handler.subscription.tags) for handler in topic.handlers
            )
            for topic in topics
            if topic.orderly
        }

    def _calls_of(self, stats: HandlerStats) -> Calls:
        self._calls.append(CallsOnLoop(stats) if stats.handler.subscription.is_async else CallsInThreads(stats))
        return self._calls[-1]

    def open(self, queue: ProcessQueue[Message], lease: Lease) -> OrderlyDelivery:
        """The delivery of a new assignment."""
        return OrderlyDelivery(queue, lease, self._tables[queue.message_queue.topic], self)

    def in_hand(self) -> list[tuple[HandlerStats, Any]]:
        """What every runner works on."""
        return [hand for delivery in self.open_deliveries if (hand := delivery.in_hand()) is not None]

    async def stop(self) -> None:
        """Cancel what can be cancelled."""
        for delivery in self.open_deliveries:
            delivery.ended = delivery.abandoned = True
        await self.tasks.close()
        for calls in self._calls:
            calls.stop()


class OrderlyDelivery:
    """The messages of one assignment on their way, one at a time."""

    def __init__(self, queue: ProcessQueue[Message], lease: Lease, table: TagTable[Calls], orderly: Orderly) -> None:
        self.queue, self.lease = queue, lease
        self._table, self._orderly = table, orderly
        self._loop = asyncio.get_running_loop()
        self._ready: deque[tuple[Calls | None, list[Message]]] = deque()
        self._news = asyncio.Event()
        self.ended = False
        """No further message may start."""
        self._end: asyncio.Future[None] = self._loop.create_future()
        self.abandoned = False
        """Nobody waits any more for what still runs."""
        self.item: Any = None
        """What the handler works on."""
        self._calls: Calls | None = None
        self._has_slot = False
        orderly.open_deliveries.add(self)
        self.runner = orderly.tasks.start(self._run(), f"orderly {queue.message_queue}")
        """Ends when nothing more may start: after `end`, or because the lease is over."""
        self.runner.add_done_callback(lambda _: orderly.open_deliveries.discard(self))

    @property
    def may_start(self) -> bool:
        """Whether the next handler may start."""
        return not self.ended and self._loop.time() < self.lease.trusted_until

    @property
    def is_running(self) -> bool:
        """Whether the loop still runs."""
        return self._loop.is_running()

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages that were just put into the process queue, in offset order."""
        self._ready.extend((calls, list(run)) for calls, run in self._table.runs(messages))
        self._news.set()

    def end(self) -> None:
        """Start nothing more; what runs goes on."""
        self.ended = True
        self._news.set()
        if not self._end.done():
            self._end.set_result(None)

    async def drained(self) -> None:
        """Returns when the running handler has ended; after `end`."""
        await asyncio.wait([self.runner])

    def discard(self) -> None:
        """Nobody waits any more for anything of it."""
        self.queue.close()
        self.abandoned = True
        self.end()

    async def abandon(self) -> bool:
        """Cancel the running handler; whether it has ended. A thread cannot be stopped, nor who will not hear of it."""
        self.abandoned = True
        self.end()
        hand = self.in_hand()
        await self._orderly.tasks.end([self.runner], None if hand is None else f"handler {hand[0].name}")
        return self.item is None

    def in_hand(self) -> tuple[HandlerStats, Any] | None:
        """What runs, and whose it is."""
        return None if self.item is None or self._calls is None else (self._calls.stats, self.item)

    async def _run(self) -> None:
        while await self._more(None):
            calls, messages = self._ready.popleft()
            if calls is None:
                self.queue.finish_all(messages)
                self._orderly.unmatched(self.queue.message_queue.topic, len(messages))
                continue
            self._calls = calls
            items = await self._items(calls, messages)
            await self._enter(calls)
            try:
                if not await calls.run(self, items):
                    return
            finally:
                self._leave(calls)
            # A handler that never suspends must not keep the loop for itself.
            await asyncio.sleep(0)

    async def _more(self, until: float | None) -> bool:
        """Wait for messages; False when there is nothing more to do, or the time is over."""
        while not self._ready and not self.ended:
            self._news.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._news.wait()
            except TimeoutError:
                return False
        return not self.ended

    async def _items(self, calls: Calls, messages: list[Message]) -> list[Any]:
        """What follows directly for the same handler, as single messages or as batches."""
        most, until = _BURST, 0.0
        if calls.batch is not None:
            most, until = calls.batch[0], self._loop.time() + calls.batch[1]
        while len(messages) < most:
            if self._ready:
                if self._ready[0][0] is not calls:
                    break
                messages += self._ready.popleft()[1]
            elif calls.batch is None or not await self._more(until):
                break
        if calls.batch is None:
            return messages
        return [messages[at : at + most] for at in range(0, len(messages), most)]

    async def settle(self, calls: Calls, item: Any, result: object, raised: bool) -> bool:
        """See an item through that was not simply done; False when the assignment ended before it was."""
        messages = [item] if isinstance(item, Message) else item
        while True:
            again, delay = [], 0.0
            failures = failures_of(result, raised, messages, calls.stats.handler.subscription)
            result = None  # its traceback holds on to the handler's frames, and the pause may be long
            for message, failure in zip(messages, failures, strict=True):
                if failure is None:
                    calls.stats.handled += 1
                    self.queue.finish(message)
                    continue
                retries = calls.stats.handler.subscription.retries
                step = orderly_step(
                    failure, reconsume_times=message.reconsume_times, retries=retries, suspend=self._orderly.suspend
                )
                if isinstance(step, Dead):
                    stored = self._orderly.redelivery.send_to_dlq(calls.stats, self.queue, message, failure)
                    await asyncio.wait([stored, self._end], return_when=asyncio.FIRST_COMPLETED)
                    if not stored.done():
                        return False
                    continue
                self._tell_retry(calls.stats, message, step.delay, str(failure))
                again.append(message)
                delay = max(delay, step.delay)
            if not again:
                return True
            if not await self._pause(calls, delay):
                return False
            for message in again:
                message.reconsume_times += 1
            messages = again
            outcome = await calls.once(self, again if calls.batch is not None else again[0])
            if outcome is None:
                return False
            result, raised = outcome

    def _tell_retry(self, stats: HandlerStats, message: Message, delay: float, error: str) -> None:
        stats.retried += 1
        about = self._orderly.group, stats.name, message.topic, message.message_id, message.attempt
        self._orderly.observe(Retried(*about, delay, error))

    async def _pause(self, calls: Calls, delay: float) -> bool:
        """Wait before the next attempt, without keeping other queues from the handler."""
        self._leave(calls)
        await asyncio.wait([self._end], timeout=delay)
        if self.ended:
            return False
        await self._enter(calls)
        return self.may_start

    async def _enter(self, calls: Calls) -> None:
        await calls.slots.acquire()
        self._has_slot = True

    def _leave(self, calls: Calls) -> None:
        # Who is cancelled while it waits for a slot has none to give back.
        if self._has_slot:
            self._has_slot = False
            calls.slots.release()
