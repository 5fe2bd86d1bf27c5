"""Acknowledges handled messages: what ended together in one request, one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rocketapp.client.calls import pop
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.member import Member
from rocketapp.consumer.pop.hiding import REQUEST_TIMEOUT, Hiding
from rocketapp.consumer.retry.breaker import Stopping
from rocketapp.consumer.retry.redelivery import Redelivery, count_retry
from rocketapp.consumer.stalls import OF_ACK
from rocketapp.consumer.ways.by_offset import ByOffset
from rocketapp.consumer.ways.delivery import Keep
from rocketapp.errors import BrokerError, RocketAppError
from rocketapp.model.event import LoopFailed
from rocketapp.model.pulled import Acks
from rocketapp.state.policy import delay_before
from rocketapp.state.pop_queue import PopQueue
from rocketapp.state.redelivery import Dead, Failure, concurrent_step
from rocketapp.state.retry_times import LATE
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.record import Message
from rocketapp.wire.requests.pop import AckRequest, pop_retry_topic

GATHER = 0.01
"""Seconds in which finished messages gather."""
_MOST = 256
"""Hand-outs of one request."""
_AGAIN = 1.0
"""Seconds until an acknowledgement that was not answered is sent again: it may be sent twice."""
_PASSING = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
    }
)
"""Refusals that may pass. Others say that the message is gone, or comes again whatever we do."""


def _is_final(error: BaseException) -> bool:
    return isinstance(error, BrokerError) and error.code not in _PASSING


class Acknowledging:
    """The acknowledgements of one popped queue."""

    def __init__(self, member: Member) -> None:
        self._member, self._group = member, member.name
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._takes_batches = True
        self._sending: list[Acks] = []

    def __repr__(self) -> str:
        return f"<Acknowledging of {self._group}: {len(self._sending)} hand-outs under way>"

    def prompt(self) -> None:
        """Something is done."""
        self._news.set()

    async def run(self, queue: PopQueue[Message]) -> None:
        """Acknowledge what is done, until this is cancelled."""
        while True:
            await self._news.wait()
            await asyncio.sleep(GATHER)
            try:
                await self._send_all(queue)
            except Exception as error:
                # A bug must not end the acknowledgements for good without a report.
                self._member.observe(
                    LoopFailed(f"acknowledge {queue.message_queue}", f"{type(error).__name__}: {error}")
                )
                await asyncio.sleep(_AGAIN)
                self._news.set()

    async def finally_(self, queue: PopQueue[Message], patience: float) -> bool:
        """Acknowledge all that is left, within `patience` seconds; whether brokers have answered. `run` has ended.

        What is being hidden anew is waited for: the broker's answer says by which handle it is acknowledged.
        """
        try:
            async with asyncio.timeout(patience):
                await self._send_all(queue)
                while queue.has_acks:
                    await self._news.wait()
                    await self._send_all(queue)
        except TimeoutError:
            return False
        return True

    async def _send_all(self, queue: PopQueue[Message]) -> None:
        """Until all was answered, or comes again because its time is over."""
        self._news.clear()
        if late := queue.late_acks(self._loop.time()):
            text = f"{late} messages were handled after their invisible time: another member may handle them as well"
            self._member.observe(LoopFailed(f"acknowledge {queue.message_queue}", text))
        self._sending += queue.take_acks()
        began = self._loop.time()
        while self._sending:
            part = self._sending[:_MOST]
            try:
                await self._send(queue, part)
            except RocketAppError as error:
                if _is_final(error):
                    self._member.observe(LoopFailed(f"acknowledge {queue.message_queue}", str(error)))
                elif self._loop.time() - began < part[0].handle.invisible_ms / 1000:
                    count = sum(len(each.offsets) for each in self._sending)
                    text = f"{count} handled message{'s' * (count > 1)} cannot be acknowledged: {error}"
                    self._member.stalls.blocked(queue.message_queue, text, kind="ack", patience=_AGAIN, place=OF_ACK)
                    await asyncio.sleep(_AGAIN)
                    continue
                else:
                    text = f"{error}; the messages come again"
                    self._member.observe(LoopFailed(f"acknowledge {queue.message_queue}", text))
            del self._sending[: len(part)]
        self._member.stalls.moving(queue.message_queue, place=OF_ACK)

    async def _send(self, queue: PopQueue[Message], acks: Sequence[Acks]) -> None:
        about = queue.message_queue
        connection = await self._member.brokers.connection(about.broker_name)
        is_one = len(acks) == 1 and len(acks[0].offsets) == 1
        if self._takes_batches and not is_one:
            try:
                await pop.ack_all(connection, self._group, about.topic, acks, REQUEST_TIMEOUT)
                return
            except BrokerError as error:
                if error.code in _PASSING:
                    raise
                # It may be about one of them alone. RocketMQ 5.0 knows no batches.
                self._takes_batches = error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        await self._send_single(connection, about.topic, acks)

    async def _send_single(self, connection: Connection, topic: str, acks: Sequence[Acks]) -> None:
        requests = [
            AckRequest(
                self._group, pop_retry_topic(self._group, topic, handle.kind), handle._replace(offset=offset), None
            )
            for handle, offsets in acks
            for offset in offsets
        ]
        asked = (pop.ack(connection, request, REQUEST_TIMEOUT) for request in requests)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        if refused:
            # One that may pass comes first: then all are sent again.
            raise min(refused, key=_is_final)


class Judging(ByOffset):
    """Acknowledges messages one by one: offsets mean nothing here."""

    __slots__ = ("_hiding", "_keep", "_member", "_now", "_queue", "_redelivery", "_stopping")

    def __init__(
        self,
        queue: PopQueue[Message],
        handler: Handler,
        keep: Keep,
        *,
        hiding: Hiding,
        member: Member,
        redelivery: Redelivery,
        stopping: Stopping,
    ) -> None:
        """`keep` takes a message that is started again when its topic is resumed."""
        super().__init__(queue, handler)
        self._queue, self._keep = queue, keep
        self._hiding, self._member = hiding, member
        self._redelivery, self._stopping = redelivery, stopping
        self._now = asyncio.get_running_loop().time

    def judge(self, item: Any, result: object, raised: bool) -> None:
        """Acknowledge what one call has done; the other messages come again, or are dead."""
        for message, failure in self.settle(item, result, raised):
            self._stopping.failed(self._handler, failure)
            if failure.stop:
                self._keep(message)
            else:
                self._fail(message, failure)

    def _fail(self, message: Message, failure: Failure) -> None:
        about, times = self._handler.subscription, message.reconsume_times
        delay = delay_before(about.retry, times)
        step = concurrent_step(failure, reconsume_times=times, retries=about.retries, delay=delay)
        redelivery, handler = self._redelivery, self._handler
        if isinstance(step, Dead):
            # It is acknowledged when its copy is stored, and stays hidden until then.
            redelivery.send_to_dlq(handler, self._queue, message, failure)
            return

        def settled() -> None:
            at = self._now() + step.delay
            self._hiding.comes_again(at)
            redelivery.due_until = max(redelivery.due_until, at + LATE)
            count_retry(self._member, handler, message, failure, step.delay)

        self._hiding.until_retry(message, step.delay, settled)
