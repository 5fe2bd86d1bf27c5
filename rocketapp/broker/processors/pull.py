"""Pulls: check, read, and hold a pull that found nothing.

Codes PULL_MESSAGE 11, LITE_PULL_MESSAGE 361 (Java: PullMessageProcessor, PullRequestHoldService).
The store is read and the pull is held in one step of the loop, so no message can arrive in between.
A woken pull is run again once and then answered, even when it finds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rocketapp.broker.core import Core
from rocketapp.broker.filtering import Filter, asked_filter, read_filtered
from rocketapp.broker.long_poll import LONGEST, HeldRequest, LongPoll
from rocketapp.broker.store.reading import ReadStatus
from rocketapp.broker.store.stored import Stored, TagsCodes
from rocketapp.errors import BrokerError
from rocketapp.transport.answers import CONSUME, Answer, answers
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.pull import FLAG_COMMIT, FLAG_SUBSCRIPTION, FLAG_SUSPEND, PullRequest, PullResponse

MOST_BYTES = 262_144
"""Most bytes of one pull; its first message may be larger (Java: maxTransferBytesOnMessageInMemory)."""

_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
}
"""All others: the offset is moved. At offset 0 a queue that has no message yet is one to wait at."""
_NO_QUEUE = ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE
_CODES_AT_ZERO = _CODES | dict.fromkeys(_NO_QUEUE, ResponseCode.PULL_NOT_FOUND)


class PullProcessor:
    """Answers pulls, now or later."""

    def __init__(self, core: Core, loop: asyncio.AbstractEventLoop) -> None:
        self._core, self._loop = core, loop
        self.held: LongPoll[int, PullRequest] = LongPoll(loop, lambda held: self._run(held, may_hold=False))
        """Pulls that found nothing, by queue id."""
        self._tags_codes = TagsCodes()

    @answers(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, needs=CONSUME)
    def pull(self, connection: Connection, command: Command) -> Answer:
        request = PullRequest.from_fields(command.fields)
        held = HeldRequest(connection, command, request, self._check(request), request.topic, request.queue_id)
        if request.sys_flag & FLAG_COMMIT and request.commit_offset >= 0:
            self._core.offsets.commit(request.group, request.topic, request.queue_id, request.commit_offset)
        return self._run(held, may_hold=bool(request.sys_flag & FLAG_SUSPEND))

    def follow(self, records: Sequence[Stored]) -> None:
        """Messages were stored: each wakes the pulls that want it."""
        for stored in records if self.held.by_topic else ():
            topic, queue_id = stored.topic, stored.queue_id
            waiting = self.held.by_topic.get(topic, {}).get(queue_id)
            if waiting and stored.is_queued:
                tags_code = self._tags_codes.of(topic, queue_id, stored.raw_properties, stored.stored_ms)
                offset = stored.queue_offset
                self.held.wake([each for each in waiting if each.request.offset <= offset and each.takes(tags_code)])

    def _check(self, request: PullRequest) -> Filter:
        """Check a pull in Apache's order; raise BrokerError or return its filter."""
        core = self._core
        group = core.group(request.group)
        if not group.consume_enable:
            raise BrokerError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {request.group}")
        core.check_readable(request.topic, request.queue_id, "pulling", least=0)
        if request.sys_flag & FLAG_SUBSCRIPTION:
            return asked_filter(request.topic, request.expression, request.expression_type)
        return self._filter_of_group(request, broadcast_enable=group.consume_broadcast_enable)

    def _filter_of_group(self, request: PullRequest, *, broadcast_enable: bool) -> Filter:
        group = self._core.consumers.group(request.group)
        if group.is_broadcasting and not broadcast_enable:
            raise BrokerError(
                ResponseCode.NO_PERMISSION, f"the consumer group[{request.group}] can not consume by broadcast way"
            )
        subscription = group.subscriptions.get(request.topic)
        if subscription is None:
            problem = "the consumer's subscription not exist: it has to send a heartbeat with it before it pulls"
            raise BrokerError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"{problem}, topic {request.topic}")
        if subscription.version < request.sub_version:
            raise BrokerError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        wanted = group.filters.get(request.topic)
        if wanted is None:
            raise BrokerError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        return wanted

    def _run(self, held: HeldRequest[int, PullRequest], *, may_hold: bool) -> Command | None:
        core, command, request = self._core, held.command, held.request
        limit, queue = request.max_bytes, (request.topic, request.queue_id)
        moved = core.offsets.take_reset(request.group, *queue)
        if moved is not None:  # the member is told where an operator has set its group
            told = PullResponse(0, moved, core.store.min_offset(*queue), core.store.max_offset(*queue)).to_fields()
            return Command.response(command, ResponseCode.PULL_OFFSET_MOVED, fields=told, remark="OFFSET_RESET")
        result = read_filtered(
            core.store,
            queue,
            request.offset,
            max_messages=max(request.max_messages, 1),
            max_bytes=MOST_BYTES if limit is None or limit <= 0 else min(limit, MOST_BYTES),
            wanted=held.wanted,
            trusts=True,
        )
        codes = _CODES if request.offset else _CODES_AT_ZERO
        code = codes.get(result.status, ResponseCode.PULL_OFFSET_MOVED)
        if core.copies_from is not None and code == ResponseCode.PULL_OFFSET_MOVED:
            # The master has it, or had it: a slave moves nobody.
            code, result = ResponseCode.PULL_NOT_FOUND, result._replace(next_offset=request.offset)
        if code == ResponseCode.PULL_NOT_FOUND and core.copies_from:  # the master is there: members go back to it
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        if code == ResponseCode.PULL_NOT_FOUND and may_hold and request.suspend_ms > 0:
            self._hold(held)
            return None
        core.offsets.pulled(request.group, *queue, result.next_offset)
        core.traffic.got += result.count
        header = PullResponse(0, result.next_offset, result.min_offset, result.max_offset).to_fields()
        return Command.response(command, code, fields=header, body=result.body, remark=result.status)

    def _hold(self, held: HeldRequest[int, PullRequest]) -> None:
        if not self.held.has_room(held.connection):
            raise BrokerError(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]too many pulls are held already")
        self.held.hold(held, self._loop.time() + min(held.request.suspend_ms / 1000, LONGEST))
