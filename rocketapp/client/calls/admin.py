"""Requests of administrators about topics, groups and the broker itself."""

from __future__ import annotations

from rocketapp.client.calls.ask import answer_to, ask, ask_unless
from rocketapp.errors import BrokerError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.admin import (
    ConsumerGroupRequest,
    RunningInfoRequest,
    TopicConfig,
    TopicRequest,
    UpdateTopicRequest,
    decode_broker_config,
    decode_group_list,
    decode_groups,
    decode_topic_config,
    decode_topic_configs,
    encode_group,
)
from rocketapp.wire.requests.reset_offset import ResetOffsetRequest, decode_reset
from rocketapp.wire.requests.running_info import RunningInfo, decode_owned
from rocketapp.wire.requests.statistics import (
    ConsumedOffset,
    ConsumerConnection,
    TopicOffset,
    decode_consume_stats,
    decode_topic_stats,
)


async def topic_config(connection: Connection, topic: str, timeout: float) -> TopicConfig | None:
    """How this broker keeps the topic; None when it does not have it."""
    asked, absent = TopicRequest(topic), ResponseCode.TOPIC_NOT_EXIST
    try:
        response = await ask_unless(absent, connection, RequestCode.GET_TOPIC_CONFIG, timeout, asked)
    except BrokerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        # RocketMQ 4.x tells all its topics at once.
        return decode_topic_configs(await answer_to(connection, RequestCode.GET_ALL_TOPIC_CONFIG, timeout)).get(topic)
    return None if response is None else decode_topic_config(response.body)


async def put_topic(connection: Connection, config: TopicConfig, timeout: float) -> None:
    """Create or change the topic on this broker."""
    await ask(connection, RequestCode.UPDATE_AND_CREATE_TOPIC, timeout, UpdateTopicRequest(config))


async def topic_stats(connection: Connection, topic: str, timeout: float) -> dict[MessageQueue, TopicOffset]:
    """The offsets of the topic's queues on this broker."""
    return decode_topic_stats(
        await answer_to(connection, RequestCode.GET_TOPIC_STATS_INFO, timeout, TopicRequest(topic))
    )


async def groups_of_topic(connection: Connection, topic: str, timeout: float) -> list[str]:
    """The groups that subscribe to the topic, or have committed offsets of it."""
    return decode_group_list(
        await answer_to(connection, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, timeout, TopicRequest(topic))
    )


async def put_group(connection: Connection, group: str, timeout: float) -> None:
    """Create the group on this broker with default settings, or reset it to them."""
    await ask(connection, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, timeout, body=encode_group(group))


async def groups(connection: Connection, timeout: float) -> list[str]:
    """Every consumer group that this broker knows, its own included."""
    return decode_groups(await answer_to(connection, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, timeout))


async def members(connection: Connection, group: str, timeout: float) -> ConsumerConnection | None:
    """The live members of a group and what it subscribes; None when this broker knows no member."""
    code, asked = RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequest(group)
    response = await ask_unless(ResponseCode.CONSUMER_NOT_ONLINE, connection, code, timeout, asked)
    return None if response is None else ConsumerConnection.decode(response.body)


async def consume_stats(connection: Connection, group: str, timeout: float) -> dict[MessageQueue, ConsumedOffset]:
    """How far the group is in each queue of the topics that it consumes here."""
    return decode_consume_stats(
        await answer_to(connection, RequestCode.GET_CONSUME_STATS, timeout, ConsumerGroupRequest(group))
    )


async def broker_config(connection: Connection, timeout: float) -> dict[str, str]:
    """The broker's options by their names."""
    return decode_broker_config(await answer_to(connection, RequestCode.GET_BROKER_CONFIG, timeout))


async def check_keys(connection: Connection, timeout: float) -> None:
    """Send a request that every known user may make. Raises KeysRefused; any other refusal means the keys are known."""
    await ask(connection, RequestCode.GET_BROKER_RUNTIME_INFO, timeout)


async def reset_offset(
    connection: Connection, group: str, queue: MessageQueue, offset: int, timeout: float
) -> dict[MessageQueue, int]:
    """Have the broker move a group that may have members. Returns the offsets that it has set."""
    request = ResetOffsetRequest(queue.topic, group, queue.queue_id, offset)
    return decode_reset(await answer_to(connection, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, timeout, request))


async def running_info(
    connection: Connection, group: str, client_id: str, timeout: float, *, brief: bool = False
) -> RunningInfo:
    """The running info of a member, which this broker asks it for. Raises BrokerError without an answer.

    `brief`: a member of rocketapp then tells only what it subscribes and pulls.
    """
    request = RunningInfoRequest(group, client_id, brief=brief)
    return RunningInfo.decode(await answer_to(connection, RequestCode.GET_CONSUMER_RUNNING_INFO, timeout, request))


async def owned_queues(connection: Connection, group: str, client_id: str, timeout: float) -> frozenset[MessageQueue]:
    """The queues that a member has. Raises as `running_info`, and ProtocolError."""
    request = RunningInfoRequest(group, client_id)
    return decode_owned(await answer_to(connection, RequestCode.GET_CONSUMER_RUNNING_INFO, timeout, request))
