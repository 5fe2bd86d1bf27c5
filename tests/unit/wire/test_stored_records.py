"""Records that are counted and not decoded say the same as messages that are."""

from __future__ import annotations

from typing import Any

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire import compression
from rocketapp.wire.batch import encode_batch
from rocketapp.wire.layout import INNER_BATCH, NEED_UNWRAP, Record, encode_record
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.stored_records import StoredRecords, stored_records
from tests.cases import cases

QUEUE = MessageQueue("orders", "broker-a", 3)


def record(offset: int, body: bytes = b"tea", **changes: Any) -> bytes:
    known: dict[str, Any] = {
        "topic": "orders",
        "body": body,
        "raw_properties": b"TAGS\x01a\x02",
        "queue_id": 3,
        "queue_offset": offset,
        "born_ms": 1,
        "born_port": 2,
        "stored_ms": 3,
        "store_port": 4,
    }
    return encode_record(Record(**(known | changes)))


def told(messages: Any) -> list[tuple[int, bytes, bytes]]:
    return [(message.offset, message.body, message.raw_properties) for message in messages]


USUAL = b"".join(record(offset, b"x" * offset) for offset in (5, 6, 9))
UNUSUAL = {
    "compressed": record(6, compression.compress(b"coffee", "zlib", 5), sys_flag=compression.sys_flag_of("zlib")),
    "long topic": record(6, topic="t" * 200),
    "inner batch": record(6, encode_batch([(b"one", b"", 0), (b"two", b"", 0)]), sys_flag=NEED_UNWRAP | INNER_BATCH),
}


def found(data: bytes) -> StoredRecords:
    records = stored_records(data, QUEUE)
    assert records is not None
    return records


@pytest.mark.parametrize("data", [USUAL, *(USUAL[:0] + record(5) + one for one in UNUSUAL.values())])
def test_their_messages_are_those_of_a_pull(data: bytes) -> None:
    records, messages = found(data), decode_records(data, QUEUE)
    assert told(records.messages()) == told(messages)
    assert (len(records), records.offset, records.end) == (len(messages), 5, messages[-1].offset + 1)
    assert records.size == sum(message.size for message in messages)
    assert records.queue is QUEUE
    assert records.stored_ms == messages[0].stored_ms == 3


def test_usual_records_are_where_they_are_said_to_begin() -> None:
    records = found(USUAL)
    assert not records.are_decoded
    assert [told(decode_records(records.data[start:], QUEUE))[0][0] for start in records.starts] == [5, 6, 9]


@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_records_are_messages_at_once(kind: str) -> None:
    records = found(record(5) + UNUSUAL[kind])
    assert records.are_decoded
    assert not records.starts


@cases("data", [USUAL, record(5) + record(6, topic="t" * 200) + record(9)], ids=["usual", "unusual"])
@cases("offset, left", [(0, [5, 6, 9]), (5, [5, 6, 9]), (6, [6, 9]), (7, [9]), (9, [9]), (10, [])])
def test_what_lies_below_an_offset_is_cut_off(data: bytes, offset: int, left: list[int]) -> None:
    rest = found(data).since(offset)
    assert [message.offset for message in rest.messages()] == left if rest else not left
    if rest:
        assert (len(rest), rest.offset, rest.end) == (len(left), left[0], 10)
        assert rest.size == sum(message.size for message in rest.messages())


def test_an_empty_pull_has_none() -> None:
    assert stored_records(b"", QUEUE) is None


@pytest.mark.parametrize(
    "data", [USUAL[:-1], USUAL[:100], USUAL + b"\0", b"\0\0\0\0" + USUAL[4:]], ids=["end", "middle", "more", "size 0"]
)
def test_records_that_do_not_lie_one_behind_the_other_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        stored_records(data, QUEUE)


@pytest.mark.parametrize("length", [0, 4, 6, 2**31, 2**32 - 1])
def test_a_record_whose_parts_are_not_as_long_as_it_is_refused(length: int) -> None:
    data = bytearray(record(5, b"\0" * 5) + USUAL)
    data[84:88] = length.to_bytes(4, "big")
    with pytest.raises(ProtocolError):
        stored_records(bytes(data), QUEUE)


def test_messages_that_were_decoded_are_records_too() -> None:
    messages: list[Message] = decode_records(USUAL, QUEUE)[1:]
    records = StoredRecords.of(messages, QUEUE)
    assert (len(records), records.offset, records.end) == (2, 6, 10)
    assert records.messages() is messages
