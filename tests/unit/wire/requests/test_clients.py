"""Heartbeats, members, good-byes."""

from __future__ import annotations

import json

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.model.subscription import SubscriptionData
from rocketapp.wire.requests.clients import (
    BROADCASTING,
    CONSUME_ACTIVELY,
    FROM_FIRST,
    ConsumerData,
    Heartbeat,
    OfGroup,
    UnregisterRequest,
    decode_members,
    encode_members,
)
from tests.cases import cases

TAGGED = SubscriptionData("JT", "TagB || TagA", frozenset({"TagA", "TagB"}), 1795169906244)
RETRIES = SubscriptionData("%RETRY%CG", version=1795169906250)
HEARTBEAT = Heartbeat("10.0.0.5@4711#123456789", ("PG",), (ConsumerData("CG", subscriptions=(TAGGED, RETRIES)),))


def test_a_heartbeat_is_written_in_java_members() -> None:
    assert json.loads(HEARTBEAT.encode()) == {
        "clientID": "10.0.0.5@4711#123456789",
        "producerDataSet": [{"groupName": "PG"}],
        "consumerDataSet": [
            {
                "groupName": "CG",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "unitMode": False,
                "subscriptionDataSet": [
                    {
                        "topic": "JT",
                        "subString": "TagB || TagA",
                        "tagsSet": ["TagA", "TagB"],
                        "codeSet": [2598919, 2598920],
                        "subVersion": 1795169906244,
                        "expressionType": "TAG",
                        "classFilterMode": False,
                    },
                    {
                        "topic": "%RETRY%CG",
                        "subString": "*",
                        "tagsSet": [],
                        "codeSet": [],
                        "subVersion": 1795169906250,
                        "expressionType": "TAG",
                        "classFilterMode": False,
                    },
                ],
            }
        ],
        "heartbeatFingerprint": 0,
        "withoutSub": False,
    }


def test_a_heartbeat_is_read_back() -> None:
    consumer = ConsumerData("G2", CONSUME_ACTIVELY, BROADCASTING, FROM_FIRST)
    for heartbeat in (HEARTBEAT, Heartbeat("c"), Heartbeat("c", (), (consumer,))):
        assert Heartbeat.decode(heartbeat.encode()) == heartbeat


def test_missing_members_have_their_defaults() -> None:
    body = b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{"topic":"T"}]}]}'
    assert Heartbeat.decode(body) == Heartbeat("c", (), (ConsumerData("G", subscriptions=(SubscriptionData("T"),)),))
    assert Heartbeat.decode(b'{"clientID":"c","producerDataSet":null,"consumerDataSet":null}') == Heartbeat("c")


def test_tags_that_only_stand_in_the_expression_are_taken_from_it() -> None:
    body = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"G",'
        b'"subscriptionDataSet":[{"topic":"T","subString":"a||b"}]}]}'
    )
    (consumer,) = Heartbeat.decode(body).consumers
    assert consumer.subscriptions[0].tags == {"a", "b"}


def test_an_sql_expression_has_no_tags() -> None:
    sql = SubscriptionData("T", "a > 5 || b", frozenset(), 1, "SQL92")
    heartbeat = Heartbeat("c", (), (ConsumerData("G", subscriptions=(sql,)),))
    assert Heartbeat.decode(heartbeat.encode()) == heartbeat


@cases(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"clientID":null}',
        b'{"clientID":[]}',
        b'{"clientID":"c","producerDataSet":[{}]}',
        b'{"clientID":"c","producerDataSet":7}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{}]}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{"topic":"T","subString":"||"}]}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{"topic":"T","subVersion":"x"}]}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":' + b"[" * 500 + b"]" * 500 + b"}]}",
    ],
)
def test_what_is_no_heartbeat_raises_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        Heartbeat.decode(body)


def test_members_are_listed_in_the_order_they_came() -> None:
    assert encode_members(["cid2", "cid1"]) == b'{"consumerIdList":["cid2","cid1"]}'
    assert decode_members(b'{"consumerIdList":["cid2","cid1"]}') == ["cid2", "cid1"]
    assert decode_members(b"{}") == []
    for body in (b"", b"[]", b'{"consumerIdList":7}', b'{"consumerIdList":[{}]}'):
        with pytest.raises(ProtocolError):
            decode_members(body)


def test_a_group_that_is_not_left_is_not_named() -> None:
    assert UnregisterRequest("c", consumer_group="G").to_fields() == {"clientID": "c", "consumerGroup": "G"}
    assert UnregisterRequest("c", producer_group="P").to_fields() == {"clientID": "c", "producerGroup": "P"}


@pytest.mark.parametrize(
    "header", [UnregisterRequest("c", "P", "G"), UnregisterRequest("c"), OfGroup("G"), OfGroup("G")]
)
def test_headers_are_read_back(header: UnregisterRequest | OfGroup | OfGroup) -> None:
    assert type(header).from_fields(header.to_fields()) == header
    with pytest.raises(ProtocolError, match="is missing"):
        type(header).from_fields({})
