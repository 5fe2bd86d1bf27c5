"""Offsets of queues, and committed offsets of groups.

Codes QUERY_CONSUMER_OFFSET 14, UPDATE_CONSUMER_OFFSET 15, SEARCH_OFFSET_BY_TIMESTAMP 29, GET_MAX_OFFSET 30,
GET_MIN_OFFSET 31, GET_EARLIEST_MSG_STORETIME 32, INVOKE_BROKER_TO_RESET_OFFSET 222 (Java: ConsumerManageProcessor,
AdminBrokerProcessor). A reset is this broker's own work, as with `useServerSideResetOffset`: the group's next pull is
answered with the new offset, and commits of the old one are ignored until then.
"""

from __future__ import annotations

from collections.abc import Callable

from rocketapp.broker.core import Core
from rocketapp.broker.topics import MOST_QUEUES
from rocketapp.errors import BrokerError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.transport.answers import DONE, READ_TOPIC, REFUSES, Answer, answers, on_group, on_topic
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.offsets import (
    CommitRequest,
    OffsetResponse,
    QueryOffsetRequest,
    QueueRequest,
    SearchOffsetRequest,
    StoreTimeResponse,
)
from rocketapp.wire.requests.reset_offset import ResetOffsetRequest, encode_reset

_SEE_PROGRESS = on_topic("Sub", "Get"), on_group("Sub", "Get")
_COMMIT = on_topic("Sub", "Update"), on_group("Sub", "Update")
_RESET = on_group("Update", field="group"), on_topic("Update")


class OffsetProcessor:
    """Answers requests for the offsets of queues and groups, and stores commits."""

    def __init__(self, core: Core, reset_done: Callable[[str], None]) -> None:
        """`reset_done` is called with the topic: members whose pulls are held hear of it at once."""
        self._core, self._reset_done = core, reset_done

    @answers(RequestCode.QUERY_CONSUMER_OFFSET, needs=_SEE_PROGRESS, reads=QueryOffsetRequest)
    def query(self, request: QueryOffsetRequest) -> Answer:
        core = self._core
        offset = core.offsets.committed(request.group, request.topic, request.queue_id)
        if offset is None and not core.offsets.is_known:
            raise BrokerError(ResponseCode.SYSTEM_BUSY, "this slave does not know the offsets of its master yet")
        if offset is None and request.set_zero_if_not_found is not False:
            # As in Apache RocketMQ, every new group reads a queue from its beginning while none of its messages
            # was deleted yet, even with a start at the end. An empty queue has no other offset either: whoever asked
            # for its end next would pass over a message that is stored meanwhile.
            topic = core.topics.get(request.topic)
            is_queue = topic is not None and 0 <= request.queue_id < topic.read_queues
            if is_queue and core.store.min_offset(request.topic, request.queue_id) <= 0:
                offset = 0
        if offset is None:
            raise BrokerError(ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first")
        return OffsetResponse(offset)

    @answers(RequestCode.UPDATE_CONSUMER_OFFSET, needs=_COMMIT, reads=CommitRequest)
    def commit(self, request: CommitRequest) -> Answer:
        core = self._core
        core.known_topic(request.topic)
        core.group(request.group)
        if request.offset < 0 or not 0 <= request.queue_id < MOST_QUEUES:
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER, f"offset {request.offset} of queue {request.queue_id} is illegal"
            )
        core.offsets.commit(request.group, request.topic, request.queue_id, request.offset)
        return DONE

    @answers(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, needs=READ_TOPIC, reads=SearchOffsetRequest)
    def search(self, request: SearchOffsetRequest) -> Answer:
        found = self._core.store.offset_by_time(request.topic, request.queue_id, request.timestamp_ms, request.boundary)
        return OffsetResponse(found)

    @answers(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, needs=_RESET, slave=REFUSES, reads=ResetOffsetRequest)
    def reset(self, request: ResetOffsetRequest) -> Answer:
        core = self._core
        topic = core.known_topic(request.topic)
        if core.groups.get(request.group) is None:
            raise BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {request.group} not exist!")
        chosen = range(topic.read_queues) if request.queue_id < 0 else [request.queue_id]
        offsets = {queue_id: self._reset_to(request, queue_id) for queue_id in chosen}
        for queue_id, offset in offsets.items():
            core.offsets.reset(request.group, request.topic, queue_id, offset)
        self._reset_done(request.topic)
        name = core.config.name
        return encode_reset({MessageQueue(request.topic, name, queue_id): at for queue_id, at in offsets.items()})

    def _reset_to(self, request: ResetOffsetRequest, queue_id: int) -> int:
        store = self._core.store
        first, end = store.min_offset(request.topic, queue_id), store.max_offset(request.topic, queue_id)
        if request.queue_id >= 0 and request.offset >= 0:
            if not first <= request.offset <= end:
                raise BrokerError(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {request.offset} not in consume queue range [{first}-{end}]",
                )
            return request.offset
        if request.timestamp_ms < 0:
            return end
        return store.offset_by_time(request.topic, queue_id, request.timestamp_ms)

    @answers(RequestCode.GET_MAX_OFFSET, needs=READ_TOPIC, reads=QueueRequest)
    def max_offset(self, request: QueueRequest) -> Answer:
        return OffsetResponse(self._core.store.max_offset(request.topic, request.queue_id))

    @answers(RequestCode.GET_MIN_OFFSET, needs=READ_TOPIC, reads=QueueRequest)
    def min_offset(self, request: QueueRequest) -> Answer:
        return OffsetResponse(self._core.store.min_offset(request.topic, request.queue_id))

    @answers(RequestCode.GET_EARLIEST_MSG_STORETIME, needs=READ_TOPIC, reads=QueueRequest)
    def earliest_store_time(self, request: QueueRequest) -> Answer:
        store, topic, queue_id = self._core.store, request.topic, request.queue_id
        stored_ms = store.stored_ms_at(topic, queue_id, store.min_offset(topic, queue_id))
        return StoreTimeResponse(-1 if stored_ms is None else stored_ms)
