from __future__ import annotations

import time

import pytest

from rocketapp.broker.store.stored import (
    Stored,
    TagsCodes,
    announced_size,
    blank,
    blank_at,
    candidates,
    parse,
    sound_among,
    stored_ms_of,
)
from rocketapp.model.names import SCHEDULE_TOPIC
from rocketapp.wire.layout import BORN_IPV6, STORE_IPV6, Record, encode_record
from tests.cases import cases
from tests.unit.broker.memory import kept_by
from tests.unit.cpu import cheapest

GOLDEN = bytes.fromhex(
    "000000d1daa320a73610a68600000000000000000000000000000000000000000000000000000000000001a1f872fd4b7f0000010000cce8"
    "000001a1f872fdaa7f000001000078bf0000000000000000000000000000000568656c6c6f025431006f4d53475f524547494f4e01446566"
    "61756c74526567696f6e02554e49515f4b4559014141414202434c55535445520144656661756c74436c7573746572025441475301546167"
    "41024b455953016b31206b32025741495401747275650254524143455f4f4e01747275650275017602"
)
"""A record of Apache RocketMQ, as a pull brought it."""


def is_sound(
    data: bytes, start: int, entry: tuple[int, int, int], queue_id: int, topic: bytes, *, checks_body: bool = True
) -> bool:
    return sound_among(data, start, [entry], queue_id, topic, checks_body=checks_body) == [entry]


def test_a_record_of_apache_is_understood() -> None:
    stored = parse(GOLDEN, 0, 0)
    assert stored is not None
    assert stored[:7] == (0, 209, "T1", 0, 0, 0, 1795169648042)
    assert TagsCodes().of("T1", 0, stored.raw_properties, stored.stored_ms) == 0x27A807
    assert stored_ms_of(GOLDEN) == 1795169648042
    assert is_sound(GOLDEN, 0, (0, 0, 209), 0, b"T1")


def test_the_unused_end_of_a_segment_is_searched_in_no_time() -> None:
    unused = bytes(1 << 20)

    def search() -> float:
        began = time.process_time()
        for _ in range(256):
            assert candidates(unused) == []
        return time.process_time() - began

    assert cheapest(search, within=0.2) < 0.2, "of 256 MiB"
    assert candidates(unused[:4096] + GOLDEN) == [4096]


def test_no_record_is_taken_for_whole_before_its_last_byte() -> None:
    for size in range(len(GOLDEN)):
        torn = GOLDEN[:size] + bytes(1000)
        # All but the last bytes of the properties is covered by lengths and CRC; they end with zeros then.
        stored = parse(torn, 0, 0)
        assert stored is None or 0 in stored.raw_properties
        assert not is_sound(GOLDEN[:size], 0, (0, 0, 209), 0, b"T1")


@cases("flags", [0, BORN_IPV6, STORE_IPV6, BORN_IPV6 | STORE_IPV6])
@cases("topic", ["T", "L" * 127])
def test_every_kind_of_record_says_where_it_belongs(flags: int, topic: str) -> None:
    record = Record(
        topic,
        b"body",
        b"TAGS\x01a\x02",
        3,
        sys_flag=flags,
        queue_offset=7,
        physical_offset=4096,
        stored_ms=1234567890123,
        born_host=bytes(16 if flags & BORN_IPV6 else 4),
        store_host=bytes(16 if flags & STORE_IPV6 else 4),
    )
    data = encode_record(record)
    assert parse(b"junk" + data, 4, 4096) == Stored(
        4096, len(data), topic, 3, 7, flags, 1234567890123, b"TAGS\x01a\x02", record.body
    )
    assert stored_ms_of(data) == 1234567890123
    assert is_sound(b"junk" + data, 4092, (7, 4096, len(data)), 3, topic.encode())
    assert announced_size(data, 0, 4096) == len(data)
    assert announced_size(data, 0, 4097) == 0


@pytest.mark.parametrize(
    ("entry", "queue_id", "topic"),
    [
        ((1, 0, 209), 0, b"T1"),
        ((0, 8, 209), 0, b"T1"),
        ((0, 0, 208), 0, b"T1"),
        ((0, 0, 209), 1, b"T1"),
        ((0, 0, 209), 0, b"T2"),
        ((0, 0, 209), 0, b"T11"),
    ],
)
def test_a_record_of_another_queue_or_place_is_not_sound(
    entry: tuple[int, int, int], queue_id: int, topic: bytes
) -> None:
    data, start = bytes(8) + GOLDEN, 0 if entry[1] else -8
    assert not is_sound(data, start, entry, queue_id, topic)
    assert not is_sound(data, start, entry, queue_id, topic, checks_body=False)


def test_a_changed_body_is_not_sound() -> None:
    data = bytearray(GOLDEN)
    data[88] ^= 1
    assert not is_sound(bytes(data), 0, (0, 0, 209), 0, b"T1")
    assert is_sound(bytes(data), 0, (0, 0, 209), 0, b"T1", checks_body=False)
    assert parse(bytes(data), 0, 0) is None
    assert parse(bytes(data), 0, 0, check_body=False) is not None


@pytest.mark.parametrize("topic", ["..", "a/b", "", "a b", "\0"])
def test_a_record_whose_topic_is_no_name_is_not_read(topic: str) -> None:
    assert parse(encode_record(Record(topic, b"x")), 0, 0) is None


def test_the_blank_end_of_a_segment_tells_its_size() -> None:
    assert blank(4711) == bytes.fromhex("00001267cbd43194")
    assert blank_at(b"xx" + blank(4711), 2) == 4711
    assert blank_at(GOLDEN, 0) == 0
    assert blank_at(b"", 0) == 0


def test_a_delayed_message_is_filed_under_the_time_when_it_is_due() -> None:
    codes = TagsCodes()
    assert codes.of(SCHEDULE_TOPIC, 0, b"TAGS\x01a\x02", 5000) == 6000
    assert codes.of(SCHEDULE_TOPIC, 17, b"", 5000) == 7_205_000
    assert codes.of("T", 0, b"", 5000) == 0


def test_many_different_tags_are_not_remembered_for_ever() -> None:
    codes = TagsCodes()
    first = codes.of("T", 0, b"TAGS\x01tag0\x02", 0)

    def remember() -> None:
        for number in range(20_000):
            codes.of("T", 0, b"TAGS\x01tag%d\x02" % number, 0)

    assert kept_by(remember) < 1_000_000
    assert codes.of("T", 0, b"TAGS\x01tag0\x02", 0) == first
