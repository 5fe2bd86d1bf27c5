"""Forwarded messages: another member consumes a message for the owner of its queue. Both sides are here.

The owner has no handler for a message that another member wants. `Forwarder` asks that member, through the broker that
stores the message, to consume it. For the consume modes this is one more handler of the topic. The message stays
unfinished at its owner until the answer says that it is done, so it is neither lost nor overtaken in order, and needs
no second copy. Only an answer counts as an attempt: while no member takes the message, it waits, without a time limit,
and its queue says so.

The receiving member delivers it as any message (`ForwardReceiver`), so pause, rate and everything else apply. A failure
is handled there too; in order the owner has to retry in place, so the failure is the answer. Each request is answered
at once and repeated, because a broker waits for answers in threads that also serve locks. Tools and Java members cannot
repeat it, so they wait for the end of the call.

In order, the call runs under the lock of the queue's owner: the receiver asks for that lock in the owner's name before
the call, and renews it until the call has ended. The owner may be killed, or stop without waiting: its lock goes with
what may still run.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from rocketapp.client.calls.messages import consume_directly
from rocketapp.consumer.brokers import AnotherQueueError
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.member import OTHERS, Member
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.rollout.check import SubscriptionCheck
from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.callers import Callers
from rocketapp.errors import BrokerError, ConnectionLostError, ProtocolError, RequestTimeoutError, RocketAppError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import DLQ_PREFIX, retry_topic
from rocketapp.model.outcome import DeadLetter, Park, Retry
from rocketapp.model.subscription import ALL_TAGS, POPPED, kind_of
from rocketapp.state.lease import LIVES
from rocketapp.state.pauses import EVERY
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.state.tag_table import TagTable
from rocketapp.tasks import is_set_by
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.layout import decode_record
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.direct import (
    DEAD_LETTER,
    LATER,
    NOT_TAKEN,
    SUCCESS,
    TAKEN,
    DirectRequest,
    DirectResult,
)

AT_ONCE = 8
"""Messages of one topic and tag that are forwarded at the same time, and questions to one member under way."""
ANSWER_TIMEOUT = 12.0
"""Seconds that a broker may take to answer; Apache RocketMQ waits for a Java member for 10."""
_FIRST_WAIT, _LONGEST_WAIT, _LONGEST_REFUSED = 0.05, 1.0, 5.0
"""Seconds until a member is asked again that has taken the message, or that has not (the last)."""
_TELLS_FOR = 1.5
"""Seconds after an end in which a member that leaves waits until it is asked for it."""
_SOURCE = "forward"
"""Source of the reasons of messages that wait for another member."""
_TELL_AFTER = 5.0
"""Seconds after which it is said that messages wait for another member."""
QUICK = 0.02
"""Seconds in which a call may end whose end is the first answer: a broker waits in one of its few threads."""
_AGAIN = 1.0
"""Seconds until a lock that could not be renewed is asked for again."""
_KEPT = 10_000
"""Messages whose end is remembered, at most."""
_DELETED = ("no message is stored at", "java.lang.NullPointerException")
"""How a broker says that it has deleted the message, which is only here now: the embedded one, and Apache RocketMQ."""
_REMEMBERED = 60.0
"""Seconds for which it is: a member that has missed an answer asks again within a fraction of it."""


class _Place(NamedTuple):
    """Where a message is stored: identifies it at its owner and at the receiver."""

    queue: MessageQueue
    offset: int
    message_id: str
    """A topic that is made anew counts from 0 again."""


class ForwardFailedError(RocketAppError):
    """The handler of another member failed on a message."""


# The owner's side.


class Forwarder:
    """The owner's side: has other members consume what no handler here takes."""

    def __init__(self, member: Member, check: SubscriptionCheck, callers: Callers) -> None:
        self._member, self._check, self._callers = member, check, callers
        self._of: dict[tuple[str, bytes | None], Caller] = {}
        """What calls `_forward`, by topic and tag: those who take one tag may be paused, and hold up no other one. Tags
        that no member names have one caller together."""
        self._topics = {topic.topic: topic for topic in member.topics}
        self._waiting: defaultdict[MessageQueue, set[_Place]] = defaultdict(set)
        """By queue the messages that were not done at once."""
        self._at: dict[_Place, str] = {}
        """The member that has taken a message, or may have, until its answer says what became of it."""
        self._questions: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By member: one that does not answer holds up no other one."""

    def __repr__(self) -> str:
        waiting = sum(map(len, self._waiting.values()))
        return f"<Forwarder of {self._member.name}: {len(self._at)} taken, {waiting} waiting>"

    def may_run(self, queue: MessageQueue) -> bool:
        """Whether another member may still run a call of this queue: cancelled here is not ended there."""
        return any(place.queue == queue for place in self._at)

    def caller(self, topic: str, message: Message) -> Caller | None:
        """The caller that forwards such a message; None: no other member wants it either."""
        tag = message.raw_tag()
        if not self._check.is_wanted(topic, tag):
            return None
        key = topic, tag if self._check.others.name(topic, tag) else None
        if key not in self._of:
            self._of[key] = self._callers.one(self._handler(topic))
        return self._of[key]

    def _handler(self, topic: str) -> Handler:
        """What is called with the messages of this topic: single ones, otherwise as its own handlers."""
        if (known := self._topics.get(topic)) is not None:
            about = known.handlers[0].subscription
        else:
            # Messages of a topic that only others subscribe come for a retry, out of order.
            some = next(iter(self._topics.values())).handlers[0].subscription
            retries = self._member.config.retries
            about = replace(some, topic=topic, retries=retries, orderly=False, order_by=None, every=None)
        about = replace(
            about,
            tags=frozenset(),
            expression=ALL_TAGS,
            batch=None,
            concurrency=AT_ONCE,
            concurrency_most=0,
            timeout=None,
            is_async=True,
            handler_name=OTHERS,
            retry=None,
            idempotent=False,
            rate=None,
        )
        return Handler(about, self._forward, self._member.stats.others[topic], runs_here=False)

    async def _forward(self, message: Message) -> None:
        """Returns when a member has done the message, or no member wants it any more."""
        place = _place_of(message)
        try:
            await self._offer(message, place)
        finally:
            self._wait_no_more(place)

    async def _offer(self, message: Message, place: _Place) -> None:
        wait, turn, tag = _FIRST_WAIT, message.offset, message.raw_tag()
        queue, is_locked, is_lost = self._member.owned_as(place.queue), self._is_locked(message, place.queue), False
        while (takers := await self._check.takers(message.topic, tag)) or self._check.is_wanted(message.topic, tag):
            # As long as one may be at it, no other one is asked, though its broker does not see it.
            at = self._at.get(place)
            # In order the end of that call is waited for, as that of a call of our own.
            may_run = at in takers and is_locked and not is_lost
            is_gone = not self._check.is_listed(at)  # among the takers it may be for a while
            if (not may_run and self._is_void(queue, message)) or (
                is_gone and place in self._waiting[queue] and self._member.owned[queue].is_ending
            ):
                if at is not None:  # who had taken it is gone, and may run on for as long as the lock lives
                    asyncio.get_running_loop().call_later(LIVES, self._forget, place, at)
                raise Park(_LONGEST_WAIT, "its queue is given back")  # no attempt: the next owner of the queue has it
            if not takers:
                self._wait(place, "a member that may want it has not said yet what it subscribes")
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT)
                continue
            member = at if at in takers else takers[turn % len(takers)]
            async with self._questions.setdefault(member, asyncio.Semaphore(AT_ONCE)):
                try:
                    answer, is_lost = await self._ask(message, place, member), False
                except AnotherQueueError as other:
                    answer, is_lost = DirectResult(NOT_TAKEN, str(other)), True
            if answer.result == SUCCESS:
                self._member.stats.forwarded += 1
                return
            if answer.result == DEAD_LETTER:
                raise DeadLetter(f"member {member}: {answer.remark}")
            if answer.result == LATER:
                error = ForwardFailedError(f"member {member}: {answer.remark or answer.result}")
                raise error if answer.after is None else Retry(after=answer.after) from error
            is_taken = place in self._at
            if is_taken and at is None:
                wait = _FIRST_WAIT  # its end is asked for anew, however long the message had to wait before
            problem = f"member {member} {'has not ended yet' if is_taken else 'does not take it'}"
            self._wait(place, problem + (f": {answer.remark}" if answer.remark else ""))
            await asyncio.sleep(wait)
            turn += not is_taken
            wait = min(2 * wait, _LONGEST_WAIT if is_taken else _LONGEST_REFUSED)
        self._at.pop(place, None)
        self._member.stats.unmatched[message.topic] += 1

    def _forget(self, place: _Place, member: str) -> None:
        if self._at.get(place) == member:
            del self._at[place]

    def _is_void(self, queue: MessageQueue, message: Message) -> bool:
        """Whether the message's session is over: nobody waits for it, and another message may be in its place."""
        owned = self._member.owned.get(queue)
        held = None if owned is None else owned.process_queue
        return held is None or held.closed or not held.holds(message)

    def _is_locked(self, message: Message, queue: MessageQueue) -> bool:
        known = self._topics.get(message.topic)
        return known is not None and known.needs_lock and message.topic == queue.topic

    async def _ask(self, message: Message, place: _Place, member: str) -> DirectResult:
        """Ask a member about the message. Raises AnotherQueueError when its broker lost it."""
        queue = place.queue
        request = DirectRequest(
            self._member.name,
            member,
            message.offset_message_id,
            queue.topic,
            queue.broker_name,
            message.offset,
            message.reconsume_times,
            self._member.client_id if self._is_locked(message, queue) else "",
        )
        was_at = self._at.get(place)
        self._at[place] = member
        try:
            connection = await self._member.brokers.holding(message, queue)
            answer = await consume_directly(connection, request, ANSWER_TIMEOUT)
        except (RequestTimeoutError, ConnectionLostError) as error:
            return DirectResult(TAKEN, str(error))
        except RocketAppError as error:
            # It was not reached. What it took before may run all the same; Java's members take a while to answer.
            may_run = isinstance(error, BrokerError) and error.code == ResponseCode.CONSUME_MSG_TIMEOUT
            if was_at != member and not may_run:
                self._at.pop(place, None)
            if isinstance(error, AnotherQueueError):
                raise
            remark = error.remark if isinstance(error, BrokerError) else ""
            is_deleted = was_at != member and remark.startswith(_DELETED)
            return DirectResult(DEAD_LETTER if is_deleted else NOT_TAKEN, remark or str(error))
        if answer.result != TAKEN:
            self._at.pop(place, None)
        return answer

    def _wait(self, place: _Place, problem: str) -> None:
        queue = self._member.owned_as(place.queue)
        waiting = self._waiting[queue]
        waiting.add(place)
        count = len(waiting)
        text = (
            f"{count} message{'s' * (count > 1)} that this app has no handler for wait{'s' * (count == 1)}: {problem}"
        )
        self._member.blocked.because(queue, text, kind="forward", patience=_TELL_AFTER, source=_SOURCE)

    def _wait_no_more(self, place: _Place) -> None:
        queue = self._member.owned_as(place.queue)
        waiting = self._waiting[queue]
        waiting.discard(place)
        if not waiting:
            del self._waiting[queue]
            self._member.blocked.moving(queue, source=_SOURCE)


# The side of the member that is asked.


class _Call:
    """One forwarded message. A failure of an ordered, popped or dead-letter message is reported to the owner."""

    def __init__(
        self, place: _Place, message: Message, handler: Handler, redelivery: Redelivery, *, is_replay: bool
    ) -> None:
        self.message, self.handler, self._redelivery = message, handler, redelivery
        kind = kind_of(handler.subscription)
        self._tells_failures = is_replay or kind.in_order or kind is POPPED
        self.answer: asyncio.Future[DirectResult] = asyncio.get_running_loop().create_future()
        # Where it lies, also as a dead letter. From 0: of what lies below in its queue nothing is known to be done.
        self.own: ProcessQueue[Message] = ProcessQueue(place.queue, 0)
        self.delivery: Any = None
        """Of the concurrent mode, which lies above. None: its handler may not be called yet."""
        self._if_empty = DirectResult(SUCCESS)
        """What it means that the message has left its process queue."""

    def end(self, result: DirectResult) -> None:
        """Set the result. Later results are ignored."""
        if not self.answer.done():
            self.answer.set_result(result)

    def look(self) -> None:
        """Check whether its message was finished."""
        if not self.own:
            self.end(self._if_empty)

    def fail(self, handler: Handler, queue: ProcessQueue[Message], message: Message, failure: Failure) -> None:
        """The call failed: report it to the owner, or handle it here."""
        if not self._tells_failures:
            self._redelivery.fail(handler, queue, message, failure)
            return
        self.end(DirectResult(DEAD_LETTER if failure.dead else LATER, str(failure), failure.after))

    def park(self, _messages: Sequence[Message], _after: float) -> None:
        """The message is parked: its handler has paused the topic, or another copy is being handled."""
        self.own.close()
        self.end(DirectResult(NOT_TAKEN, f"{self.handler.name} has parked it, or stopped topic {self.message.topic}"))

    def withdraw(self, why: str) -> None:
        """Give it back, unless its handler runs."""
        done, self._if_empty = self._if_empty, DirectResult(NOT_TAKEN, why)
        if self.delivery is None:
            self.end(self._if_empty)
        else:
            self.delivery.end()
            self._if_empty = done


class ForwardReceiver:
    """The receiver's side: consumes messages for other members, and for tools."""

    def __init__(self, member: Member, mode: Any) -> None:
        """`mode`: the concurrent one. Order is kept by the owner, which forwards one message after another."""
        self._member, self._mode = member, mode
        # What a plugin consumes is not done when its handler returns.
        self._tables = {topic.topic: TagTable(mode.takers[topic.topic]) for topic in member.topics if topic.by_message}
        self._loop = asyncio.get_running_loop()
        self._running: dict[_Place, _Call] = {}
        self._ended: OrderedDict[tuple[_Place, int, str], tuple[float, DirectResult]] = OrderedDict()
        """By message, attempt and replay the loop's time when it ended, and how; the oldest first."""
        self._untold: set[_Place] = set()
        """Messages whose owner has not asked since they have ended."""
        self._stopped = False
        member.pauses.watch(EVERY, self._withdraw_paused)

    def __repr__(self) -> str:
        return f"<ForwardReceiver of {self._member.name}: {len(self._running)} taken>"

    def stop(self) -> None:
        """Accept nothing more, and give back what was not started; running calls go on."""
        self._stopped = True
        self._member.pauses.unwatch(EVERY, self._withdraw_paused)
        for call in list(self._running.values()):
            call.withdraw("this member stops")

    async def told(self, cut: asyncio.Event) -> None:
        """Wait until owners have asked for the results of ended calls: nobody else knows them.

        A living owner asks once a second, so results older than a second and a half are not waited for; none once `cut`
        is set.
        """
        while self._untold and self._loop.time() < next(reversed(self._ended.values()))[0] + _TELLS_FOR:
            if await is_set_by(cut, self._loop.time() + QUICK):
                return

    async def take(self, request: DirectRequest, record: bytes) -> DirectResult:
        """The result for a message. A member of ours gets an answer at once: the result, or that it was accepted."""
        try:
            message = message_of(request, record)
        except ProtocolError as error:
            return DirectResult(NOT_TAKEN, str(error))
        place, patience = _place_of(message), QUICK
        if place.queue.topic.startswith(DLQ_PREFIX):
            # Its handler gets it as it gets a retry: by the topic in which it was published.
            message.queue = place.queue._replace(topic=retry_topic(self._member.name))
        if request.is_by_member and (known := self._end_of(place, request)) is not None:
            self._untold.discard(place)
            return known
        if (call := self._running.get(place)) is not None:
            patience = 0.0  # for a tool, the end of that call is the answer too
        else:
            handler = self._handler_of(message)
            if isinstance(handler, str):
                return DirectResult(NOT_TAKEN, handler)
            call = self._begin(place, message, handler, request)
        await asyncio.wait([call.answer], timeout=patience if request.is_by_member else None)
        result = call.answer.result() if call.answer.done() else DirectResult(TAKEN)
        if result.result != TAKEN:
            self._untold.discard(place)
        # A tool knows Java's words alone.
        return result if request.is_by_member or result.result == SUCCESS else DirectResult(LATER, result.remark)

    def _end_of(self, place: _Place, request: DirectRequest) -> DirectResult | None:
        """The result of a recent call of this message. Later an offer means a new call: offsets may have been reset."""
        at, result = self._ended.get((place, request.attempts, request.replay), (-math.inf, None))
        return result if self._loop.time() - at < _REMEMBERED else None

    def _handler_of(self, message: Message) -> Handler | str:
        """The handler of this message, or why it is not called."""
        if self._stopped:
            return "this member stops"
        if reason := self._member.pauses.reason(message.topic):
            return f"topic {message.topic} is {reason}"
        table = self._tables.get(message.topic)
        caller = None if table is None else table.takers([message])[0]
        if caller is None:
            return f"no handler of this member takes tag {message.tag!r} of {message.topic}"
        handler: Handler = caller.handler
        if not handler.runs_here:
            # Handled is not committed, and what the call says would count for the queue that it reads meanwhile.
            return f"{handler.name} commits by hand: it is called for queues of its own member alone"
        return handler

    def _begin(self, place: _Place, message: Message, handler: Handler, request: DirectRequest) -> _Call:
        if request.is_by_member:
            message.reconsume_times = request.attempts
        redelivery = self._mode.context.redelivery
        call = self._running[place] = _Call(place, message, handler, redelivery, is_replay=bool(request.replay))
        call.answer.add_done_callback(lambda _: self._has_ended(place, request, call))
        if request.locked_by:
            self._member.tasks.start(self._under_lock(call, request.locked_by), f"lock {place.queue}")
        else:
            self._deliver(call)
        return call

    def _deliver(self, call: _Call) -> None:
        call.delivery = self._mode.open(call.own, call)
        call.own.put([call.message])
        call.own.watch(call.look)
        call.delivery.deliver([call.message])

    async def _under_lock(self, call: _Call, owner: str) -> None:
        """Call the handler once the owner's lock is certain, and renew the lock until the call has ended."""
        queue, config = call.own.message_queue, self._member.config
        while not call.answer.done():
            try:
                held = await self._member.brokers.lock(queue.broker_name, [queue], owner=owner)
                problem = "" if held else "another member holds the lock of its queue"
            except RocketAppError as error:
                problem = f"the lock of its queue cannot be renewed: {error}"
            if call.delivery is None and not call.answer.done():
                if problem:
                    call.end(DirectResult(NOT_TAKEN, problem))
                else:
                    self._deliver(call)
            await asyncio.wait([call.answer], timeout=_AGAIN if problem else config.lock_renew_interval)

    def _withdraw_paused(self) -> None:
        for call in list(self._running.values()):
            if reason := self._member.pauses.reason(call.message.topic):
                call.withdraw(f"topic {call.message.topic} is {reason}")

    def _has_ended(self, place: _Place, request: DirectRequest, call: _Call) -> None:
        del self._running[place]
        if call.delivery is not None:
            call.delivery.end()
        if (result := call.answer.result()).result == NOT_TAKEN:
            return
        now, key = self._loop.time(), (place, request.attempts, request.replay)
        self._ended[key] = now, result
        self._ended.move_to_end(key)
        if request.is_by_member:
            self._untold.add(place)
        while len(self._ended) > _KEPT or now - next(iter(self._ended.values()))[0] >= _REMEMBERED:
            (old, *_), _ = self._ended.popitem(last=False)
            self._untold.discard(old)


def message_of(request: DirectRequest, record: bytes) -> Message:
    """The message in the record that came with the request. Raises ProtocolError."""
    found = decode_record(record)
    # Its owner knows the topic better than the record: popped messages that come again lie in another one.
    topic = request.topic if request.is_by_member else found.topic
    queue = MessageQueue(topic, request.broker_name, found.queue_id)
    messages = decode_records(record, queue)
    # A record may hold a batch of messages.
    return next((one for one in messages if one.offset == request.queue_offset), messages[0])


def _place_of(message: Message) -> _Place:
    assert message.queue is not None
    return _Place(message.queue, message.offset, message.message_id)
