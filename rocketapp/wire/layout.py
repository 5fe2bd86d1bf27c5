"""The byte layout of a stored message: the record of the commit log.

Fixed part (IPv4): size, magic, CRC, queue id, flag, queue offset, physical offset,
sys flag, born time, born host+port, store time, store host+port, reconsume times,
prepared offset, body length. Then body, topic and properties, each after its length.
Version 2 has a wider length of the topic, and flags mark IPv6 hosts. Java:
MessageExtEncoder, MessageDecoder, MessageVersion, MessageSysFlag.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

from rocketapp.errors import ProtocolError

MAGIC_V1, MAGIC_V2 = -626843481, -626843477
MAGIC_BLANK = -875286124
"""Marks the unused end of a commit-log file."""

BORN_IPV6, STORE_IPV6 = 16, 32
NEED_UNWRAP, INNER_BATCH = 64, 128
TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK = 12, 4, 8, 12
"""Bits of `sys_flag`; those of compression are in `wire.compression`."""

LONGEST_V1_TOPIC = 127
"""A longer topic, in bytes, needs version 2."""
LONGEST_TOPIC = LONGEST_PROPERTIES = 32767
"""Most bytes of topic and properties: their lengths are signed 16-bit numbers in Java."""

MOST_RECONSUME_TIMES = 2**31 - 1
"""Failed attempts that a record can count."""

FIXED = struct.Struct(">iiiiiqqiq8sq8siqI")
"""The fixed part of a record with IPv4 hosts. The body length is unsigned, so that a negative one is too large."""
OF_PULLS = struct.Struct(">ii12xq8xi44xI")
"""What a pull needs of FIXED: size, magic, queue offset, sys flag and body length."""
_LAYOUTS = {(born, store): struct.Struct(f">iiiiiqqiq{born}sq{store}siqI") for born in (8, 20) for store in (8, 20)}
_IPV6 = BORN_IPV6 | STORE_IPV6
_WRITTEN = {
    flags: (struct.Struct(f">iiiiiqqiq{born}siq{store}siiqI"), born, store)
    for flags, born, store in ((0, 4, 4), (BORN_IPV6, 16, 4), (STORE_IPV6, 4, 16), (_IPV6, 16, 16))
}
"""By the flags of its hosts: the fixed part with addresses and ports apart, and the bytes of the two addresses."""
_MAGIC_AND_FLAG = struct.Struct(">4xi28xi")
FAILED = struct.Struct(">72xi")
"""What a trace needs of FIXED: the failed attempts."""
PORT = struct.Struct(">i")

Fixed = tuple[int, int, int, int, int, int, int, int, int, bytes, int, bytes, int, int, int]
"""The unpacked fixed part. A host is address and port in one value."""


class Parts(NamedTuple):
    """The parts of a record, not decoded further."""

    fixed: Fixed
    body: bytes
    topic: bytes
    properties: bytes
    end: int


def take_apart(data: bytes, at: int) -> Parts:
    """The parts of any record. Raises IndexError or struct.error when `data` ends inside it."""
    magic, sys_flag = _MAGIC_AND_FLAG.unpack_from(data, at)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise ProtocolError(f"record at byte {at}: magic {magic & 0xFFFFFFFF:#010x} is not that of a message")
    layout = _LAYOUTS[20 if sys_flag & BORN_IPV6 else 8, 20 if sys_flag & STORE_IPV6 else 8]
    fixed: Any = layout.unpack_from(data, at)
    body = at + layout.size
    body_end = body + fixed[14]
    if magic == MAGIC_V1:
        topic = body_end + 1
        topic_end = topic + data[body_end]
    else:
        topic = body_end + 2
        topic_end = topic + (data[body_end] << 8 | data[body_end + 1])
    start = topic_end + 2
    stop = start + (data[topic_end] << 8 | data[topic_end + 1])
    if stop != at + fixed[0] or stop > len(data):
        raise wrong_size(at, fixed[0], stop)
    return Parts(fixed, data[body:body_end], data[topic:topic_end], data[start:stop], stop)


def wrong_size(at: int, size: int, stop: int) -> ProtocolError:
    return ProtocolError(f"record at byte {at}: {size} bytes announced, {stop - at} used")


class Record(NamedTuple):
    """A record with all its fields, as the store writes it."""

    topic: str
    body: bytes
    raw_properties: bytes = b""
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    born_host: bytes = b"\x7f\x00\x00\x01"
    """4 bytes, or 16 when `sys_flag` has BORN_IPV6."""
    born_port: int = 0
    stored_ms: int = 0
    store_host: bytes = b"\x7f\x00\x00\x01"
    """4 bytes, or 16 when `sys_flag` has STORE_IPV6."""
    store_port: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0


def encode_record(record: Record) -> bytes:
    """The bytes of a record. Raises ProtocolError when a field is too long or does not fit its flags."""
    return encode_stored(record, record.queue_offset, record.physical_offset, record.stored_ms)


def encode_stored(record: Record, queue_offset: int, physical_offset: int, stored_ms: int) -> bytes:
    """The bytes of a record where it is stored."""
    # In one step: an attribute of a named tuple costs more than all of them so, and every message pays for each.
    name, body, raw, queue_id, flag, _, _, sys_flag, born_ms, born, born_port, _, store, port, times, prepared = record
    topic, (layout, born_bytes, store_bytes) = name.encode(), _WRITTEN[sys_flag & _IPV6]
    if len(born) != born_bytes or len(store) != store_bytes:
        problem = f"hosts of {len(born)} and {len(store)} bytes, sys flag says {born_bytes} and {store_bytes}"
        raise ProtocolError(problem)
    if len(raw) > LONGEST_PROPERTIES:
        raise ProtocolError(f"properties of {len(raw)} bytes, limit {LONGEST_PROPERTIES}")
    if len(topic) > LONGEST_TOPIC:
        raise ProtocolError(f"topic of {len(topic)} bytes, limit {LONGEST_TOPIC}")
    magic, length = (MAGIC_V1, 1) if len(topic) <= LONGEST_V1_TOPIC else (MAGIC_V2, 2)
    fixed = layout.pack(
        layout.size + len(body) + length + len(topic) + 2 + len(raw),
        magic,
        zlib.crc32(body) & 0x7FFFFFFF,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_ms,
        born,
        born_port,
        stored_ms,
        store,
        port,
        times,
        prepared,
        len(body),
    )
    return b"".join((fixed, body, len(topic).to_bytes(length, "big"), topic, len(raw).to_bytes(2, "big"), raw))


def decode_record(data: bytes, at: int = 0) -> Record:
    """The record at byte `at`; bytes after it are ignored. Raises ProtocolError when size, magic or CRC is wrong."""
    try:
        fixed, body, topic, raw, _ = take_apart(data, at)
    except (struct.error, IndexError):
        raise ProtocolError(f"record at byte {at} of {len(data)} is cut short") from None
    crc = zlib.crc32(body) & 0x7FFFFFFF
    if crc != fixed[2]:
        raise ProtocolError(f"record at byte {at}: its body has CRC {crc}, but {fixed[2]} is stored")
    born, store = fixed[9], fixed[11]
    return Record(
        topic.decode("utf-8", "replace"),
        body,
        raw,
        *fixed[3:9],
        born[:-4],
        PORT.unpack(born[-4:])[0],
        fixed[10],
        store[:-4],
        PORT.unpack(store[-4:])[0],
        fixed[12],
        fixed[13],
    )
