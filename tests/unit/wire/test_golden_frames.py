"""Frames recorded from the Java client and Apache RocketMQ, read and written again.

Both of our ends share `wire`, where a misreading would agree with itself: these are
its witness. Whole frames, byte for byte: tests/golden/test_frames.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.batch import decode_batch, encode_batch
from rocketapp.wire.command import Command
from rocketapp.wire.frame import FrameReader
from rocketapp.wire.layout import decode_record, encode_record
from rocketapp.wire.properties import decode as decode_properties
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests.clients import (
    Heartbeat,
    OfGroup,
    UnregisterRequest,
    decode_members,
    encode_members,
)
from rocketapp.wire.requests.locks import LockBody, decode_locked, encode_locked
from rocketapp.wire.requests.offsets import (
    CommitRequest,
    OffsetResponse,
    QueryOffsetRequest,
    QueueRequest,
    SearchOffsetRequest,
)
from rocketapp.wire.requests.pull import PullRequest, PullResponse
from rocketapp.wire.requests.routes import RouteRequest, decode_cluster_info, decode_route, encode_route
from rocketapp.wire.requests.send import SendRequest, SendResponse
from rocketapp.wire.requests.send_back import SendBackRequest
from rocketapp.wire.requests.statistics import decode_topic_stats, encode_topic_stats
from tests.cases import cases

FRAMES: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "frames.json").read_text(encoding="utf-8")
)


def read(name: str, side: str = "request") -> Command:
    (command,) = FrameReader(1 << 24).feed(bytes.fromhex(FRAMES[name][side]))
    return command


@cases(
    "name, header, left_out",
    [
        ("route", RouteRequest, set()),
        ("route_17", RouteRequest, set()),
        ("route_binary", RouteRequest, set()),
        ("commit_offset", CommitRequest, {"bname"}),
        ("commit_offset_binary", CommitRequest, {"bname"}),
        ("query_offset", QueryOffsetRequest, {"bname"}),
        ("query_offset_22", QueryOffsetRequest, set()),
        ("query_offset_binary", QueryOffsetRequest, {"bname"}),
        ("max_offset", QueueRequest, {"bname", "committed"}),
        ("min_offset", QueueRequest, {"bname"}),
        ("pull", PullRequest, set()),
        ("pull_19", PullRequest, set()),
        ("pull_20", PullRequest, set()),
        ("pull_24", PullRequest, set()),
        ("pull_binary", PullRequest, set()),
        ("send_back", SendBackRequest, set()),
        ("send_v2", SendRequest, set()),
        ("send_v2_binary", SendRequest, set()),
        ("send_batch", SendRequest, set()),
        ("member_list", OfGroup, set()),
        ("group_changed", OfGroup, set()),
        ("unregister", UnregisterRequest, set()),
        ("unregister_binary", UnregisterRequest, set()),
    ],
)
def test_the_fields_of_a_recorded_request_are_ours(name: str, header: Any, left_out: set[str]) -> None:
    fields = read(name).fields
    assert fields is not None
    kept = {key: value for key, value in fields.items() if key not in left_out}
    written = header.from_fields(fields).to_fields()
    # Java leaves the request for standard JSON to its version number.
    written.pop("acceptStandardJsonOnly", None)
    assert written == kept


def test_javas_boundary_is_in_capitals() -> None:
    assert SearchOffsetRequest.from_fields(read("search_offset").fields) == SearchOffsetRequest("GoldenTopic", 1, 1)


@pytest.mark.parametrize("name", ["heartbeat", "heartbeat_binary", "heartbeat_consumer", "heartbeat_consumer_binary"])
def test_a_recorded_heartbeat_is_written_again_byte_for_byte(name: str) -> None:
    body = read(name).body
    assert Heartbeat.decode(body).encode() == body


@pytest.mark.parametrize("name", ["lock", "unlock"])
def test_a_recorded_lock_request_is_written_again_byte_for_byte(name: str) -> None:
    body = read(name).body
    assert LockBody.decode(body).encode() == body


def test_a_recorded_lock_answer_is_written_again_byte_for_byte() -> None:
    body = read("lock", "response").body
    assert encode_locked(decode_locked(body)) == body


def test_a_recorded_member_list_is_written_again_byte_for_byte() -> None:
    body = read("member_list", "response").body
    assert encode_members(decode_members(body)) == body


def test_a_recorded_route_is_written_again_byte_for_byte() -> None:
    body = read("route", "response").body
    assert encode_route(decode_route(body)) == body


def test_a_recorded_cluster_info_is_read_although_its_keys_are_bare() -> None:
    (broker,) = decode_cluster_info(read("cluster_info", "response").body)
    assert (broker.cluster, broker.broker_name) == ("DefaultCluster", "broker-a")
    assert broker.master is not None
    assert broker.master.startswith("127.0.0.1:")


def test_recorded_topic_statistics_are_written_again_byte_for_byte() -> None:
    body = read("topic_stats", "response").body
    offsets = decode_topic_stats(body)
    assert set(offsets) == {MessageQueue("GoldenTopic", "broker-a", queue_id) for queue_id in (0, 1)}
    assert encode_topic_stats(offsets) == body


def test_recorded_answers_with_offsets_are_read() -> None:
    for name in ("query_offset", "max_offset", "min_offset", "search_offset"):
        assert OffsetResponse.from_fields(read(name, "response").fields) == OffsetResponse(0)


def test_recorded_messages_are_read_and_written_again() -> None:
    response = read("pull", "response")
    assert PullResponse.from_fields(response.fields) == PullResponse(0, 3, 0, 3)
    messages = decode_records(response.body, MessageQueue("GoldenTopic", "broker-a", 1))
    assert [(m.offset, m.body, m.tag) for m in messages] == [(0, b"hello golden", "TagA"), (1, b"one", "TagA")]
    assert messages[0].properties["名"] == "值"
    assert messages[0].keys == ["k1", "k2"]
    at, again = 0, b""
    while at < len(response.body):
        record = encode_record(decode_record(response.body, at))
        again += record
        at += len(record)
    assert again == response.body


@pytest.mark.parametrize("name", ["pull_19", "pull_20"])
def test_a_recorded_answer_without_messages_says_where_to_go_on(name: str) -> None:
    response = read(name, "response")
    assert response.body == b""
    assert PullResponse.from_fields(response.fields).next_offset in (1, 3)


def test_a_recorded_batch_is_written_again_byte_for_byte() -> None:
    command = read("send_batch")
    assert SendRequest.from_command(command).batch
    items = decode_batch(command.body)
    assert [item[0] for item in items] == [b"one", b"two"]
    assert decode_properties(items[0][1])["TAGS"] == "TagA"
    assert encode_batch(items) == command.body


def test_recorded_answers_to_sends_are_read() -> None:
    one = SendResponse.from_fields(read("send_v2", "response").fields)
    assert (one.queue_id, one.queue_offset) == (1, 0)
    batch = SendResponse.from_fields(read("send_batch", "response").fields)
    assert (len(batch.message_id.split(",")), batch.queue_offset) == (2, 1)
