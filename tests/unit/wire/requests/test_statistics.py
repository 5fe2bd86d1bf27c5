"""Answers to an admin tool."""

from __future__ import annotations

import json

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import SubscriptionData
from rocketapp.wire.requests.statistics import (
    ConnectedClient,
    ConsumedOffset,
    ConsumerConnection,
    TopicOffset,
    decode_consume_stats,
    decode_topic_stats,
    encode_connections,
    encode_consume_stats,
    encode_topic_stats,
)
from tests.cases import cases

QUEUE = MessageQueue("T", "b", 0)
OTHER = MessageQueue("T", "b", 1)
KEY = b'{"brokerName":"b","queueId":0,"topic":"T"}'
CONNECTION = ConnectedClient("10.0.0.5@1", "10.0.0.5:40000", "PYTHON", 479)
SUBSCRIPTION = SubscriptionData("T", "a", frozenset({"a"}), 1)


def test_topic_statistics_have_queues_as_keys() -> None:
    offsets = {QUEUE: TopicOffset(0, 7, 1795169647947)}
    assert encode_topic_stats(offsets) == (
        b'{"offsetTable":{' + KEY + b':{"lastUpdateTimestamp":1795169647947,"maxOffset":7,"minOffset":0}},'
        b'"topicPutTps":0.0}'
    )


def test_topic_statistics_are_read_back() -> None:
    offsets = {QUEUE: TopicOffset(0, 7, 5), OTHER: TopicOffset(3, 3, 0)}
    assert decode_topic_stats(encode_topic_stats(offsets)) == offsets
    assert decode_topic_stats(encode_topic_stats({})) == {}


def test_consume_statistics_have_queues_as_keys() -> None:
    offsets = {QUEUE: ConsumedOffset(7, 3, 5, 1795169647947)}
    assert encode_consume_stats(offsets) == (
        b'{"consumeTps":0.0,"offsetTable":{'
        + KEY
        + b':{"brokerOffset":7,"consumerOffset":3,"lastTimestamp":1795169647947,"pullOffset":5}}}'
    )


def test_consume_statistics_are_read_back_and_old_brokers_know_no_pull_offset() -> None:
    offsets = {QUEUE: ConsumedOffset(7, 3, 5, 9), OTHER: ConsumedOffset(0, -1, -1, 0)}
    assert decode_consume_stats(encode_consume_stats(offsets)) == offsets
    assert decode_consume_stats(b'{"offsetTable":{' + KEY + b':{"brokerOffset":7,"consumerOffset":3}}}') == {
        QUEUE: ConsumedOffset(7, 3, -1, 0)
    }


def test_consumer_connections_are_written_in_java_members() -> None:
    info = ConsumerConnection(
        (CONNECTION,), (SUBSCRIPTION,), "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET"
    )
    data = json.loads(info.encode())
    assert data["connectionSet"] == [
        {"clientId": "10.0.0.5@1", "clientAddr": "10.0.0.5:40000", "language": "PYTHON", "version": 479}
    ]
    assert data["subscriptionTable"]["T"]["tagsSet"] == ["a"]
    assert (data["consumeType"], data["messageModel"], data["consumeFromWhere"]) == info[2:]
    assert ConsumerConnection.decode(info.encode()) == info


def test_producer_connections_are_read_back() -> None:
    assert list(ConsumerConnection.decode(encode_connections([CONNECTION])).connections) == [CONNECTION]
    assert list(ConsumerConnection.decode(b"{}").connections) == []


@cases(
    "body",
    [
        b"",
        b"[]",
        b'{"offsetTable":[1],"connectionSet":[[]],"mqTable":[1],"subscriptionTable":[1]}',
        b'{"offsetTable":{"x":{}},"connectionSet":[1],"mqTable":{"x":{}}}',
        b'{"offsetTable":{' + KEY + b':7},"connectionSet":[{}],"mqTable":{' + KEY + b":7}}",
        b'{"offsetTable":{' + KEY + b':{}},"connectionSet":7,"mqTable":{' + KEY + b':{"commitOffset":"x"}}}',
        b'{"offsetTable":{{"topic":"T"}:{}},"connectionSet":[{"clientId":[]}],"mqTable":{7:{}}}',
    ],
)
def test_another_body_raises_a_protocol_error(body: bytes) -> None:
    for read in (
        decode_topic_stats,
        decode_consume_stats,
        ConsumerConnection.decode,
    ):
        with pytest.raises(ProtocolError):
            read(body)
