"""Pop: hand messages out now or later, acknowledge them, hide them for longer.

Codes POP_MESSAGE 200050, ACK_MESSAGE 200051, CHANGE_MESSAGE_INVISIBLETIME 200053, NOTIFICATION 200054,
BATCH_ACK_MESSAGE 200151 (Java: PopMessageProcessor, PopLongPollingService, AckMessageProcessor,
ChangeInvisibleTimeProcessor, NotificationProcessor).
What one pop finds another one does not: a message wakes one held pop of each group, the one that waits longest, and
one of those who only want to be told that there is something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from rocketapp.broker.core import Core
from rocketapp.broker.filtering import Filter, asked_filter
from rocketapp.broker.long_poll import LONGEST, HeldRequest, LongPoll
from rocketapp.broker.pop import MOST_CHECKPOINTS, Popped, Pops
from rocketapp.broker.pop_checkpoints import Key
from rocketapp.broker.store.stored import Stored, TagsCodes
from rocketapp.errors import BrokerError
from rocketapp.model.names import topic_problem
from rocketapp.model.pulled import Acks
from rocketapp.transport.answers import (
    CONSUME,
    DONE,
    KEYS_ARE_ENOUGH,
    REFUSES,
    Answer,
    answers,
    response_of,
)
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.pop import (
    MOST_MESSAGES,
    OF_RETRY,
    ORDERLY,
    AckRequest,
    PopRequest,
    PopResponse,
    decode_acks,
    pop_retry_topic,
)

MOST_AT_ONE_PLACE = 1024
"""Most held pops of one group, topic and queue id (Java: popPollingSize)."""
_LATE_MS = 500
_KNOWS_SUSPEND = 513
"""The version that answers to pops name, V5_5_0: from it on, giving a message back can be no attempt."""


class _Place(NamedTuple):
    """The group and queue id (-1: any) that held requests of one topic ask for."""

    group: str
    queue_id: int
    is_notified: bool = False
    """Whether they only want to be told."""


_Held = HeldRequest[_Place, PopRequest]


class PopProcessor:
    """Answers pops, acknowledgements and changes of the invisible time."""

    def __init__(self, core: Core, pops: Pops, loop: asyncio.AbstractEventLoop) -> None:
        self._core, self._pops, self._loop = core, pops, loop
        self.held: LongPoll[_Place, PopRequest] = LongPoll(loop, self._run_again)
        """Pops that wait for a message, and notifications, which only tell that there is one."""
        self._tags_codes = TagsCodes()

    # Requests.

    @answers(RequestCode.POP_MESSAGE, needs=CONSUME, slave=REFUSES)
    def pop(self, connection: Connection, command: Command) -> Answer:
        held = self._asked(connection, command, PopRequest.from_fields(command.fields))
        return self._run(held, is_first=True)

    @answers(RequestCode.NOTIFICATION, needs=CONSUME)
    def notify(self, connection: Connection, command: Command) -> Answer:
        """Answered when there is a message, or when the time of the request is over."""
        held = self._asked(connection, command, PopRequest.of_looking(command.fields))
        return self._tell(held, is_first=True)

    def _asked(self, connection: Connection, command: Command, request: PopRequest) -> _Held:
        place = _Place(request.group, request.queue_id, command.code == RequestCode.NOTIFICATION)
        deadline = self._loop.time() + min(request.poll_ms / 1000, LONGEST)
        return _Held(connection, command, request, self._check(request), request.topic, place, deadline)

    @answers(RequestCode.ACK_MESSAGE, needs=CONSUME, slave=REFUSES, reads=AckRequest)
    def ack(self, request: AckRequest) -> Answer:
        self._check_offset(request)
        key = Key.of(request.group, request.topic, request.handle)
        return self._acknowledge([(key, Acks(request.handle, [request.handle.offset]))])

    @answers(RequestCode.BATCH_ACK_MESSAGE, needs=KEYS_ARE_ENOUGH, slave=REFUSES)
    def ack_all(self, connection: Connection, command: Command) -> Answer:
        if not command.body:
            raise BrokerError(ResponseCode.NO_MESSAGE, "the batch has no acknowledgements")
        found = decode_acks(command.body)
        return self._acknowledge(
            [
                (Key.of(group, pop_retry_topic(group, topic, one.handle.kind), one.handle), one)
                for group, topic, one in found
            ]
        )

    def _acknowledge(self, acks: list[tuple[Key, Acks]]) -> Answer:
        try:
            self._pops.ack(acks, self._core.now_ms())
        finally:
            for key, (handle, _) in acks:
                if handle.revive_queue == ORDERLY:  # who waits for the queue looks again
                    self._wake(key.topic, key.group, key.queue_id)
        return DONE

    @answers(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, needs=CONSUME, slave=REFUSES, reads=AckRequest)
    def change(self, request: AckRequest) -> Answer:
        if request.invisible_ms is None or request.invisible_ms < 0:
            raise BrokerError(ResponseCode.INVALID_PARAMETER, f"invisibleTime {request.invisible_ms} is not a time")
        self._check_offset(request, is_end_legal=False)
        revive_queue = request.handle.revive_queue
        popped_ms, invisible_ms = self._pops.hide(request, self._core.now_ms())
        if revive_queue == ORDERLY:
            self._wake(request.topic, request.group, request.handle.queue_id)
        return PopResponse(popped_ms, invisible_ms, revive_queue, 0)

    # What else happens.

    def follow(self, records: Sequence[Stored]) -> None:
        """Messages were stored: one held pop of each group looks for each, in the next turn of the loop."""
        for stored in records if self.held.by_topic else ():
            topic, queue_id = stored.topic, stored.queue_id
            if topic in self.held.by_topic and stored.is_queued:
                tags_code = self._tags_codes.of(topic, queue_id, stored.raw_properties, stored.stored_ms)
                self._wake(topic, None, queue_id, tags_code)

    def come_again(self, group: str, retry_topic: str) -> None:
        """Messages were stored in a retry topic of pop: held pops of the group look for them."""
        for topic in list(self.held.by_topic):
            if pop_retry_topic(group, topic, OF_RETRY) == retry_topic:
                self._wake(topic, group)

    # Checks.

    def _check(self, request: PopRequest) -> Filter:
        """Check a pop in Apache's order; raise BrokerError or return its filter."""
        core = self._core
        now_ms = core.now_ms() - int(core.clock.ahead * 1000)  # as members of this machine have it
        if request.born_ms and now_ms - request.born_ms - request.poll_ms > _LATE_MS:
            raise BrokerError(ResponseCode.POLLING_TIMEOUT, "the broker pop message is timeout too much")
        if not 0 < request.max_messages <= MOST_MESSAGES:
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER, f"the broker pop message's num is greater than {MOST_MESSAGES}"
            )
        core.check_readable(request.topic, request.queue_id, "peeking")
        if not core.group(request.group).consume_enable:
            raise BrokerError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {request.group}")
        problem = topic_problem(pop_retry_topic(request.group, request.topic, OF_RETRY))
        if problem is not None or request.invisible_ms < 0:
            raise BrokerError(ResponseCode.INVALID_PARAMETER, problem or f"invisibleTime {request.invisible_ms}")
        return asked_filter(request.topic, request.expression, request.expression_type)

    def _check_offset(self, request: AckRequest, *, is_end_legal: bool = True) -> None:
        core, (queue_id, offset) = self._core, request.handle[-2:]
        topic = core.known_topic(request.topic)
        if not 0 <= queue_id < topic.read_queues:
            raise BrokerError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{request.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queues}]",
            )
        first, end = core.store.min_offset(request.topic, queue_id), core.store.max_offset(request.topic, queue_id)
        if not first <= offset < end + is_end_legal:
            raise BrokerError(ResponseCode.NO_MESSAGE, f"offset {offset} is not between {first} and {end}")

    # Answering and holding.

    def _run(self, held: _Held, *, is_first: bool = False) -> Command | None:
        """The response to a pop; None when it is held."""
        pops, request = self._pops, held.request
        if len(pops.log.open) >= MOST_CHECKPOINTS:
            return _answer(held, ResponseCode.POLLING_FULL, "too many messages are handed out and not acknowledged")
        popped = pops.pop(request, held.wanted, self._core.now_ms())
        if popped.body:
            if popped.answer.rest:  # another one may have it
                self._wake(request.topic, request.group)
            return _answer(held, ResponseCode.SUCCESS, "FOUND", popped)
        if self._loop.time() >= held.deadline:
            return _answer(held, ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE", popped)
        if is_first and not self._may_hold(held):
            return _answer(held, ResponseCode.POLLING_FULL, "too many pops are held", popped)
        self._hold(held, popped.free_ms)
        if popped.is_more:
            self.held.wake([held])
        return None

    def _tell(self, held: _Held, *, is_first: bool = False) -> Command | None:
        """The response to a NOTIFICATION request; None when it is held."""
        has_any, free_ms = self._pops.has_any(held.request, self._core.now_ms())
        is_full = is_first and held.request.poll_ms > 0 and not self._may_hold(held)
        if not has_any and not is_full and self._loop.time() < held.deadline:
            self._hold(held, free_ms)
            return None
        fields = {"hasMsg": str(has_any).lower(), "pollingFull": str(is_full and not has_any).lower()}
        return response_of(held.command, fields)

    def _run_again(self, held: _Held) -> Command | None:
        self._core.known_topic(held.topic)
        return self._tell(held) if held.place.is_notified else self._run(held)

    def _may_hold(self, held: _Held) -> bool:
        waiting = self.held.by_topic.get(held.topic, {}).get(held.place, ())
        return len(waiting) < MOST_AT_ONE_PLACE and self.held.has_room(held.connection)

    def _hold(self, held: _Held, free_ms: int) -> None:
        """Hold it until its deadline, or until a queue that is popped in order is free."""
        free = self._loop.time() + (free_ms - self._core.now_ms()) / 1000 if free_ms else held.deadline
        self.held.hold(held, min(held.deadline, free))

    def _wake(self, topic: str, group: str | None, queue_id: int = -1, tags_code: int | None = None) -> None:
        """Wake one held request in each place: of any group or this one, of any queue or this one."""
        for place, waiting in list(self.held.by_topic.get(topic, {}).items()):
            if group in (None, place.group) and (queue_id < 0 or place.queue_id in (-1, queue_id)):
                takers = (held for held in waiting if tags_code is None or held.takes(tags_code))
                self.held.wake([first] if (first := next(takers, None)) else [])


def _answer(held: _Held, code: int, remark: str, popped: Popped | None = None) -> Command:
    """The response to a pop. Members read its times, whatever the code."""
    answer, body = (PopResponse(0, 0, 0, 0), b"") if popped is None else popped[:2]
    response = Command.response(held.command, code, fields=answer.to_fields(), body=body, remark=remark)
    response.version = _KNOWS_SUSPEND
    return response
