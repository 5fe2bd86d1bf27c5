"""Requests of administrators about consumer groups.

Codes UPDATE_AND_CREATE_SUBSCRIPTIONGROUP 200, GET_ALL_SUBSCRIPTIONGROUP_CONFIG 201, GET_CONSUMER_CONNECTION_LIST
203, GET_PRODUCER_CONNECTION_LIST 204, DELETE_SUBSCRIPTIONGROUP 207, GET_CONSUME_STATS 208,
GET_BROKER_CONSUME_STATS 317, GET_CONSUMER_RUNNING_INFO 307, CONSUME_MESSAGE_DIRECTLY 309, QUERY_TOPICS_BY_CONSUMER 343,
GET_SUBSCRIPTIONGROUP_CONFIG 352 (Java: AdminBrokerProcessor).
"""

from __future__ import annotations

import asyncio

import msgspec

from rocketapp.broker.core import Core
from rocketapp.broker.groups import GroupConfig
from rocketapp.broker.members import GroupMember
from rocketapp.broker.request_dispatch import Process, not_stored
from rocketapp.errors import BrokerError, StoreError, TransportError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import group_problem
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


class GroupProcessor:
    """Creates, changes, deletes and describes consumer groups."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def table(self) -> dict[int, Process]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_configs,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.all_consume_stats,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.config,
        }

    def update(self, connection: Connection, command: Command) -> Command:
        try:
            config = GroupConfig.of_members(lenient_json.loads_shallow(command.body))
        except ValueError as error:
            raise BrokerError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        problem = group_problem(config.name)
        if problem is not None:
            raise BrokerError(ResponseCode.INVALID_PARAMETER, problem)
        self._core.groups.put(config)
        self._core.save(None)
        return Command.response(command, ResponseCode.SUCCESS)

    def all_configs(self, connection: Connection, command: Command) -> Command:
        body = msgspec.json.encode(self._core.groups.to_json())
        return Command.response(command, ResponseCode.SUCCESS, fields={}, body=body)

    def config(self, connection: Connection, command: Command) -> Command:
        name = read.text(command.fields, "group")
        config = self._core.groups.get(name)
        if config is None:
            raise BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}")
        return Command.response(command, ResponseCode.SUCCESS, fields={}, body=msgspec.json.encode(config.members))

    def delete(self, connection: Connection, command: Command) -> None:
        name, clean_offset = read.text(command.fields, "groupName"), read.boolean(command.fields, "cleanOffset")

        def saved(error: StoreError | None) -> None:
            if error is None and clean_offset:
                self._core.offsets.delete_group(name)
            done = Command.response(command, ResponseCode.SUCCESS)
            connection.reply(done if error is None else not_stored(command, error))

        self._core.groups.delete(name)
        self._core.save(saved)

    def consumers(self, connection: Connection, command: Command) -> Command:
        name = ConsumerGroupRequest.from_fields(command.fields).group
        group = self._core.consumers.group(name)
        if group is None:
            raise BrokerError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            tuple(map(_connection, group.members.values())),
            tuple(group.subscriptions.values()),
            group.consume_type,
            group.message_model,
            group.consume_from,
        ).encode()
        return Command.response(command, ResponseCode.SUCCESS, fields={}, body=body)

    def producers(self, connection: Connection, command: Command) -> Command:
        name = ProducerGroupRequest.from_fields(command.fields).group
        members = self._core.producers.members(name)
        if not members:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = statistics.encode_connections(map(_connection, members))
        return Command.response(command, ResponseCode.SUCCESS, fields={}, body=body)

    def topics_of(self, connection: Connection, command: Command) -> Command:
        topics = self._core.offsets.topics_of(read.text(command.fields, "group"))
        return Command.response(command, ResponseCode.SUCCESS, fields={}, body=encode_topic_list(sorted(topics)))

    def consume_stats(self, connection: Connection, command: Command) -> Command:
        """The group's offsets in every queue of the topics that it consumes."""
        core = self._core
        request = ConsumerGroupRequest.from_fields(command.fields)
        if request.topic is not None:
            topics = {request.topic}
        else:
            group = core.consumers.group(request.group)
            topics = core.offsets.topics_of(request.group) | set(group.subscriptions if group is not None else ())
        offsets: dict[MessageQueue, ConsumedOffset] = {}
        for topic in sorted(topics):
            offsets |= self._consumed_of(request.group, topic)
        return Command.response(command, ResponseCode.SUCCESS, fields={}, body=encode_consume_stats(offsets))

    def all_consume_stats(self, connection: Connection, command: Command) -> Command:
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
        body = encode_broker_consume_stats(core.address, groups)
        return Command.response(command, ResponseCode.SUCCESS, fields={}, body=body)

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

    def running_info(self, connection: Connection, command: Command) -> Command | None:
        """Ask the member, and forward its answer."""
        request = RunningInfoRequest.from_fields(command.fields)
        question = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, request.to_fields())
        return self._ask_member(connection, command, request.group, request.client_id, question)

    def consume_directly(self, connection: Connection, command: Command) -> Command | None:
        """Have the member consume one stored message, and forward its answer."""
        request = DirectRequest.from_fields(command.fields)
        record = self._core.store.record_at(parse_offset_id(request.offset_message_id)[2])
        if record is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"no message is stored at {request.offset_message_id}")
        # A tool need not know our name, and the member sends the message back to us when it fails.
        fields = {**(command.fields or {}), "brokerName": self._core.config.name}
        question = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, record)
        return self._ask_member(connection, command, request.group, request.client_id, question)

    def _ask_member(
        self, connection: Connection, command: Command, name: str, client_id: str, question: Command
    ) -> Command | None:
        group = self._core.consumers.group(name)
        members = group.members.items() if group is not None else ()
        channel = next((channel for channel, member in members if member.client_id == client_id), None)
        if not isinstance(channel, Connection):
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{name}> <{client_id}> not online")
        answer = channel.start_request(question, timeout=MEMBER_TIMEOUT)

        def hand_on(answered: asyncio.Future[Command]) -> None:
            error = answered.exception()
            if isinstance(error, TransportError):
                response = Command.response(
                    command, ResponseCode.CONSUME_MSG_TIMEOUT, remark=f"consumer <{client_id}>: {error}"
                )
            else:
                told = answered.result()
                response = Command.response(command, told.code, fields=told.fields, body=told.body, remark=told.remark)
            connection.reply(response)

        answer.add_done_callback(hand_on)
        return None


def _connection(member: GroupMember) -> statistics.ConnectedClient:
    return statistics.ConnectedClient(member.client_id, member.address, member.language, member.version)
