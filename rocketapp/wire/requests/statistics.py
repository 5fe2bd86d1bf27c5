"""Answers to an admin tool: statistics of queues and groups, and connected clients.

Codes: GET_TOPIC_STATS_INFO 202, GET_CONSUMER_CONNECTION_LIST 203,
GET_PRODUCER_CONNECTION_LIST 204, GET_CONSUME_STATS 208, GET_BROKER_CONSUME_STATS 317; the requests are in `admin`.
Java: TopicStatsTable, ConsumeStats, ConsumerConnection, ProducerConnection.

Maps by queue have objects as keys, which Java writes although standard JSON forbids it: see
`wire.lenient_json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import SubscriptionData
from rocketapp.wire import lenient_json
from rocketapp.wire.lenient_json import int32_of, int64_of, text_of
from rocketapp.wire.requests.clients import subscription_members, subscription_of

_encode = msgspec.json.Encoder(order="sorted").encode


class TopicOffset(NamedTuple):
    """The offsets of one queue."""

    min_offset: int
    max_offset: int
    """The offset of the next new message."""
    updated_ms: int
    """When its last message was stored; 0 for an empty queue."""


class ConsumedOffset(NamedTuple):
    """The offsets of a group in one queue."""

    broker_offset: int
    """The queue's maximum."""
    consumer_offset: int
    pull_offset: int
    last_ms: int
    """When the last consumed message was stored, in milliseconds since 1970; 0 when there is none."""


class ConnectedClient(NamedTuple):
    """One client in a group."""

    client_id: str
    address: str
    language: str
    version: int


class ConsumerConnection(NamedTuple):
    """The members and subscriptions of a consumer group: the answer to 203."""

    connections: tuple[ConnectedClient, ...]
    subscriptions: tuple[SubscriptionData, ...]
    consume_type: str
    message_model: str
    consume_from: str

    def encode(self) -> bytes:
        return _encode(
            {
                "connectionSet": list(map(_connection_members, self.connections)),
                "consumeFromWhere": self.consume_from,
                "consumeType": self.consume_type,
                "messageModel": self.message_model,
                "subscriptionTable": {data.topic: subscription_members(data) for data in self.subscriptions},
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> ConsumerConnection:
        """Read the answer to 203; raises ProtocolError."""
        with lenient_json.reading("consumer connections", body) as data:
            return cls(
                tuple(map(_connection_of, data.get("connectionSet") or ())),
                tuple(map(subscription_of, (data.get("subscriptionTable") or {}).values())),
                text_of(data.get("consumeType") or ""),
                text_of(data.get("messageModel") or ""),
                text_of(data.get("consumeFromWhere") or ""),
            )


def encode_connections(connections: Iterable[ConnectedClient]) -> bytes:
    """ProducerConnection: the answer to 204."""
    return _encode({"connectionSet": list(map(_connection_members, connections))})


def encode_topic_stats(offsets: Mapping[MessageQueue, TopicOffset], put_tps: float = 0.0) -> bytes:
    """TopicStatsTable: the answer to 202."""
    table = {
        queue: {"lastUpdateTimestamp": held.updated_ms, "maxOffset": held.max_offset, "minOffset": held.min_offset}
        for queue, held in offsets.items()
    }
    return _encode({"offsetTable": lenient_json.dump_queue_map(table), "topicPutTps": put_tps})


def decode_topic_stats(body: bytes) -> dict[MessageQueue, TopicOffset]:
    """Read the answer to 202; raises ProtocolError."""
    with lenient_json.reading("topic statistics", body) as data:
        return {
            lenient_json.queue_of(key): TopicOffset(
                int64_of(held["minOffset"]), int64_of(held["maxOffset"]), int64_of(held.get("lastUpdateTimestamp") or 0)
            )
            for key, held in (data.get("offsetTable") or {}).items()
        }


def encode_consume_stats(offsets: Mapping[MessageQueue, ConsumedOffset], consume_tps: float = 0.0) -> bytes:
    """ConsumeStats: the answer to 208."""
    return _encode(_consume_stats(offsets, consume_tps))


def encode_broker_consume_stats(
    address: str, groups: Mapping[str, Iterable[Mapping[MessageQueue, ConsumedOffset]]]
) -> bytes:
    """ConsumeStatsList: the offsets of every group, by topic: the answer to 317."""
    listed = [{group: [_consume_stats(offsets, 0.0) for offsets in topics]} for group, topics in groups.items()]
    all_done = [done for topics in groups.values() for offsets in topics for done in offsets.values()]
    return _encode(
        {
            "brokerAddr": address,
            "consumeStatsList": listed,
            "totalDiff": sum(done.broker_offset - done.consumer_offset for done in all_done),
            "totalInflightDiff": sum(done.pull_offset - done.consumer_offset for done in all_done),
        }
    )


def _consume_stats(offsets: Mapping[MessageQueue, ConsumedOffset], consume_tps: float) -> dict[str, Any]:
    table = {
        queue: {
            "brokerOffset": done.broker_offset,
            "consumerOffset": done.consumer_offset,
            "lastTimestamp": done.last_ms,
            "pullOffset": done.pull_offset,
        }
        for queue, done in offsets.items()
    }
    return {"consumeTps": consume_tps, "offsetTable": lenient_json.dump_queue_map(table)}


def decode_consume_stats(body: bytes) -> dict[MessageQueue, ConsumedOffset]:
    """Decode the answer to 208. A pull offset that an old broker omits becomes -1. Raises ProtocolError."""
    with lenient_json.reading("consume statistics", body) as data:
        return {
            lenient_json.queue_of(key): ConsumedOffset(
                int64_of(done["brokerOffset"]),
                int64_of(done["consumerOffset"]),
                int64_of(done.get("pullOffset", -1)),
                int64_of(done.get("lastTimestamp") or 0),
            )
            for key, done in (data.get("offsetTable") or {}).items()
        }


def _connection_members(connection: ConnectedClient) -> dict[str, Any]:
    return {
        "clientAddr": connection.address,
        "clientId": connection.client_id,
        "language": connection.language,
        "version": connection.version,
    }


def _connection_of(members: Any) -> ConnectedClient:
    return ConnectedClient(
        text_of(members["clientId"]),
        text_of(members.get("clientAddr") or ""),
        text_of(members.get("language") or "OTHER"),
        int32_of(members.get("version") or 0),
    )
