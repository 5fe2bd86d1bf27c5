"""Stored messages, as pulls carry them."""

from __future__ import annotations

import datetime
import pickle
import struct
import zlib
from typing import Any

import msgspec
import pytest

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire import compression
from rocketapp.wire.batch import encode_batch
from rocketapp.wire.layout import (
    BORN_IPV6,
    INNER_BATCH,
    MAGIC_BLANK,
    NEED_UNWRAP,
    STORE_IPV6,
    Record,
    decode_record,
    encode_record,
)
from rocketapp.wire.properties import encode as encode_properties
from rocketapp.wire.record import Message, decode_records
from tests.cases import cases

PULLED = bytes.fromhex(
    "000000d1daa320a73610a68600000000000000000000000000000000000000000000000000000000000001a1f872fd4b7f0000010000cce8"
    "000001a1f872fdaa7f000001000078bf0000000000000000000000000000000568656c6c6f025431006f4d53475f524547494f4e01446566"
    "61756c74526567696f6e02554e49515f4b4559014141414202434c55535445520144656661756c74436c7573746572025441475301546167"
    "41024b455953016b31206b32025741495401747275650254524143455f4f4e01747275650275017602"
)
"""Taken from a real pull: topic T1, body hello, queue 0, offset 0."""

QUEUE = MessageQueue("T1", "broker-a", 0)
RETRY_QUEUE = MessageQueue("%RETRY%billing", "broker-a", 0)
FD00_2 = bytes.fromhex("fd000000000000000000000000000002")


def record(**changes: Any) -> Record:
    return Record("T1", b"hello", encode_properties({"TAGS": "TagA", "UNIQ_KEY": "AAAB"}))._replace(**changes)


def only(data: bytes, queue: MessageQueue | None = QUEUE, **options: int) -> Message:
    (message,) = decode_records(data, queue, **options)
    return message


def test_a_message_of_a_real_pull_is_read() -> None:
    message = only(PULLED)
    assert (message.topic, message.body, message.tag, message.keys) == ("T1", b"hello", "TagA", ["k1", "k2"])
    assert (message.queue, message.queue_id, message.offset, message.physical_offset) == (QUEUE, 0, 0, 0)
    assert (message.born_ms, message.stored_ms) == (1795169647947, 1795169648042)
    assert message.born_at == datetime.datetime(2026, 11, 20, 10, 14, 7, 947000, tzinfo=datetime.UTC)
    assert message.stored_at - message.born_at == datetime.timedelta(milliseconds=95)
    assert message.born_host == "127.0.0.1:52456"
    assert message.message_id == "AAAB"
    assert message.offset_message_id == "7F000001000078BF0000000000000000"
    assert (message.size, message.flag, message.sys_flag) == (209, 0, 0)
    assert (message.reconsume_times, message.attempt) == (0, 1)
    assert message.properties["u"] == "v"
    assert message.raw_tag() == b"TagA"
    assert message.text() == "hello"


def test_a_record_of_a_real_pull_is_read_and_written_again() -> None:
    assert encode_record(decode_record(PULLED)) == PULLED


def test_the_checksum_of_a_body_is_the_positive_half_of_crc32() -> None:
    assert struct.unpack_from(">i", encode_record(record()), 8)[0] == 907060870


def test_many_records_are_read_in_order() -> None:
    data = b"".join(encode_record(record(queue_offset=n, body=bytes(n))) for n in range(32))
    messages = decode_records(data, QUEUE)
    assert [(m.offset, m.body) for m in messages] == [(n, bytes(n)) for n in range(32)]


def test_an_empty_pull_has_no_messages() -> None:
    assert decode_records(b"", QUEUE) == []


def test_a_message_without_a_unique_key_is_known_by_the_brokers_id() -> None:
    message = only(encode_record(record(raw_properties=b"", physical_offset=2717, store_port=30911)))
    assert message.message_id == message.offset_message_id == "7F000001000078BF0000000000000A9D"
    assert (message.tag, message.keys, message.properties) == (None, [], {})


def test_a_retried_message_shows_the_topic_it_came_from() -> None:
    properties = encode_properties({"RETRY_TOPIC": "orders"})
    data = encode_record(record(topic="%RETRY%billing", raw_properties=properties, reconsume_times=2))
    assert only(data, RETRY_QUEUE).topic == "orders"
    assert only(data, None).topic == "orders"
    assert only(data, RETRY_QUEUE).attempt == 3


def test_a_message_of_a_retry_queue_without_that_property_shows_the_retry_topic() -> None:
    assert only(encode_record(record(topic="%RETRY%billing")), RETRY_QUEUE).topic == "%RETRY%billing"


def test_a_message_that_was_looked_up_takes_its_topic_from_the_record() -> None:
    message = only(PULLED, None)
    assert (message.topic, message.queue) == ("T1", None)
    assert repr(message) == "<Message T1:0 #0 tag=TagA attempt=1>"


def test_reconsume_times_can_be_raised_in_place() -> None:
    message = only(PULLED)
    message.reconsume_times += 1
    assert (message.reconsume_times, message.attempt) == (1, 2)


def test_a_message_says_in_its_repr_where_it_is() -> None:
    data = encode_record(record(topic="orders", queue_id=3, queue_offset=17, reconsume_times=1))
    message = only(data, MessageQueue("orders", "broker-a", 3))
    assert repr(message) == "<Message orders@broker-a:3 #17 tag=TagA attempt=2>"


def test_a_body_is_read_as_text_and_json() -> None:
    assert only(encode_record(record(body=b'{"a":[1]}'))).json() == {"a": [1]}
    with pytest.raises(msgspec.DecodeError):
        only(encode_record(record(body=b"{"))).json()
    with pytest.raises(UnicodeDecodeError):
        only(encode_record(record(body=b"\xff"))).text()


def test_a_long_topic_is_written_as_version_two_and_read() -> None:
    for length in (127, 128, 300):
        topic = "t" * length
        data = encode_record(record(topic=topic))
        assert data[7] == (0xA7 if length == 127 else 0xAB)
        assert decode_record(data).topic == topic
        assert only(data, None).topic == topic
        assert only(data).body == b"hello"


def test_a_topic_is_measured_in_bytes() -> None:
    assert encode_record(record(topic="é" * 64))[7] == 0xAB


@pytest.mark.parametrize(
    ("flag", "hosts"),
    [
        (BORN_IPV6, {"born_host": FD00_2}),
        (STORE_IPV6, {"store_host": FD00_2}),
        (BORN_IPV6 | STORE_IPV6, {"born_host": FD00_2, "store_host": FD00_2}),
    ],
)
def test_ipv6_hosts_are_read_and_written_again(flag: int, hosts: dict[str, bytes]) -> None:
    written = record(sys_flag=flag, born_port=1, store_port=30911, physical_offset=9, queue_offset=5, **hosts)
    data = encode_record(written)
    assert decode_record(data) == written
    message = only(data)
    assert (message.body, message.offset) == (b"hello", 5)
    assert message.born_host == ("[fd00::2]:1" if flag & BORN_IPV6 else "127.0.0.1:1")
    assert len(message.offset_message_id) == (56 if flag & STORE_IPV6 else 32)


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_a_compressed_body_is_inflated_when_it_is_read(kind: str) -> None:
    body = b"hello " * 1000
    packed = compression.compress(body, kind, 5)
    message = only(encode_record(record(body=packed, sys_flag=compression.sys_flag_of(kind))))
    assert message.body == body
    assert message.body is message.body
    assert message.tag == "TagA"
    assert message.size < len(body)


def test_the_body_as_it_is_stored_can_be_copied_without_inflating_it() -> None:
    packed = zlib.compress(b"hello")
    assert only(encode_record(record(body=packed, sys_flag=1))).stored_body == packed
    assert only(encode_record(record(body=b"broken", sys_flag=1))).stored_body == b"broken"
    assert only(PULLED).stored_body == b"hello"


def test_a_body_that_cannot_be_inflated_fails_alone_and_each_time_it_is_read() -> None:
    good = encode_record(record(queue_offset=1))
    bad = encode_record(record(body=b"no zlib", sys_flag=compression.sys_flag_of("zlib")))
    broken, whole = decode_records(bad + good, QUEUE)
    assert whole.body == b"hello"
    for _ in range(2):
        with pytest.raises(ProtocolError, match="broken"):
            _ = broken.body
    assert (broken.message_id, broken.tag, broken.offset) == ("AAAB", "TagA", 0)


def test_a_body_that_inflates_to_too_much_is_refused_when_it_is_read() -> None:
    data = encode_record(record(body=zlib.compress(bytes(1000)), sys_flag=1))
    assert only(data, max_inflated_bytes=1000).body == bytes(1000)
    with pytest.raises(ProtocolError, match="more than 999 bytes"):
        _ = only(data, max_inflated_bytes=999).body


def batch_record(items: bytes, **changes: Any) -> bytes:
    return encode_record(record(body=items, sys_flag=NEED_UNWRAP | INNER_BATCH, queue_offset=40)._replace(**changes))


def test_an_inner_batch_becomes_its_messages() -> None:
    items = encode_batch([(b"one", encode_properties({"TAGS": "x"}), 7), (b"", b"", 0)])
    one, two = decode_records(batch_record(items, reconsume_times=2, queue_id=3), QUEUE)
    assert (one.offset, one.body, one.tag, one.flag, one.sys_flag) == (40, b"one", "x", 7, 0)
    assert (two.offset, two.body, two.tag, two.flag) == (41, b"", None, 0)
    assert {(m.topic, m.queue_id, m.attempt) for m in (one, two)} == {("T1", 3, 3)}


def test_a_compressed_inner_batch_becomes_its_messages() -> None:
    items = zlib.compress(encode_batch([(b"one", b"", 0)]))
    (one,) = decode_records(batch_record(items, sys_flag=NEED_UNWRAP | INNER_BATCH | 1 | 0x300), QUEUE)
    assert (one.body, one.sys_flag & 1) == (b"one", 0)


@pytest.mark.parametrize("items", [b"\x00\x00\x00\x05", encode_batch([(b"one", b"", 0)])[:-1]])
def test_an_inner_batch_that_cannot_be_told_apart_fails_alone(items: bytes) -> None:
    broken, whole = decode_records(batch_record(items) + encode_record(record()), QUEUE)
    with pytest.raises(ProtocolError, match="batch"):
        _ = broken.body
    assert (broken.offset, whole.body) == (40, b"hello")


@pytest.mark.parametrize(
    "data",
    [
        encode_record(record(queue_offset=5, reconsume_times=1)),
        encode_record(record(body=zlib.compress(b"hello"), sys_flag=1)),
        encode_record(record(body=b"broken", sys_flag=1)),
        batch_record(b"\x00"),
    ],
)
def test_a_message_goes_into_another_process(data: bytes) -> None:
    message = only(data)
    message.reconsume_times = 7
    twin = pickle.loads(pickle.dumps(message))
    assert (twin.offset, twin.attempt, twin.topic, twin.tag, twin.queue) == (message.offset, 8, "T1", "TagA", QUEUE)
    try:
        body = message.body
    except ProtocolError as error:
        with pytest.raises(ProtocolError) as raised:
            _ = twin.body
        assert str(raised.value) == str(error)
    else:
        assert twin.body == body


@cases("at", [0, 209])
@cases(
    "position, value",
    [
        (0, 208),
        (0, 210),
        (0, 0),
        (0, -1),
        (0, 2**31 - 1),
        (4, 0),
        (4, MAGIC_BLANK),
        (84, -1),
        (84, 2**31 - 1),
        (84, 4),
        (84, 6),
    ],
)
def test_a_damaged_record_raises_wherever_it_stands(at: int, position: int, value: int) -> None:
    data = bytearray(PULLED * 2)
    struct.pack_into(">i", data, at + position, value)
    with pytest.raises(ProtocolError):
        decode_records(bytes(data), QUEUE)
    with pytest.raises(ProtocolError):
        decode_records(bytes(data), None)
    with pytest.raises(ProtocolError):
        decode_record(bytes(data), at)


def test_a_record_that_is_cut_short_raises_wherever_it_was_cut() -> None:
    for cut in range(1, 209):
        for queue in (QUEUE, None):
            with pytest.raises(ProtocolError):
                decode_records(PULLED + PULLED[:cut], queue)
        with pytest.raises(ProtocolError):
            decode_record(PULLED[:cut])


def test_a_record_whose_body_was_changed_is_refused_by_the_strict_reader() -> None:
    data = PULLED.replace(b"hello", b"hallo")
    with pytest.raises(ProtocolError, match="CRC"):
        decode_record(data)
    assert decode_record(b"xx" + PULLED + b"yy", 2).body == b"hello"


@pytest.mark.parametrize(
    "changes",
    [
        {"born_host": FD00_2},
        {"store_host": b""},
        {"sys_flag": STORE_IPV6},
        {"raw_properties": bytes(32768)},
        {"topic": "t" * 32768},
    ],
)
def test_what_no_record_can_hold_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        encode_record(record(**changes))


def test_a_time_that_no_calendar_knows_raises_a_protocol_error() -> None:
    message = only(encode_record(record(born_ms=2**62)))
    assert message.born_ms == 2**62
    with pytest.raises(ProtocolError, match="out of the range of dates"):
        _ = message.born_at
