"""Messages that another member, or a tool, has this one consume: the other side of `consumer.wanted_elsewhere`.

Each message gets a process queue of its own. It is judged like any other: one that fails is sent back or dead-lettered
by us, and the answer comes when it is done or a broker has stored its copy. Of a topic that is consumed in order the
owner of the queue has to try again in place, so a failure is its answer.

A member offers a message again when it has missed the answer, while its handler still runs or soon after: it is called
once. A tool asks because it wants a call, and after a while an offer means a new call: offsets may have been reset.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.pausing import Pausing
from rocketapp.consumer.ways.by_offset import ByOffset
from rocketapp.consumer.ways.delivery import NewCompletion
from rocketapp.consumer.workers.work import Completion, Work, Workers
from rocketapp.model.handler_kind import kind_of
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.tag_table import TagTable
from rocketapp.wire.record import Message, decode_record, decode_records
from rocketapp.wire.requests.direct import LATER, SUCCESS, DirectRequest, DirectResult

_KEPT = 10_000
"""Messages whose end is remembered, at most."""
_REMEMBERED = 60.0
"""Seconds for which it is: a member that has missed an answer offers the message again within a third of it."""
DONE = DirectResult(SUCCESS)
Key = tuple[str, str, int, int, str]
"""Broker, topic, queue id, offset, and the message's own id: a topic that is made anew counts from 0 again."""


class _InOrder(ByOffset):
    """Acknowledges one message of an orderly topic, or says why it failed."""

    __slots__ = ("_failed",)

    def __init__(self, process_queue: ProcessQueue[Message], handler: Handler, failed: Callable[[str], None]) -> None:
        super().__init__(process_queue, handler)
        self._failed = failed

    def judge(self, item: Any, result: object, raised: bool) -> None:
        for _, failure in self.settle(item, result, raised):
            self._failed(str(failure))


class DirectCalls:
    """Runs what others hand to this member of one group."""

    def __init__(
        self,
        *,
        tables: Mapping[str, TagTable[Workers]],
        new_completion: NewCompletion,
        pausing: Pausing,
        record: Callable[[ProcessQueue[Message], int, int], bytes],
    ) -> None:
        """`tables`: which workers take which message, by topic.

        `record(process_queue, first, last)`: what a worker notes down that takes these offsets.
        """
        self._tables, self._new_completion, self._pausing = tables, new_completion, pausing
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._running: dict[Key, asyncio.Future[DirectResult]] = {}
        self._done: OrderedDict[Key, float] = OrderedDict()
        """The loop's time when they were done, the oldest first."""
        self._stopped = False

    def __repr__(self) -> str:
        return f"<DirectCalls: {len(self._running)} running>"

    def stop(self) -> None:
        """Take nothing more; what was taken goes on."""
        self._stopped = True

    def running(self, queue: MessageQueue) -> list[asyncio.Future[Any]]:
        """What runs of this queue; each is done when its call has ended."""
        about = (queue.broker_name, queue.topic, queue.queue_id)
        return [answer for key, answer in self._running.items() if key[:3] == about]

    def take(self, message: Message, *, by_member: bool) -> asyncio.Future[DirectResult] | str:
        """What becomes of the message, later; or why it is not taken. `by_member`: a tool asks otherwise."""
        queue = message.queue
        assert queue is not None
        key = (queue.broker_name, queue.topic, queue.queue_id, message.offset, message.message_id)
        if by_member and self._loop.time() - self._done.get(key, -math.inf) < _REMEMBERED:
            answer: asyncio.Future[DirectResult] = self._loop.create_future()
            answer.set_result(DONE)
            return answer
        if key in self._running:
            return self._running[key]
        workers = self._taker(message)
        if isinstance(workers, str):
            return workers
        answer = self._running[key] = self._loop.create_future()
        answer.add_done_callback(lambda _: self._ended(key))
        self._submit(workers, queue, message, answer)
        return answer

    def _taker(self, message: Message) -> Workers | str:
        """What calls the handler of this message, or why it is not called."""
        if self._stopped:
            return "this member stops"
        if reason := self._pausing.pauses.reason(message.topic):
            return f"topic {message.topic} is {reason}"
        table = self._tables.get(message.topic)
        workers = None if table is None else table.split([message])[0][0]
        if workers is None:
            return f"no handler of this member takes tag {message.tag!r} of {message.topic}"
        if workers.handler.decisions is not None:
            # Handled is not committed, and what the call says would count for the queue that it reads meanwhile.
            return f"{workers.handler.name} commits by hand: it is called for queues of its own member alone"
        return workers

    def _ended(self, key: Key) -> None:
        answer = self._running.pop(key)
        if not answer.cancelled() and answer.result() == DONE:
            now = self._done[key] = self._loop.time()
            self._done.move_to_end(key)
            while len(self._done) > _KEPT or now - next(iter(self._done.values())) >= _REMEMBERED:
                self._done.popitem(last=False)

    def _submit(
        self, workers: Workers, queue: MessageQueue, message: Message, answer: asyncio.Future[DirectResult]
    ) -> None:
        own: ProcessQueue[Message] = ProcessQueue(queue, message.offset)
        own.put([message])

        def look() -> None:
            if not own and not answer.done():
                answer.set_result(DONE)

        def failed(reason: str) -> None:
            if not answer.done():
                answer.set_result(DirectResult(LATER, reason))

        about = workers.handler.subscription
        completion: Completion
        if kind_of(about).in_order:
            completion = _InOrder(own, workers.handler, failed)
        else:
            completion = self._new_completion(own, workers.handler, lambda _: failed("its topic was stopped"))
        own.watch(look)
        work = Work([message if workers.batch is None else [message]], completion)
        work.record = self._record(own, message.offset, message.offset)
        workers.submit(work)


def message_of(request: DirectRequest, record: bytes) -> Message:
    """The message in the record that came with the request. Raises ProtocolError."""
    found = decode_record(record)
    queue = MessageQueue(found.topic, request.broker_name, found.queue_id)
    messages = decode_records(record, queue)
    # A record may hold a batch of messages.
    return next((one for one in messages if one.offset == request.queue_offset), messages[0])
