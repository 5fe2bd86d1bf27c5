"""Checks a record in the commit log, and reads the fields of it that consume queues need.

Rule: a record counts only if its own physical offset, its lengths and the CRC of its body
agree. The format has no checksum of the properties. A torn write of them
is recognised by its zeros, because the store never accepts properties that contain one. Reads leave
the CRC out where the log is trusted.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from rocketapp.errors import ProtocolError
from rocketapp.model.names import DELAY_SECONDS, SCHEDULE_TOPIC, topic_problem
from rocketapp.wire.java import tags_code
from rocketapp.wire.layout import (
    BORN_IPV6,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    STORE_IPV6,
    TRANSACTION_PREPARED,
    take_apart,
)
from rocketapp.wire.properties import tag_of

UNREADABLE = b"\xff"
"""What a sector reads as that the disk does not give back: no zeros, which would look like the end of the log, and no
text, which properties are.
"""
HEAD_BYTES = 88
"""Bytes before the body of a record with IPv4 hosts. Every record is longer."""

_HEAD = struct.Struct(">iiiiiqqi44xi")
_BLANK = struct.Struct(">ii")
_TIME = struct.Struct(">q")
_MANY_TAGS = 2048
_MAGICS = tuple(magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))


class Stored(NamedTuple):
    """One record in the log: what those need of it who follow the log."""

    physical: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    stored_ms: int
    raw_properties: bytes
    body: bytes = b""
    """The stored body, which may be compressed."""

    @property
    def is_queued(self) -> bool:
        """False for prepared and rolled-back transaction records, which are logged but not shown to consumers."""
        return not self.sys_flag & TRANSACTION_PREPARED


def blank_at(data: bytes, at: int) -> int:
    """The size of the blank record at `at`, which reaches to the end of its segment; 0 if there is none."""
    if len(data) < at + 8:
        return 0
    size, magic = _BLANK.unpack_from(data, at)
    return size if magic == MAGIC_BLANK and size >= 8 else 0


def blank(size: int) -> bytes:
    """The record that fills the unused end of a segment."""
    return _BLANK.pack(size, MAGIC_BLANK)


def announced_size(data: bytes, at: int, physical: int) -> int:
    """The size of the record at `at` if its head is correct, otherwise 0. `data` may be shorter than the record."""
    if len(data) < at + HEAD_BYTES:
        return 0
    head = _HEAD.unpack_from(data, at)
    return head[0] if head[0] > HEAD_BYTES and head[1] in (MAGIC_V1, MAGIC_V2) and head[6] == physical else 0


def parse(data: bytes, at: int, physical: int, *, check_body: bool = True) -> Stored | None:
    """The record at `at`; None if it is incomplete or damaged."""
    size = announced_size(data, at, physical)
    if not size or len(data) < at + size:
        return None
    try:
        fixed, body, topic, raw_properties, _ = take_apart(data, at)
    except (ProtocolError, IndexError, struct.error):
        return None
    _, _, crc, queue_id, _, queue_offset, _, sys_flag, _, _, stored_ms, *_ = fixed
    if check_body and zlib.crc32(body) & 0x7FFFFFFF != crc:
        return None
    name = topic.decode("ascii", "replace")
    if topic_problem(name) or queue_id < 0 or queue_offset < 0:
        return None
    return Stored(physical, size, name, queue_id, queue_offset, sys_flag, stored_ms, raw_properties, body)


def is_empty(data: bytes) -> bool:
    """Whether nothing was written there. The unused end of a segment is long, and no search is as fast as this."""
    return data == bytes(len(data))


def candidates(data: bytes, at: int = 0) -> list[int]:
    """Where a record or a blank may begin from `at` on: four bytes before each magic number."""
    found = list[int]()
    if is_empty(data):
        return found
    for magic in _MAGICS:
        place = data.find(magic, at + 4)
        while place >= 0:
            found.append(place - 4)
            place = data.find(magic, place + 1)
    return sorted(found)


def next_sound(data: bytes, at: int, position: int, end: int) -> int:
    """Where a whole record begins from `at` on, or the blank of the segment that ends at `end`; -1 if nowhere.

    `position`: that of `data`. What lies behind `end` does not count.
    """
    for place in candidates(data, at):
        if position + place > end:
            break
        if position + place + blank_at(data, place) == end or parse(data, place, position + place):
            return place
    return -1


def parse_all(data: bytes) -> Iterator[Stored]:
    """Records that stand one behind the other, as a read gives them, which has checked them."""
    at = 0
    while at < len(data) and (stored := parse(data, at, _HEAD.unpack_from(data, at)[6], check_body=False)):
        yield stored
        at += stored.size


def stored_ms_of(data: bytes) -> int:
    """The store time of a record; `data` contains at least its first 88 bytes."""
    sys_flag: int = _HEAD.unpack_from(data)[7]
    stored: int = _TIME.unpack_from(data, 68 if sys_flag & BORN_IPV6 else 56)[0]
    return stored


def sound_among(
    data: bytes, start: int, entries: list[tuple[int, int, int]], queue_id: int, topic: bytes, *, checks_body: bool
) -> list[tuple[int, int, int]]:
    """The entries (queue offset, physical offset, size) whose record is undamaged in `data`.

    `start` is the log position at which `data` begins. Every pulled message passes here.
    """
    sound = []
    behind_body = bytes((len(topic),)) + topic
    others = HEAD_BYTES + len(behind_body) + 2
    for entry in entries:
        queue_offset, physical, size = entry
        at = physical - start
        try:
            size_, magic, crc, queue_id_, _, queue_offset_, physical_, sys_flag, length = _HEAD.unpack_from(data, at)
            if size_ != size or physical_ != physical or queue_offset_ != queue_offset or queue_id_ != queue_id:
                continue
            if magic != MAGIC_V1 or sys_flag & (BORN_IPV6 | STORE_IPV6):
                stored = parse(data, at, physical, check_body=checks_body)
                is_sound = stored is not None and stored.topic.encode() == topic
                properties = at + size - (0 if stored is None else len(stored.raw_properties))
            else:
                end = at + HEAD_BYTES + length
                properties = end + len(behind_body) + 2
                is_sound = (
                    length >= 0
                    and data.startswith(behind_body, end)
                    and others + length + (data[properties - 2] << 8 | data[properties - 1]) == size <= len(data) - at
                    and (not checks_body or zlib.crc32(data[at + HEAD_BYTES : end]) & 0x7FFFFFFF == crc)
                )
        except (struct.error, IndexError):
            continue
        if is_sound and (not checks_body or data.find(UNREADABLE, properties, at + size) < 0):
            sound.append(entry)
    return sound


class TagsCodes:
    """The third number of a consume-queue entry: the hash of the tag, or the time when a delayed message is due."""

    def __init__(self) -> None:
        self._code = lru_cache(_MANY_TAGS)(lambda tag: tags_code(tag.decode("utf-8", "replace")))

    def of(self, topic: str, queue_id: int, raw_properties: bytes, stored_ms: int) -> int:
        if topic == SCHEDULE_TOPIC and queue_id < len(DELAY_SECONDS):
            return stored_ms + DELAY_SECONDS[queue_id] * 1000
        tag = tag_of(raw_properties)
        return 0 if tag is None else self._code(tag)
