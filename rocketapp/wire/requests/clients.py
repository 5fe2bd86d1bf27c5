"""Heartbeats, members of a group, and leaving a group.

Codes: HEART_BEAT 34, UNREGISTER_CLIENT 35, GET_CONSUMER_LIST_BY_GROUP 38, CHECK_CLIENT_CONFIG 46, and from the
broker NOTIFY_CONSUMER_IDS_CHANGED 40. Java: HeartbeatData, ConsumerData,
SubscriptionData, GetConsumerListByGroupResponseBody, CheckClientRequestBody.

The first version of the heartbeat is used (fingerprint 0), which is always complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rocketapp.model.subscription import ALL_TAGS, SubscriptionData, parse_tags
from rocketapp.wire import lenient_json
from rocketapp.wire.fields import Header, java_names
from rocketapp.wire.java import string_hash
from rocketapp.wire.lenient_json import dump, int64_of, text_of

CONSUME_PASSIVELY, CONSUME_ACTIVELY, CONSUME_POP = "CONSUME_PASSIVELY", "CONSUME_ACTIVELY", "CONSUME_POP"
CLUSTERING, BROADCASTING = "CLUSTERING", "BROADCASTING"
FROM_LAST, FROM_FIRST, FROM_TIMESTAMP = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


class ConsumerData(NamedTuple):
    """One consumer group, as a member describes it."""

    group: str
    consume_type: str = CONSUME_PASSIVELY
    message_model: str = CLUSTERING
    consume_from: str = FROM_LAST
    subscriptions: tuple[SubscriptionData, ...] = ()


class Heartbeat(NamedTuple):
    """All groups of one client."""

    client_id: str
    producers: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()

    def encode(self) -> bytes:
        return dump(
            {
                "clientID": self.client_id,
                "consumerDataSet": [_consumer_members(data) for data in self.consumers],
                "heartbeatFingerprint": 0,
                "producerDataSet": [{"groupName": group} for group in self.producers],
                "withoutSub": False,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> Heartbeat:
        """Decode HeartbeatData; missing sets are empty. Raises ProtocolError."""
        with lenient_json.reading("heartbeat", body) as data:
            client_id = text_of(data["clientID"])
            producers = tuple(text_of(member["groupName"]) for member in data.get("producerDataSet") or ())
            consumers = tuple(map(_consumer_of, data.get("consumerDataSet") or ()))
        return cls(client_id, producers, consumers)


def subscription_members(data: SubscriptionData) -> dict[str, Any]:
    """SubscriptionData as JSON members."""
    tags = sorted(data.tags)
    return {
        "classFilterMode": False,
        "codeSet": [string_hash(tag) for tag in tags],
        "expressionType": data.expression_type,
        "subString": data.expression,
        "subVersion": data.version,
        "tagsSet": tags,
        "topic": data.topic,
    }


def encode_check(client_id: str, group: str, data: SubscriptionData) -> bytes:
    """CheckClientRequestBody: would the broker filter so?"""
    return dump(
        {"clientId": client_id, "group": group, "namespace": "", "subscriptionData": subscription_members(data)}
    )


def subscription_of(members: Any) -> SubscriptionData:
    """SubscriptionData from JSON members. Raises KeyError, TypeError, ValueError or AttributeError for others."""
    expression = text_of(members.get("subString") or ALL_TAGS)
    kind = text_of(members.get("expressionType") or "TAG")
    tags = frozenset(map(text_of, members.get("tagsSet") or ()))
    if not tags and kind == "TAG":
        tags = parse_tags(expression)
    return SubscriptionData(text_of(members["topic"]), expression, tags, int64_of(members.get("subVersion") or 0), kind)


def _consumer_members(data: ConsumerData) -> dict[str, Any]:
    return {
        "consumeFromWhere": data.consume_from,
        "consumeType": data.consume_type,
        "groupName": data.group,
        "messageModel": data.message_model,
        "subscriptionDataSet": [subscription_members(subscription) for subscription in data.subscriptions],
        "unitMode": False,
    }


def _consumer_of(members: Any) -> ConsumerData:
    return ConsumerData(
        text_of(members["groupName"]),
        text_of(members.get("consumeType") or CONSUME_PASSIVELY),
        text_of(members.get("messageModel") or CLUSTERING),
        text_of(members.get("consumeFromWhere") or FROM_LAST),
        tuple(map(subscription_of, members.get("subscriptionDataSet") or ())),
    )


class UnregisterRequest(Header, frozen=True, rename=java_names(client_id="clientID")):
    """A client leaves a group."""

    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


class OfGroup(Header, frozen=True):
    """Asks for the members of a group (38), or is a broker's notification that some joined or left it (40)."""

    group: str


def encode_members(client_ids: Iterable[str]) -> bytes:
    return dump({"consumerIdList": list(client_ids)})


def decode_members(body: bytes) -> list[str]:
    """The client ids of a group, in no particular order. Raises ProtocolError."""
    with lenient_json.reading("member list", body) as data:
        return [text_of(client_id) for client_id in data.get("consumerIdList") or ()]
