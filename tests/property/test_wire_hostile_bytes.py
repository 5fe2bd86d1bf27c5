"""Whatever bytes come in, decoders raise ProtocolError or accept them: never another error, and never slowly."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketapp.broker import pop_checkpoints
from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.pulled import Acks, Handle
from rocketapp.wire import header_binary, header_json, lenient_json, properties
from rocketapp.wire.batch import decode_batch, encode_batch
from rocketapp.wire.command import Command
from rocketapp.wire.compression import compress, inflate, sys_flag_of
from rocketapp.wire.frame import FrameReader, encode
from rocketapp.wire.layout import BORN_IPV6, INNER_BATCH, NEED_UNWRAP, Record, decode_record, encode_record
from rocketapp.wire.message_id import parse_offset_id
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests import (
    admin,
    assignment,
    clients,
    direct,
    locks,
    messages,
    offsets,
    pop,
    pull,
    reset_offset,
    routes,
    running_info,
    send,
    send_back,
    statistics,
)

SLOWEST = timedelta(seconds=2)
"""All decoders together for one input, on a machine that others use as well."""

QUEUE = MessageQueue("T", "b", 0)
_PLAIN = Record("T", b"hello", properties.encode({"TAGS": "a", "UNIQ_KEY": "A", "KEYS": "k"}))
_ITEMS = encode_batch([(b"one", b"k\x01v\x02", 1), (b"two", b"", 0)])
_CHECKPOINT = pop_checkpoints.PopCheckpoint(
    [4, 7], key=pop_checkpoints.Key("G", "T", 0, 0, 1), invisible_ms=2, revive_queue=0
)
_KEY = b'{"brokerName":"b","queueId":0,"topic":"T"}'
SAMPLES = [
    encode_record(_PLAIN) + encode_record(_PLAIN._replace(topic="t" * 200)),
    encode_record(_PLAIN._replace(sys_flag=BORN_IPV6, born_host=bytes(16))),
    encode_record(_PLAIN._replace(body=compress(b"hello" * 50, "zlib", 5), sys_flag=sys_flag_of("zlib"))),
    encode_record(_PLAIN._replace(body=compress(b"hello" * 50, "zstd", 5), sys_flag=sys_flag_of("zstd"))),
    encode_record(_PLAIN._replace(body=_ITEMS, sys_flag=NEED_UNWRAP | INNER_BATCH)),
    encode(Command(11, {"topic": "T"}, b"body", remark="r")),
    encode(Command(11, {"topic": "T"}, b"body", remark="r", serializer=1)),
    encode(Command(11, {"topic": "T"}, remark="r"))[8:],
    encode(Command(11, {"topic": "T"}, remark="r", serializer=1))[8:],
    _ITEMS,
    compress(b"hello" * 50, "zlib", 5),
    compress(b"hello" * 50, "lz4", 5),
    compress(b"hello" * 50, "zstd", 5),
    b'{"offsetTable":{' + _KEY + b':{"minOffset":0,"maxOffset":1,"brokerOffset":1,"consumerOffset":0}}}',
    b'{"brokerDatas":[{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"c"}],"queueDatas":[{"brokerName":"b",'
    b'"perm":6,"readQueueNums":2,"writeQueueNums":2}],"brokerAddrTable":{"b":{"brokerName":"b"}}}',
    clients.Heartbeat("c", ("p",), (clients.ConsumerData("G"),)).encode(),
    locks.LockBody("G", "C", [QUEUE]).encode(),
    assignment.RequestMode("T", "G", "POP", 0).encode(),
    pop.encode_acks("G", "T", "b", [Acks(Handle(0, 1, 2, 3, 0, "b", 0, 4), [4, 7])]),
    _CHECKPOINT.record("R", "b", 1).body,
    b'{"so":0,"pt":1,"it":2,"n":2147483647,"q":0,"t":"T","c":"G"}',
    _CHECKPOINT.record("R", "b", 1, [4, 7]).body,
]


def _everything_of_messages(data: bytes) -> None:
    """Read what a handler and the engine can read of each message."""
    for queue in (QUEUE, None):
        for message in decode_records(data, queue, max_inflated_bytes=10_000):
            repr(message)
            for name in ("topic", "tag", "keys", "properties", "message_id", "attempt", "size", "born_host", "flag"):
                getattr(message, name)
            for name in ("body", "born_at", "stored_at"):
                try:
                    getattr(message, name)
                except ProtocolError:
                    continue


DECODERS: list[Callable[[bytes], Any]] = [
    _everything_of_messages,
    decode_record,
    decode_batch,
    lambda data: FrameReader(1 << 20).feed(data),
    lambda data: header_json.decode(data, b""),
    lambda data: header_binary.decode(data, b""),
    lenient_json.loads,
    properties.decode,
    properties.tag_of,
    lambda data: parse_offset_id(data.decode("latin-1")),
    *(lambda data, kind=kind: inflate(data, sys_flag_of(kind), 10_000) for kind in ("zlib", "lz4", "zstd")),
    routes.decode_route,
    routes.decode_cluster_info,
    routes.decode_topic_list,
    clients.Heartbeat.decode,
    clients.decode_members,
    direct.DirectResult.decode,
    assignment.AssignmentQuestion.decode,
    assignment.RequestMode.decode,
    assignment.decode_assigned,
    pop.decode_acks,
    lambda data: pop_checkpoints.read(b"TAGS\x01ck\x02", data, 0),
    lambda data: pop_checkpoints.read(b"TAGS\x01bAck\x02", data, 0),
    locks.LockBody.decode,
    locks.decode_locked,
    admin.decode_topic_config,
    admin.decode_group_list,
    admin.decode_groups,
    admin.decode_broker_config,
    reset_offset.decode_reset,
    running_info.RunningInfo.decode,
    statistics.decode_topic_stats,
    statistics.decode_consume_stats,
    statistics.ConsumerConnection.decode,
]


def longest_problem(data: bytes) -> int:
    """Every decoder takes these bytes, or refuses them with a ProtocolError; characters of the longest one."""
    longest = 0
    for decode in DECODERS:
        try:
            decode(data)
        except ProtocolError as error:
            longest = max(longest, len(str(error)))
    return longest


LINE = 1000
"""Characters: a problem goes into a log line."""


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A sample with bytes changed, cut out, put in, or said twice."""
    data = bytearray(draw(st.sampled_from(SAMPLES)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 8)))
        patch = draw(
            st.binary(max_size=8)
            | st.sampled_from([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"[", b"{", b'"', b"\\u"])
        )
        data[at:end] = patch
    return bytes(data)


@given(st.binary(max_size=300))
@example(b"[" * 100_000)
@example(b'{"a":' * 50_000)
@example(b'{0:"' + b"x" * 100_000)
@example(b'{"consumerIdList":' + b"[" * 900 + b"]" * 900 + b"}")
@example(b'{"topicList":[' + b"9" * 6000 + b"]}")
@example(b"9" * 6000)
@example(b"{" + b"9" * 6000 + b":1}")
@settings(max_examples=200, deadline=SLOWEST)
def test_random_bytes(data: bytes) -> None:
    assert longest_problem(data) < LINE


@given(mutated())
@settings(max_examples=600, deadline=SLOWEST)
def test_damaged_samples(data: bytes) -> None:
    assert longest_problem(data) < LINE


_VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("ab0")
_NAMES = st.sampled_from(
    [
        *("brokerName", "queueId", "topic", "clientID", "groupName", "consumerDataSet", "producerDataSet", "tagsSet"),
        *("subscriptionDataSet", "mqSet", "lockOKMQSet", "offsetTable", "mqTable", "connectionSet", "queueDatas"),
        *("brokerDatas", "brokerAddrs", "topicList", "groupList", "table", "consumerIdList", "subVersion", "code"),
        *("extFields", "remark", "topicName", "attributes", "brokerAddrTable", "properties", "subString", "opaque"),
    ]
)


@given(
    st.recursive(
        _VALUES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
        max_leaves=12,
    )
)
@settings(max_examples=400, deadline=SLOWEST)
def test_the_right_names_with_the_wrong_values(value: object) -> None:
    assert longest_problem(msgspec.json.encode(value)) < LINE


@given(
    st.sampled_from(
        [
            routes.RouteRequest,
            clients.UnregisterRequest,
            clients.OfGroup,
            offsets.QueryOffsetRequest,
            offsets.CommitRequest,
            offsets.QueueRequest,
            offsets.SearchOffsetRequest,
            offsets.OffsetResponse,
            pull.PullRequest,
            pull.PullResponse,
            send.SendRequest,
            send.SendResponse,
            send_back.SendBackRequest,
            admin.UpdateTopicRequest,
            admin.ConsumerGroupRequest,
            admin.RunningInfoRequest,
            direct.DirectRequest,
            messages.QueryRequest,
            messages.ViewRequest,
            reset_offset.ResetOffsetRequest,
        ]
    ),
    st.data(),
)
@settings(max_examples=300, deadline=SLOWEST)
def test_fields_of_any_text(header: Any, data: st.DataObject) -> None:
    known = [*"abcdefghijklmn", "topic", "queueId", "queueOffset", "sysFlag", "offset", "attributes", "perm", "group"]
    values = st.text(max_size=5) | st.sampled_from(["1", "-1", "1e5", "9" * 30, "١", "1_0", " 1", "true"])
    fields = data.draw(st.none() | st.dictionaries(st.sampled_from(known), values, max_size=20))
    try:
        header.from_fields(fields)
    except ProtocolError as error:
        assert "field" in str(error)
