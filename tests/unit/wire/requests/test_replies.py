"""Requests, and replies as a broker hands them over."""

from __future__ import annotations

import zlib

import pytest
from msgspec.structs import replace

from rocketapp.wire import properties as names
from rocketapp.wire.layout import encode_record
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.replies import PushReply, ReplyTo, reply_to, request_marks

PUSH = PushReply(
    group="RG",
    topic="DefaultCluster_REPLY_TOPIC",
    queue_id=2,
    sys_flag=0,
    born_ms=1795169647947,
    born_host="10.0.0.7:5000",
    store_host="10.0.0.1:10911",
    stored_ms=1795169648042,
    flag=7,
    properties="CORRELATION_ID\x01c1\x02",
)


def message_of(push: PushReply, body: bytes) -> Message:
    (message,) = decode_records(encode_record(push.record(body)), None)
    return message


def test_a_reply_becomes_a_message() -> None:
    assert PushReply.from_fields(PUSH.to_fields()) == PUSH
    message = message_of(PUSH, b"42")
    assert (message.topic, message.body, message.flag, message.queue_id) == (PUSH.topic, b"42", 7, 2)
    assert (message.born_ms, message.stored_ms, message.born_host) == (PUSH.born_ms, PUSH.stored_ms, "10.0.0.7:5000")
    assert message.properties == {"CORRELATION_ID": "c1"}


def test_a_compressed_reply_is_inflated() -> None:
    assert message_of(replace(PUSH, sys_flag=1), zlib.compress(b"a" * 5000)).body == b"a" * 5000


@pytest.mark.parametrize("host", ["", "localhost:1", "[fd00::2]:5000", "1.2.3.4", "1.2.3.999:5", "/1.2.3.4:x"])
def test_a_host_that_cannot_be_read_keeps_nothing_from_its_reader(host: str) -> None:
    message = message_of(replace(PUSH, born_host=host, sys_flag=16 | 32), b"42")
    assert (message.body, message.born_host) == (b"42", "0.0.0.0:0")


def test_a_request_says_where_its_reply_goes() -> None:
    marks = request_marks("c1", "10.0.0.5@7#1", 2.5)
    assert marks == {"CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "10.0.0.5@7#1", "TTL": "2500"}
    assert reply_to({**marks, "CLUSTER": "DefaultCluster", "colour": "red"}) == ReplyTo(
        "DefaultCluster_REPLY_TOPIC", {"MSG_TYPE": "reply", **marks}
    )


@pytest.mark.parametrize("missing", [names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.CLUSTER])
def test_without_one_of_them_it_is_no_request(missing: str) -> None:
    properties = {**request_marks("c1", "client", 1), "CLUSTER": "DefaultCluster"}
    del properties[missing]
    assert reply_to(properties) is None
