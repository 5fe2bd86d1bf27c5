"""Requests of administrators about topics.

Codes UPDATE_AND_CREATE_TOPIC 17, GET_ALL_TOPIC_CONFIG 21, GET_TOPIC_STATS_INFO 202, DELETE_TOPIC_IN_BROKER 215,
QUERY_TOPIC_CONSUME_BY_WHO 300, GET_SYSTEM_TOPIC_LIST_FROM_BROKER 305, CLEAN_EXPIRED_CONSUMEQUEUE 306,
CLEAN_UNUSED_TOPIC 316, GET_TOPIC_CONFIG 351 (Java: AdminBrokerProcessor).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from rocketapp.broker.broker_state import BrokerFacts
from rocketapp.broker.core import Core, check_name
from rocketapp.broker.topics import MOST_QUEUES
from rocketapp.errors import BrokerError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import topic_problem
from rocketapp.transport.answers import (
    DONE,
    KEYS_ARE_ENOUGH,
    READ_TOPIC,
    REFUSES,
    Answer,
    answers,
    on_topic,
)
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.admin import (
    TopicConfig,
    TopicRequest,
    UpdateTopicRequest,
    encode_group_list,
    encode_topic_config,
)
from rocketapp.wire.requests.pop import OF_RETRY, pop_retry_topic
from rocketapp.wire.requests.routes import encode_topic_list
from rocketapp.wire.requests.statistics import TopicOffset, encode_topic_stats

_PERMS = range(8)

Delete = Callable[[Mapping[str, float]], Awaitable[None]]
"""Deletes what is stored of topics below a position of the log; what is returned ends when it is gone."""


class TopicProcessor:
    """Creates, changes, deletes and describes topics."""

    def __init__(self, core: Core, facts: BrokerFacts, topic_gone: Callable[[str], None], delete: Delete) -> None:
        self._core, self._facts, self._topic_gone, self._delete = core, facts, topic_gone, delete

    @answers(RequestCode.UPDATE_AND_CREATE_TOPIC, needs=(on_topic("Create"),), slave=REFUSES, reads=UpdateTopicRequest)
    def update(self, request: UpdateTopicRequest) -> Answer:
        core = self._core
        name = request.config.name
        self._check(request.config)
        self._check_shrinking(request.config)
        core.put_topic(request.applied_to(core.topics.get(name)))
        return DONE

    def _check(self, config: TopicConfig) -> None:
        problem = topic_problem(config.name)
        if problem is None and self._core.topics.is_system(config.name):
            problem = f"The topic[{config.name}] is conflict with system topic."
        if problem is None and not (0 <= config.read_queues <= MOST_QUEUES and 0 <= config.write_queues <= MOST_QUEUES):
            problem = f"a topic has 0 to {MOST_QUEUES} queues to read and to write"
        if problem is None and config.perm not in _PERMS:
            problem = f"perm {config.perm} is illegal: 2 is write, 4 is read, 6 is both"
        check_name(problem)

    def _check_shrinking(self, config: TopicConfig) -> None:
        """Refuse to take away a queue with messages that a group has yet to read: nobody would read them any more."""
        core, topic = self._core, config.name
        groups = core.offsets.groups_of(topic)
        for queue_id in core.store.queue_ids(topic):
            end = core.store.max_offset(topic, queue_id)
            if queue_id < config.read_queues or core.store.min_offset(topic, queue_id) >= end:
                continue
            behind = sorted(group for group in groups if (core.offsets.committed(group, topic, queue_id) or 0) < end)
            if behind or not groups:
                who = f"group {behind[0]} has not read" if behind else "no group has read"
                raise BrokerError(
                    ResponseCode.INVALID_PARAMETER,
                    f"queue {queue_id} of topic {topic} holds messages that {who}: lower writeQueueNums first, and "
                    "readQueueNums when they are read",
                )

    @answers(RequestCode.GET_ALL_TOPIC_CONFIG, needs=KEYS_ARE_ENOUGH)
    def all_configs(self, connection: Connection, command: Command) -> Answer:
        """The whole table in one answer. Paging is not offered."""
        return msgspec.json.encode(self._core.topics.to_json())

    @answers(RequestCode.GET_TOPIC_STATS_INFO, needs=READ_TOPIC, reads=TopicRequest)
    def stats(self, request: TopicRequest) -> Answer:
        topic = self._core.known_topic(request.topic).name
        offsets = {
            MessageQueue(topic, self._core.config.name, queue_id): TopicOffset(*of_queue)
            for queue_id, *of_queue in self._facts.queues(topic)
        }
        return encode_topic_stats(offsets)

    @answers(RequestCode.DELETE_TOPIC_IN_BROKER, needs=(on_topic("Delete"),), slave=REFUSES)
    def delete(self, connection: Connection, command: Command) -> Answer:
        """Delete a topic, and what groups have popped of it and not acknowledged. Answered when it is gone."""
        core = self._core
        name = TopicRequest.from_fields(command.fields).topic
        if core.topics.is_system(name):
            raise BrokerError(ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic.")
        retries = [pop_retry_topic(group, name, OF_RETRY) for group in core.offsets.groups_of(name)]
        stored = core.store.topics()  # also what an earlier attempt could not delete
        doomed = [each for each in (name, *retries) if core.topics.get(each) is not None or each in stored]
        for each in doomed:
            core.topics.delete(each)
        return self._deleted(doomed)

    @answers(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, needs=READ_TOPIC, reads=TopicRequest)
    def groups_of(self, request: TopicRequest) -> Answer:
        """Groups that subscribe to the topic or have committed an offset in it."""
        groups = {group.name for group in self._core.consumers if request.topic in group.subscriptions}
        return encode_group_list(sorted(groups | self._core.offsets.groups_of(request.topic)))

    @answers(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, needs=KEYS_ARE_ENOUGH)
    def system_topics(self, connection: Connection, command: Command) -> Answer:
        return encode_topic_list(sorted(self._core.topics.system_names))

    @answers(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, needs=KEYS_ARE_ENOUGH)
    def nothing_expired(self, connection: Connection, command: Command) -> Answer:
        """Queues whose messages are gone are found and removed at each start."""
        return DONE

    @answers(RequestCode.CLEAN_UNUSED_TOPIC, needs=KEYS_ARE_ENOUGH, slave=REFUSES)
    def clean_unused(self, connection: Connection, command: Command) -> Answer:
        """Delete the queues of topics that have no configuration any more."""
        return self._deleted(self._core.unused_topics())

    def _deleted(self, topics: list[str]) -> Answer:
        """From now on nothing of them is stored; answered when all is gone."""
        end = self._delete(dict.fromkeys(topics, math.inf))

        async def gone() -> bytes:
            await end
            for topic in topics:
                self._core.offsets.delete(topic=topic)
                self._topic_gone(topic)
            return DONE

        return gone()

    @answers(RequestCode.GET_TOPIC_CONFIG, needs=READ_TOPIC, reads=TopicRequest)
    def config(self, request: TopicRequest) -> Answer:
        return encode_topic_config(self._core.known_topic(request.topic))
