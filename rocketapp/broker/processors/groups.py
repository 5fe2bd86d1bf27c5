"""Requests of administrators about consumer groups.

Codes UPDATE_AND_CREATE_SUBSCRIPTIONGROUP 200, GET_ALL_SUBSCRIPTIONGROUP_CONFIG 201, GET_CONSUMER_CONNECTION_LIST
203, GET_PRODUCER_CONNECTION_LIST 204, DELETE_SUBSCRIPTIONGROUP 207, GET_CONSUME_STATS 208,
GET_BROKER_CONSUME_STATS 317, GET_CONSUMER_RUNNING_INFO 307, CONSUME_MESSAGE_DIRECTLY 309, QUERY_TOPICS_BY_CONSUMER 343,
GET_SUBSCRIPTIONGROUP_CONFIG 352 (Java: AdminBrokerProcessor).
"""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec

from rocketapp.broker.core import Core, check_name, ended
from rocketapp.broker.groups import GroupConfig
from rocketapp.broker.members import GroupMember
from rocketapp.errors import BrokerError, TransportError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import group_problem
from rocketapp.transport.answers import (
    DONE,
    KEYS_ARE_ENOUGH,
    READ_GROUP,
    REFUSES,
    SEE_CLUSTER,
    Answer,
    answers,
    on_group,
    on_topic,
)
from rocketapp.transport.connection import Connection
from rocketapp.wire import fields as read
from rocketapp.wire import lenient_json
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.message_id import parse_offset_id
from rocketapp.wire.requests import statistics
from rocketapp.wire.requests.admin import ConsumerGroupRequest, ProducerGroupRequest, RunningInfoRequest
from rocketapp.wire.requests.direct import DirectRequest
from rocketapp.wire.requests.routes import encode_topic_list
from rocketapp.wire.requests.statistics import (
    ConsumedOffset,
    ConsumerConnection,
    encode_broker_consume_stats,
    encode_consume_stats,
)

MEMBER_TIMEOUT = 10.0
"""Seconds within which a member has to answer a request that is forwarded to it."""

MOST_QUEUES_SHOWN = 4096
"""Queues that one answer about all groups looks into; other requests wait meanwhile."""

_SEE_PROGRESS = on_group("Get"), on_topic("Get", optional=True)


class GroupProcessor:
    """Creates, changes, deletes and describes consumer groups."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @answers(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, needs=KEYS_ARE_ENOUGH, slave=REFUSES)
    def update(self, connection: Connection, command: Command) -> Answer:
        try:
            config = GroupConfig.from_json(lenient_json.loads_shallow(command.body))
        except ValueError as error:
            raise BrokerError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        check_name(group_problem(config.name))
        self._core.groups.put(config)
        self._core.save(None)
        return DONE

    @answers(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, needs=KEYS_ARE_ENOUGH)
    def all_configs(self, connection: Connection, command: Command) -> Answer:
        return msgspec.json.encode(self._core.groups.to_json())

    @answers(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, needs=(on_group("Get", field="group"),))
    def config(self, connection: Connection, command: Command) -> Answer:
        name = read.text(command.fields, "group")
        config = self._core.groups.get(name)
        if config is None:
            raise BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}")
        return msgspec.json.encode(config.members)

    @answers(RequestCode.DELETE_SUBSCRIPTIONGROUP, needs=(on_group("Delete", field="groupName"),), slave=REFUSES)
    def delete(self, connection: Connection, command: Command) -> Answer:
        """Gone before the next request is read; answered when that is on disk."""
        name, clean_offset = read.text(command.fields, "groupName"), read.boolean(command.fields, "cleanOffset")
        self._core.groups.delete(name)
        return self._deleted(name if clean_offset else None, ended(self._core.save))

    async def _deleted(self, without_offsets: str | None, end: Awaitable[None]) -> bytes:
        await end
        if without_offsets is not None:
            self._core.offsets.delete(group=without_offsets)
        return DONE

    @answers(RequestCode.GET_CONSUMER_CONNECTION_LIST, needs=READ_GROUP, reads=ConsumerGroupRequest)
    def consumers(self, request: ConsumerGroupRequest) -> Answer:
        group = self._core.consumers.group(request.group)
        if not group.members:
            raise BrokerError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{request.group}] not online")
        return ConsumerConnection(
            tuple(map(_connection, group.members.values())),
            tuple(group.subscriptions.values()),
            group.consume_type,
            group.message_model,
            group.consume_from,
        ).encode()

    @answers(RequestCode.GET_PRODUCER_CONNECTION_LIST, needs=SEE_CLUSTER, reads=ProducerGroupRequest)
    def producers(self, request: ProducerGroupRequest) -> Answer:
        members = self._core.producers.members(request.group)
        if not members:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the producer group[{request.group}] not exist")
        return statistics.encode_connections(map(_connection, members.values()))

    @answers(RequestCode.QUERY_TOPICS_BY_CONSUMER, needs=(on_group("Get", field="group"),))
    def topics_of(self, connection: Connection, command: Command) -> Answer:
        topics = self._core.offsets.topics_of(read.text(command.fields, "group"))
        return encode_topic_list(sorted(topics))

    @answers(RequestCode.GET_CONSUME_STATS, needs=_SEE_PROGRESS, reads=ConsumerGroupRequest)
    def consume_stats(self, request: ConsumerGroupRequest) -> Answer:
        """The group's offsets in every queue of the topics that it consumes."""
        core = self._core
        topics = core.offsets.topics_of(request.group) | core.consumers.group(request.group).subscriptions.keys()
        if request.topic is not None:
            topics = {request.topic}
        offsets: dict[MessageQueue, ConsumedOffset] = {}
        for topic in sorted(topics):
            offsets |= self._consumed_of(request.group, topic)
        return encode_consume_stats(offsets)

    @answers(RequestCode.GET_BROKER_CONSUME_STATS, needs=SEE_CLUSTER)
    def all_consume_stats(self, connection: Connection, command: Command) -> Answer:
        """The offsets of every group in every topic of which it has some."""
        core = self._core
        groups: dict[str, list[dict[MessageQueue, ConsumedOffset]]] = {}
        queues = 0
        for group, topic in sorted((one, topic) for one, of in core.offsets.topics_by_group().items() for topic in of):
            config = core.topics.get(topic)
            if config is None or (read.boolean(command.fields, "isOrder") and not config.order):
                continue
            queues += config.read_queues
            if queues > MOST_QUEUES_SHOWN:
                raise BrokerError(
                    ResponseCode.SYSTEM_ERROR, f"groups read more than {MOST_QUEUES_SHOWN} queues: ask for one group"
                )
            groups.setdefault(group, []).append(self._consumed_of(group, topic))
        return encode_broker_consume_stats(core.address, groups)

    def _consumed_of(self, group: str, topic: str) -> dict[MessageQueue, ConsumedOffset]:
        """The group's offsets in every queue of a topic."""
        config, name = self._core.topics.get(topic), self._core.config.name
        queues = range(config.read_queues if config is not None else 0)
        return {MessageQueue(topic, name, queue_id): self._consumed(group, topic, queue_id) for queue_id in queues}

    def _consumed(self, group: str, topic: str, queue_id: int) -> ConsumedOffset:
        core = self._core
        end = core.store.max_offset(topic, queue_id)
        done = core.done_to(group, topic, queue_id)
        pulled = core.offsets.pulled_to(group, topic, queue_id)
        last = core.store.stored_ms_at(topic, queue_id, done - 1) if done > 0 else None
        return ConsumedOffset(end, done, done if pulled is None else pulled, last or 0)

    @answers(RequestCode.GET_CONSUMER_RUNNING_INFO, needs=READ_GROUP)
    async def running_info(self, connection: Connection, command: Command) -> Command:
        """Ask the member, and forward its answer."""
        request = RunningInfoRequest.from_fields(command.fields)
        question = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, request.to_fields())
        return await self._answer_of(request.group, request.client_id, command, question)

    @answers(RequestCode.CONSUME_MESSAGE_DIRECTLY, needs=(on_group("Sub"), on_topic("Sub", optional=True)))
    async def consume_directly(self, connection: Connection, command: Command) -> Command:
        """Have the member consume one stored message, and forward its answer."""
        request = DirectRequest.from_fields(command.fields)
        record = self._core.store.record_at(parse_offset_id(request.offset_message_id)[2])
        if record is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"no message is stored at {request.offset_message_id}")
        # A tool need not know our name, and the member sends the message back to us when it fails.
        fields = {**(command.fields or {}), "brokerName": self._core.config.name}
        question = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, record)
        return await self._answer_of(request.group, request.client_id, command, question)

    async def _answer_of(self, name: str, client_id: str, command: Command, question: Command) -> Command:
        """The response to a command: what this member answers to the question."""
        members = self._core.consumers.members(name).items()
        channel = next((channel for channel, member in members if member.client_id == client_id), None)
        if channel is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{name}> <{client_id}> not online")
        try:
            told = await channel.start_request(question, timeout=MEMBER_TIMEOUT)
        except TransportError as error:
            raise BrokerError(ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{client_id}>: {error}") from error
        return Command.response(command, told.code, fields=told.fields, body=told.body, remark=told.remark)


def _connection(member: GroupMember) -> statistics.ConnectedClient:
    return statistics.ConnectedClient(member.client_id, member.address, member.language, member.version)
