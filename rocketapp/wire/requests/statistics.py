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

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import SubscriptionData
from rocketapp.wire import lenient_json
from rocketapp.wire.fields import Int32, java_names
from rocketapp.wire.lenient_json import JsonObject, dump, queue_of, text_of
from rocketapp.wire.requests.clients import subscription_members, subscription_of


class TopicOffset(JsonObject, frozen=True, rename=java_names(updated_ms="lastUpdateTimestamp")):
    """The offsets of one queue."""

    min_offset: int
    max_offset: int
    """The offset of the next new message."""
    updated_ms: int = 0
    """When its last message was stored; 0 for an empty queue."""


class ConsumedOffset(JsonObject, frozen=True, rename=java_names(last_ms="lastTimestamp")):
    """The offsets of a group in one queue."""

    broker_offset: int
    """The queue's maximum."""
    consumer_offset: int
    pull_offset: int = -1
    """-1: an old broker does not tell it."""
    last_ms: int = 0
    """When the last consumed message was stored, in milliseconds since 1970; 0 when there is none."""


class ConnectedClient(JsonObject, frozen=True, rename=java_names(address="clientAddr")):
    """One client in a group."""

    client_id: str
    address: str = ""
    language: str = "OTHER"
    version: Int32 = 0


class ConsumerConnection(NamedTuple):
    """The members and subscriptions of a consumer group: the answer to 203."""

    connections: tuple[ConnectedClient, ...]
    subscriptions: tuple[SubscriptionData, ...]
    consume_type: str
    message_model: str
    consume_from: str

    def encode(self) -> bytes:
        return dump(
            {
                "connectionSet": self.connections,
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
                tuple(map(ConnectedClient.of, data.get("connectionSet") or ())),
                tuple(map(subscription_of, (data.get("subscriptionTable") or {}).values())),
                text_of(data.get("consumeType") or ""),
                text_of(data.get("messageModel") or ""),
                text_of(data.get("consumeFromWhere") or ""),
            )


def encode_connections(connections: Iterable[ConnectedClient]) -> bytes:
    """ProducerConnection: the answer to 204."""
    return dump({"connectionSet": list(connections)})


def encode_topic_stats(offsets: Mapping[MessageQueue, TopicOffset]) -> bytes:
    """TopicStatsTable: the answer to 202."""
    return dump({"offsetTable": lenient_json.dump_queue_map(offsets), "topicPutTps": 0.0})


def decode_topic_stats(body: bytes) -> dict[MessageQueue, TopicOffset]:
    """Read the answer to 202; raises ProtocolError."""
    with lenient_json.reading("topic statistics", body) as data:
        return {queue_of(key): TopicOffset.of(held) for key, held in (data.get("offsetTable") or {}).items()}


def encode_consume_stats(offsets: Mapping[MessageQueue, ConsumedOffset]) -> bytes:
    """ConsumeStats: the answer to 208."""
    return dump(_consume_stats(offsets))


def encode_broker_consume_stats(
    address: str, groups: Mapping[str, Iterable[Mapping[MessageQueue, ConsumedOffset]]]
) -> bytes:
    """ConsumeStatsList: the offsets of every group, by topic: the answer to 317."""
    listed = [{group: [_consume_stats(offsets) for offsets in topics]} for group, topics in groups.items()]
    all_done = [done for topics in groups.values() for offsets in topics for done in offsets.values()]
    return dump(
        {
            "brokerAddr": address,
            "consumeStatsList": listed,
            "totalDiff": sum(done.broker_offset - done.consumer_offset for done in all_done),
            "totalInflightDiff": sum(done.pull_offset - done.consumer_offset for done in all_done),
        }
    )


def _consume_stats(offsets: Mapping[MessageQueue, ConsumedOffset]) -> dict[str, Any]:
    return {"consumeTps": 0.0, "offsetTable": lenient_json.dump_queue_map(offsets)}


def decode_consume_stats(body: bytes) -> dict[MessageQueue, ConsumedOffset]:
    """Decode the answer to 208. A pull offset that an old broker omits becomes -1. Raises ProtocolError."""
    with lenient_json.reading("consume statistics", body) as data:
        return {queue_of(key): ConsumedOffset.of(done) for key, done in (data.get("offsetTable") or {}).items()}
