"""Stored records into Arrow, column by column.

Records are read with the layout of `rocketapp.wire`: of each record its fixed part, its body and its properties are cut
out, and the columns of the fixed part are taken from many records at once. What makes a record unusual (compression,
IPv6 hosts, long topics, inner batches) is left to `decode_records`. Every batch is built with one schema.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_rocketmq.columns import BY_NAME, PROPERTIES
from pyspark_rocketmq.offsets import Queue
from pyspark_rocketmq.problems import RecordError
from rocketapp import Message, ProtocolError
from rocketapp.wire import properties as names
from rocketapp.wire.compression import COMPRESSED
from rocketapp.wire.layout import BORN_IPV6, FIXED, INNER_BATCH, MAGIC_V1, NEED_UNWRAP, PORT, STORE_IPV6
from rocketapp.wire.message_id import offset_id
from rocketapp.wire.record import decode_records

_UNUSUAL = COMPRESSED | BORN_IPV6 | STORE_IPV6 | NEED_UNWRAP | INNER_BATCH
_CUT = struct.Struct(">ii12xq8xi44xI")
"""Of the fixed part what is needed for cutting: size, magic, queue offset, sys flag, body length."""
_PLACE = struct.Struct(">28xq28x4si")
"""Of the fixed part where the record is: physical offset, the broker's address and port."""
_PARTS = np.dtype(
    {
        "names": [
            "queue_id",
            "flag",
            "queue_offset",
            "physical",
            "sys_flag",
            "born",
            "born_host",
            "stored",
            "place",
            "times",
        ],
        "formats": [">i4", ">i4", ">i8", ">i8", ">i4", ">i8", ">u8", ">i8", "V8", ">i4"],
        "offsets": [12, 16, 20, 28, 36, 40, 48, 56, 64, 72],
        "itemsize": FIXED.size,
    }
)
"""The fixed part, as `rocketapp.wire.layout.FIXED` has it."""
_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, which is the last that Spark's dates have."""


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema that Spark derives from these columns."""
    return pa.schema([pa.field(name, _TYPES[BY_NAME[name].sql_type]) for name in columns])


class Rows:
    """Gathers the rows of one queue until they are enough for a batch."""

    def __init__(
        self,
        queue: Queue,
        columns: Sequence[str],
        *,
        tags: frozenset[str] = frozenset(),
        max_rows: int = 10_000,
        max_bytes: int = 4 * 1024 * 1024,
        max_inflated_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """`tags`: only messages with one of these; empty: all. Brokers compare hashes of tags, this compares tags."""
        self._queue, self._columns, self._schema = queue, tuple(columns), arrow_schema(columns)
        self._tags = frozenset(tag.encode() for tag in tags)
        self._max_rows, self._max_bytes, self._max_inflated = max_rows, max_bytes, max_inflated_bytes
        self._with_body = "body" in columns
        self._begin()

    def _begin(self) -> None:
        self._fixed: list[bytes] = []
        """The fixed part of each record."""
        self._bodies: list[bytes] = []
        self._properties: list[bytes] = []
        self._unusual: dict[int, Message] = {}
        """Unusual records by row. Their fixed part has no hosts."""
        self._bytes = 0

    @property
    def are_enough(self) -> bool:
        """Whether they make a batch."""
        return len(self._fixed) >= self._max_rows or self._bytes >= self._max_bytes

    def __len__(self) -> int:
        return len(self._fixed)

    def add(self, data: bytes, low: int, high: int) -> None:
        """Take the records with `low <= offset < high`. Raises ProtocolError or RecordError for a damaged one."""
        at, end = 0, len(data)
        unpack, tag_of, tags, first = _CUT.unpack_from, names.tag_of, self._tags, FIXED.size
        fixed, bodies, properties = self._fixed, self._bodies, self._properties
        while at + first < end:
            size, magic, offset, sys_flag, length = unpack(data, at)
            stop = at + size
            if magic != MAGIC_V1 or sys_flag & _UNUSUAL:
                if size <= 0:
                    raise ProtocolError(f"record of {size} bytes")
                self._add_unusual(data[at:stop], low, high)
                at = stop
                continue
            body = at + first
            body_end = body + length
            start = body_end + 3 + data[body_end] if body_end < end else end + 1
            if start > stop or stop > end:
                raise ProtocolError(f"record at byte {at} of {end} is cut short or longer than it says")
            if low <= offset < high:
                raw = data[start:stop]
                if not tags or tag_of(raw) in tags:
                    fixed.append(data[at:body])
                    bodies.append(data[body:body_end])
                    properties.append(raw)
            at = stop
        if at != end:
            raise ProtocolError(f"{end - at} bytes behind the last record")
        self._bytes += end

    def _add_unusual(self, record: bytes, low: int, high: int) -> None:
        for message in decode_records(record, None, max_inflated_bytes=self._max_inflated):
            if not low <= message.offset < high or (self._tags and message.raw_tag() not in self._tags):
                continue
            self._unusual[len(self._fixed)] = message
            self._fixed.append(_fixed_of(message))
            self._properties.append(message.raw_properties)
            self._bodies.append(self._body_of(message))
            self._bytes += len(self._bodies[-1])

    def _body_of(self, message: Message) -> bytes:
        if not self._with_body:
            return b""
        try:
            return message.body
        except ProtocolError as error:
            raise RecordError(f"{self._queue} offset {message.offset}: {error}") from None

    def take(self) -> pa.RecordBatch:
        """The gathered rows as one batch; forgets them."""
        parts = np.frombuffer(b"".join(self._fixed), _PARTS)
        arrays = [_BUILD[name](self, parts) for name in self._columns]
        self._begin()
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, value: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.string()), len(self._fixed))

    def _texts(self, values: list[bytes | None]) -> pa.Array:
        """Text as UTF-8; broken bytes are replaced, as elsewhere."""
        try:
            return pa.array(values, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([None if value is None else value.decode("utf-8", "replace") for value in values])

    def _ids(self) -> pa.Array:
        """The producers' ids; those of the broker where a message has none."""
        found = [names.unique_id_of(raw) for raw in self._properties]
        for row, unique in enumerate(found):
            if unique is None:
                message = self._unusual.get(row)
                found[row] = _place(self._fixed[row]) if message is None else message.offset_message_id
        return pa.array(found, pa.string())

    def _hosts(self, parts: Any) -> pa.Array:
        different, which = np.unique(parts["born_host"], return_inverse=True)
        texts = [_host(int(host)) for host in different]
        if not self._unusual:
            return pa.array(texts, pa.string()).take(pa.array(which))
        found = [texts[number] for number in which]
        for row, message in self._unusual.items():
            found[row] = message.born_host
        return pa.array(found, pa.string())

    def _maps(self) -> pa.Array:
        return pa.array([list(names.decode(raw).items()) for raw in self._properties], _TYPES["map<string,string>"])


def _fixed_of(message: Message) -> bytes:
    """The fixed part of an unusual record, with 0 for what no column uses or what does not fit."""
    return FIXED.pack(
        *(message.size, 0, 0, message.queue_id, message.flag, message.offset, message.physical_offset),
        *(message.sys_flag, message.born_ms, bytes(8), message.stored_ms, bytes(8), message.reconsume_times, 0, 0),
    )


def _place(fixed: bytes) -> str:
    """The broker's id of a usual record."""
    physical, host, port = _PLACE.unpack_from(fixed)
    return offset_id(host, port, physical)


def _times(milliseconds: Any) -> pa.Array:
    """Producers' clocks may be wild: a time that Spark cannot show is null."""
    ms = milliseconds.astype(np.int64)
    wild = (ms > _LAST_MS) | (ms < -_LAST_MS)
    us = np.where(wild, 0, ms) * 1000
    return pa.array(us, pa.int64(), mask=wild).cast(_TYPES["timestamp"])


def _host(value: int) -> str:
    return f"{ipaddress.IPv4Address(value >> 32)}:{PORT.unpack((value & 0xFFFF_FFFF).to_bytes(4, 'big'))[0]}"


def _ints(column: Any, kind: Any) -> pa.Array:
    return pa.array(column.astype(kind))


_Build = Callable[[Rows, Any], pa.Array]
_BUILD: dict[str, _Build] = {
    "topic": lambda rows, _: rows._constant(rows._queue.topic),
    "broker": lambda rows, _: rows._constant(rows._queue.broker),
    "queue_id": lambda _, parts: _ints(parts["queue_id"], np.int32),
    "queue_offset": lambda _, parts: _ints(parts["queue_offset"], np.int64),
    "body": lambda rows, _: pa.array(rows._bodies, pa.binary()),
    "tags": lambda rows, _: rows._texts([names.tag_of(raw) for raw in rows._properties]),
    "keys": lambda rows, _: rows._texts([names.keys_of(raw) for raw in rows._properties]),
    "msg_id": lambda rows, _: rows._ids(),
    "born_timestamp": lambda _, parts: _times(parts["born"]),
    "store_timestamp": lambda _, parts: _times(parts["stored"]),
    "born_host": lambda rows, parts: rows._hosts(parts),
    "flag": lambda _, parts: _ints(parts["flag"], np.int32),
    "sys_flag": lambda _, parts: _ints(parts["sys_flag"], np.int32),
    "reconsume_times": lambda _, parts: _ints(parts["times"], np.int32),
    PROPERTIES: lambda rows, _: rows._maps(),
}
