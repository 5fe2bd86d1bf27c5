"""Acknowledges popped messages, and changes their invisible time.

What ended together is acknowledged in one request, one request at a time. The invisible time is extended while a
handler runs, set to the time of the retry for a failed message, and to zero for what was not started: each change is
one request, as the protocol has none for several messages; a few run concurrently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from rocketapp.client.calls import pop
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.member import Member
from rocketapp.consumer.retry.redelivery import Redelivery, count_retry
from rocketapp.errors import BrokerError, RequestTimeoutError, RocketAppError
from rocketapp.model.event import LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.pulled import Acks, Handle
from rocketapp.state.pop_queue import HandOut, PopQueue
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure, not_taken_back, retry_level, seconds_of
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.record import Message
from rocketapp.wire.requests.pop import AckRequest, pop_retry_topic

REQUEST_TIMEOUT = 3.0
"""Seconds that a broker may take for an acknowledgement, or for a change (Java: the same)."""
_OF_ACKS, _OF_CHANGES = "ack", "nack"
"""Sources of reasons: what is handled cannot be acknowledged, and what failed cannot be hidden until its retry."""
_WIDTH = 16
"""Changes under way at once."""
_AGAIN = 1.0
"""Seconds until what was not answered is asked for again: an acknowledgement may be sent twice."""
_TO_ACK = 1.0
"""Seconds that are left for an acknowledgement when a change was not answered."""
_LOOK = 1.0
"""Seconds between looks at the messages in flight: of the least invisible time, 1.5 s are left then for a change."""
GATHER = 0.01
"""Seconds in which finished messages gather."""
_MOST = 256
"""Hand-outs that one request acknowledges at most."""
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


def _is_deleted(error: BaseException) -> bool:
    return isinstance(error, BrokerError) and error.code == ResponseCode.NO_MESSAGE


@dataclass(slots=True, eq=False)
class _Change:
    message: Message
    seconds: float
    is_last: bool
    """The message leaves: it comes again by itself. Otherwise it stays in flight."""
    when_hidden: Callable[[float], None] | None = None
    """Called when it is certain that it comes again, with the loop's time of that."""
    when_deleted: Callable[[str], None] | None = None
    """Called instead, with the broker's words, when it cannot: the broker has deleted it for its age."""
    is_untouched: bool = False
    """It was not started: when it comes again, that does not count as an attempt."""
    hand_out: HandOut = field(init=False)
    """By which the broker is asked."""


class PopAcks:
    """Acknowledges handled messages of one popped queue, and changes the invisible time of the others."""

    park: None = None

    def __init__(self, queue: MessageQueue, member: Member, redelivery: Redelivery) -> None:
        """`redelivery` stores dead letters."""
        self._about, self._member, self._redelivery = queue, member, redelivery
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        """Messages are done, and are acknowledged after a moment, with those that follow."""
        self.queue: PopQueue[Message] = PopQueue(queue, self._news.set, next(member.epochs))
        """What is in flight."""
        self._takes_batches = True
        self._sending: list[Acks] = []
        self._name = f"hide messages of {queue}"
        self._running: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(_WIDTH)
        self._ending: asyncio.Future[None] = self._loop.create_future()
        """Done when the queue is given up."""
        self._until = inf
        """When messages that were not started are left to come again by themselves, once the queue is given up."""

    def __repr__(self) -> str:
        return f"<PopAcks {self._about}: {len(self._sending)} hand-outs and {len(self._running)} changes under way>"

    # What is done.

    async def run(self) -> None:
        """Acknowledge what is done, until cancelled."""
        await self._member.repeat(self._turn, f"acknowledge {self._about}", _AGAIN)

    async def _turn(self) -> None:
        if not self._sending:  # otherwise a bug has ended the turn before
            await self._news.wait()
            await asyncio.sleep(GATHER)
        await self._send_all()

    async def ack_rest(self, patience: float) -> bool:
        """Acknowledge what is left within `patience` seconds, after `run` has ended. Returns whether brokers answered.

        Changes under way are waited for: their answers have the handles to acknowledge with.
        """
        try:
            async with asyncio.timeout(patience):
                await self._send_all()
                while self.queue.has_acks:
                    await self._news.wait()
                    await self._send_all()
        except TimeoutError:
            return False
        return True

    async def _send_all(self) -> None:
        """Acknowledge until all was answered, or has become visible again."""
        self._news.clear()
        if late := self.queue.late_acks(self._loop.time()):
            text = f"{late} messages were handled after their invisible time: another member may handle them as well"
            self._member.observe(LoopFailed(f"acknowledge {self._about}", text))
        self._sending += self.queue.take_acks()
        began = self._loop.time()
        while self._sending:
            part = self._sending[:_MOST]
            try:
                await self._send(part)
            except RocketAppError as error:
                is_final = _is_final(error)
                if not is_final and self._loop.time() - began < part[0].handle.invisible_ms / 1000:
                    count = sum(len(each.offsets) for each in self._sending)
                    text = f"{count} handled message{'s' * (count > 1)} cannot be acknowledged: {error}"
                    self._member.blocked.because(self._about, text, kind="ack", patience=_AGAIN, source=_OF_ACKS)
                    await asyncio.sleep(_AGAIN)
                    continue
                if not _is_deleted(error):  # that needs no acknowledgement any more
                    text = str(error) if is_final else f"{error}; the messages come again"
                    self._member.observe(LoopFailed(f"acknowledge {self._about}", text))
            del self._sending[: len(part)]
        self._member.blocked.moving(self._about, source=_OF_ACKS)

    async def _send(self, acks: Sequence[Acks]) -> None:
        connection = await self._member.brokers.connection(self._about.broker_name)
        is_one = len(acks) == 1 and len(acks[0].offsets) == 1
        if self._takes_batches and not is_one:
            try:
                await pop.ack_all(connection, self._member.name, self._about.topic, acks, REQUEST_TIMEOUT)
                return
            except BrokerError as error:
                if error.code in _PASSING:
                    raise
                # It may be about one of them alone. RocketMQ 5.0 knows no batches.
                self._takes_batches = error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        await self._send_single(connection, acks)

    async def _send_single(self, connection: Connection, acks: Sequence[Acks]) -> None:
        requests = [
            self._request(handle._replace(offset=offset), None) for handle, offsets in acks for offset in offsets
        ]
        asked = (pop.ack(connection, request, REQUEST_TIMEOUT) for request in requests)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        if refused:
            # One that may pass comes first: then all are sent again.
            raise min(refused, key=_is_final)

    # What is hidden for another time.

    async def keep_hidden(self) -> None:
        """Extend the invisible time of what is in flight, until cancelled."""
        await self._member.repeat(self._renew_invisibility, self._name, _AGAIN)

    async def _renew_invisibility(self) -> None:
        await asyncio.sleep(_LOOK)
        now = self._loop.time()
        # Another member has the others, or had.
        self.queue.coming = {one: until for one, until in self.queue.coming.items() if until > now}
        for message in self.queue.due(now):
            invisible = self._member.limits.of(self._about.topic).pop_invisible_time
            self._start(_Change(message, invisible, is_last=False))

    def fail(self, handler: Handler, queue: ProcessQueue[Message], message: Message, failure: Failure) -> None:
        """Hide a failed message until its retry; without one it becomes a dead letter (FailedMessages)."""
        about, redelivery = handler.subscription, self._redelivery
        level = retry_level(failure, about.retry, reconsume_times=message.reconsume_times, retries=about.retries)
        if level is None:
            # It is acknowledged when its copy is stored, and stays hidden until then.
            redelivery.store_dead_letter(handler, queue, message, failure)
            return
        delay = seconds_of(level)

        def hidden(at: float) -> None:
            self.queue.comes_again(message.message_id, at)
            count_retry(self._member, handler, message, failure, delay)

        def deleted(problem: str) -> None:
            redelivery.store_dead_letter(handler, queue, message, not_taken_back(failure, problem))

        self._start(_Change(message, delay, is_last=True, when_hidden=hidden, when_deleted=deleted))

    def give_back(self, messages: Iterable[Message]) -> None:
        """Make messages visible that were not started."""
        now, late = self._loop.time(), list[Message]()
        self._until = now + REQUEST_TIMEOUT
        for message in messages:
            if self.queue.is_over(message, now):
                late.append(message)
            else:
                self._start(_Change(message, 0.0, is_last=True, is_untouched=True))
        self._leave(late, "started")

    def end(self) -> None:
        """The queue is given up: what cannot be changed at once is left to come again when its time is over."""
        if not self._ending.done():
            self._ending.set_result(None)

    def _start(self, change: _Change) -> None:
        running = self._member.tasks.start(self._see_to(change), self._name)
        self._running.add(running)
        running.add_done_callback(self._running.discard)

    async def _see_to(self, change: _Change) -> None:
        while not (change.is_last and self.queue.is_over(change.message, self._loop.time())):
            if (hand_out := self.queue.begin_change(change.message)) is not None:
                change.hand_out = hand_out
                async with self._places:
                    await self._make(change)
                return
            if not change.is_last:
                return
            # It is being hidden anew: the time that is asked for last counts.
            await asyncio.sleep(_AGAIN / 4)
        self._leave([change.message], "hidden until their retry")

    async def settled(self) -> None:
        """Wait until the broker has answered every change, or the answers do not matter any more."""
        while self._running:
            await asyncio.wait(self._running)

    async def _make(self, change: _Change) -> None:
        while not (change.is_untouched and self._ending.done() and self._loop.time() >= self._until):
            try:
                handle, asked_at = await self._ask(change)
            except Exception as error:
                if not isinstance(error, RocketAppError):
                    self._member.failed(self._name, error)
                if _is_deleted(error) and not change.is_untouched:
                    # No other member can get it, so it stays in flight here as if it were hidden anew.
                    self.queue.changed(change.hand_out, change.hand_out.handle, self._loop.time())
                    if change.when_deleted is not None:
                        change.when_deleted(str(error))
                    return
                is_ending = self._ending.done()
                is_over = is_ending or not change.is_last or self._loop.time() >= change.hand_out.expires
                if not is_over:
                    self._blocked(str(error))
                    await asyncio.sleep(_AGAIN)
                    continue
                self.queue.changed(change.hand_out, None, self._loop.time())
            else:
                self._member.blocked.moving(self._about, source=_OF_CHANGES)
                # The broker counts from when it was asked, at the earliest: an answer may be late.
                self.queue.changed(change.hand_out, handle, asked_at)
            break
        if change.is_last:
            if change.when_hidden is not None:
                change.when_hidden(change.hand_out.expires)
            self.queue.forget(change.message)

    async def _ask(self, change: _Change) -> tuple[Handle, float]:
        """The new handle, and the loop time at which the request was sent."""
        request = self._request(change.hand_out.handle, round(change.seconds * 1000), is_untouched=change.is_untouched)
        connection = await self._member.brokers.connection(self._about.broker_name)
        # A broker that is asked twice makes two messages of one: a late answer is waited for while the message is
        # hidden. At the end there is time for an acknowledgement with the handle as it is.
        asked_at = self._loop.time()
        timeout = max(REQUEST_TIMEOUT, change.hand_out.expires - asked_at - _TO_ACK)
        coming = pop.start_change(connection, request, timeout)
        either: list[asyncio.Future[Any]] = [coming, self._ending]
        try:
            await asyncio.wait(either, timeout=REQUEST_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done() and change.is_last and not self._ending.done():
                self._blocked(f"{self._about.broker_name} has not answered yet")
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not (await asyncio.wait([coming], timeout=REQUEST_TIMEOUT))[0]:
                raise RequestTimeoutError(self._about.broker_name, f"no answer within {REQUEST_TIMEOUT:g} s of the end")
            return pop.read_change(coming.result(), connection, request), asked_at
        finally:
            coming.cancel()

    def _request(self, handle: Handle, invisible_ms: int | None, *, is_untouched: bool = False) -> AckRequest:
        """An acknowledgement, or with `invisible_ms` a change of the invisible time."""
        topic = pop_retry_topic(self._member.name, self._about.topic, handle.kind)
        return AckRequest(self._member.name, topic, handle, invisible_ms, is_untouched)

    def _leave(self, messages: Iterable[Message], what: str) -> None:
        """Their invisible time is over: they come again by themselves, and a change now would make copies."""
        found = [message for message in messages if self.queue.holds(message)]
        for message in found:
            self.queue.forget(message)
        if found:
            text = f"{len(found)} messages are left to other members: their time was over before they were {what}"
            self._member.observe(LoopFailed(f"pop {self._about}", text))

    def _blocked(self, problem: str) -> None:
        text = f"failed messages wait to be hidden until their retry: {problem}"
        self._member.blocked.because(self._about, text, kind="nack", patience=5.0, source=_OF_CHANGES)
