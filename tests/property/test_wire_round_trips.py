"""What wire writes it reads back: every codec, with whatever values hypothesis finds."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import BrokerData, QueueData, TopicRoute
from rocketapp.model.subscription import SubscriptionData
from rocketapp.wire import properties
from rocketapp.wire.batch import decode_batch, encode_batch
from rocketapp.wire.command import Command
from rocketapp.wire.compression import compress, inflate, sys_flag_of
from rocketapp.wire.frame import FrameReader, encode
from rocketapp.wire.layout import BORN_IPV6, STORE_IPV6, Record, decode_record, encode_record
from rocketapp.wire.lenient_json import dump_queue_map, loads, queue_of
from rocketapp.wire.message_id import offset_id, parse_offset_id
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests.admin import TopicConfig, UpdateTopicRequest
from rocketapp.wire.requests.clients import ConsumerData, Heartbeat
from rocketapp.wire.requests.locks import LockBody
from rocketapp.wire.requests.offsets import CommitRequest, QueryOffsetRequest, SearchOffsetRequest
from rocketapp.wire.requests.pull import PullRequest, PullResponse
from rocketapp.wire.requests.routes import decode_cluster_info, decode_route, encode_cluster_info, encode_route
from rocketapp.wire.requests.send import SendRequest, SendResponse
from rocketapp.wire.requests.send_back import SendBackRequest
from rocketapp.wire.requests.statistics import (
    ConsumedOffset,
    TopicOffset,
    decode_consume_stats,
    decode_topic_stats,
    encode_consume_stats,
    encode_topic_stats,
)

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
named = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20)
fields = st.dictionaries(text, text, max_size=6)
queues = st.builds(MessageQueue, text, text, int32)
headers = (
    st.builds(QueryOffsetRequest, text, text, int32, st.none() | st.booleans())
    | st.builds(CommitRequest, text, text, int32, int64)
    | st.builds(SearchOffsetRequest, text, int32, int64, st.sampled_from(["lower", "upper"]))
    | st.builds(
        PullRequest,
        *(text, text, int32, int64, int32, int32, int64, int64, int64),
        expression=st.none() | text,
        expression_type=text,
        max_bytes=st.none() | int32,
        broker_name=st.none() | text,
    )
    | st.builds(PullResponse, int64, int64, int64, int64)
    | st.builds(
        SendRequest,
        *(text, text, text, int32, int32, int32, int64, int32, text, int32),
        max_reconsume_times=st.none() | int32,
        batch=st.booleans(),
        broker_name=st.none() | text,
    )
    | st.builds(SendResponse, text, int32, int64, st.none() | text)
    | st.builds(
        SendBackRequest, int64, text, int32, st.none() | text, st.none() | text, st.none() | int32, st.none() | text
    )
    | st.builds(
        UpdateTopicRequest,
        st.builds(TopicConfig, text, int32, int32, int32, text, int32, st.booleans()),
        text,
        st.dictionaries(st.text("abc.", min_size=1, max_size=5), st.none() | st.text("abc=+-", max_size=5), max_size=3),
    )
)


@given(
    code=int16, ext=st.none() | fields, body=st.binary(max_size=64), opaque=int32, flag=int32, remark=st.none() | text
)
def test_a_command_with_a_json_header(
    code: int, ext: dict[str, str] | None, body: bytes, opaque: int, flag: int, remark: str | None
) -> None:
    written = Command(code, ext, body, opaque=opaque, flag=flag, remark=remark)
    (command,) = FrameReader(1 << 24).feed(encode(written))
    assert (command.code, command.fields, command.body) == (code, ext, body)
    assert (command.opaque, command.flag, command.remark, command.language) == (opaque, flag, remark, "PYTHON")


@given(code=int16, ext=fields, body=st.binary(max_size=64), opaque=int32, flag=int32, remark=text, version=int16)
def test_a_command_with_a_binary_header(
    code: int, ext: dict[str, str], body: bytes, opaque: int, flag: int, remark: str, version: int
) -> None:
    written = Command(code, ext, body, opaque=opaque, flag=flag, remark=remark, version=version, serializer=1)
    (command,) = FrameReader(1 << 24).feed(encode(written))
    # Texts of length zero are null in this form, and a header without a field has no fields.
    kept = {name: value for name, value in ext.items() if value} or (None if not ext else {})
    assert (command.code, command.fields, command.body, command.version) == (code, kept, body, version)
    assert (command.opaque, command.flag, command.remark, command.serializer) == (opaque, flag, remark or None, 1)


@given(bodies=st.lists(st.binary(max_size=80), max_size=8), data=st.data())
def test_however_the_bytes_arrive_the_same_commands_come_out(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(
        encode(Command(11, {"n": "x"}, body, opaque=n, serializer=n % 2)) for n, body in enumerate(bodies)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader = FrameReader(1024)
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[start:stop])
    assert [(command.opaque, command.body) for command in found] == list(enumerate(bodies))


@given(headers)
def test_every_header(header: Any) -> None:
    assert type(header).from_fields(header.to_fields()) == header


@given(st.dictionaries(named, named, max_size=8))
def test_properties(found: dict[str, str]) -> None:
    assert properties.decode(properties.encode(found)) == found


entries = st.lists(
    st.sampled_from([b"TAGS", b"TAG", b"KEYS", b"", b"xTAGS"])
    .flatmap(lambda name: st.tuples(st.just(name), st.sampled_from([b"\x01", b"", b"\x01TAGS\x01"])))
    .flatmap(lambda pair: st.tuples(st.just(pair[0] + pair[1]), st.sampled_from([b"", b"a", b"b", "é".encode()]))),
    max_size=6,
).map(lambda parts: b"\x02".join(b"".join(part) for part in parts))


@given(entries | st.lists(st.sampled_from([b"TAGS", b"\x01", b"\x02", b"x"]), max_size=12).map(b"".join))
def test_the_quick_way_to_the_tag_agrees_with_the_slow_one(raw: bytes) -> None:
    slow = properties.decode(raw).get("TAGS")
    quick = properties.tag_of(raw)
    assert (None if quick is None else quick.decode()) == slow


@given(st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40), int32), max_size=6))
def test_batches(items: list[tuple[bytes, bytes, int]]) -> None:
    assert decode_batch(encode_batch(items)) == items


@st.composite
def records(draw: st.DrawFn) -> Record:
    flag = draw(st.sampled_from([0, BORN_IPV6, STORE_IPV6, BORN_IPV6 | STORE_IPV6]))
    return Record(
        topic=draw(text | st.just("t" * 200)),
        body=draw(st.binary(max_size=64)),
        raw_properties=draw(st.dictionaries(named, named, max_size=3).map(properties.encode) | st.binary(max_size=30)),
        queue_id=draw(int32),
        flag=draw(int32),
        queue_offset=draw(int64),
        physical_offset=draw(int64),
        sys_flag=flag,
        born_ms=draw(int64),
        born_host=draw(st.binary(min_size=16, max_size=16) if flag & BORN_IPV6 else st.binary(min_size=4, max_size=4)),
        born_port=draw(int32),
        stored_ms=draw(int64),
        store_host=draw(
            st.binary(min_size=16, max_size=16) if flag & STORE_IPV6 else st.binary(min_size=4, max_size=4)
        ),
        store_port=draw(int32),
        reconsume_times=draw(int32),
        prepared_offset=draw(int64),
    )


@given(st.lists(records(), max_size=4))
def test_records_and_the_messages_made_of_them(written: list[Record]) -> None:
    pieces = [encode_record(record) for record in written]
    assert [decode_record(piece) for piece in pieces] == written
    for queue in (MessageQueue("T", "b", 0), None):
        messages = decode_records(b"".join(pieces), queue)
        assert [(m.body, m.raw_properties, m.offset, m.size, m.reconsume_times) for m in messages] == [
            (record.body, record.raw_properties, record.queue_offset, len(piece), record.reconsume_times)
            for record, piece in zip(written, pieces, strict=True)
        ]


@given(st.binary(max_size=2000), st.sampled_from(["zlib", "lz4", "zstd"]))
def test_compression(body: bytes, kind: str) -> None:
    assert inflate(compress(body, kind, 5), sys_flag_of(kind), len(body)) == body


@given(st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), int32, int64)
def test_offset_ids(host: bytes, port: int, offset: int) -> None:
    assert parse_offset_id(offset_id(host, port, offset)) == (host, port, offset)


@given(st.dictionaries(queues, int64, max_size=4))
def test_maps_by_queue(table: dict[MessageQueue, int]) -> None:
    assert {queue_of(key): value for key, value in loads(bytes(dump_queue_map(table))).items()} == table


subscriptions = st.builds(SubscriptionData, text, text.map(lambda t: "x" + t), st.frozensets(named, min_size=1), int64)
consumers = st.builds(ConsumerData, text, named, named, named, st.lists(subscriptions, max_size=3).map(tuple))


@given(st.builds(Heartbeat, text, st.lists(text, max_size=3).map(tuple), st.lists(consumers, max_size=2).map(tuple)))
def test_heartbeats(heartbeat: Heartbeat) -> None:
    assert Heartbeat.decode(heartbeat.encode()) == heartbeat


@given(st.builds(LockBody, text, text, st.lists(queues, max_size=4)))
def test_lock_requests(body: LockBody) -> None:
    assert LockBody.decode(body.encode()) == body


counts = st.integers(0, 65535)
brokers = st.builds(BrokerData, text, text, st.dictionaries(int64, text, max_size=3))
route_queues = st.builds(QueueData, text, counts, counts, int32, int32)


@given(
    st.builds(TopicRoute, st.lists(route_queues, max_size=3).map(tuple), st.lists(brokers, max_size=3).map(tuple), text)
)
def test_routes(route: TopicRoute) -> None:
    assert decode_route(encode_route(route)) == route


@given(st.lists(brokers, max_size=4, unique_by=lambda broker: broker.broker_name))
def test_cluster_info(found: list[BrokerData]) -> None:
    read = decode_cluster_info(encode_cluster_info(found))
    assert {broker.broker_name: broker for broker in read} == {broker.broker_name: broker for broker in found}
    assert len(read) == len(found)


@given(
    st.dictionaries(queues, st.builds(TopicOffset, int64, int64, int64), max_size=3),
    st.dictionaries(queues, st.builds(ConsumedOffset, int64, int64, int64, int64), max_size=3),
)
def test_statistics(held: dict[MessageQueue, TopicOffset], done: dict[MessageQueue, ConsumedOffset]) -> None:
    assert decode_topic_stats(encode_topic_stats(held)) == held
    assert decode_consume_stats(encode_consume_stats(done)) == done
