"""Stored records into Arrow, column by column.

Records are read with the layout of `rocketapp.wire`. What makes a record unusual (compression, IPv6 hosts, long
topics, inner batches) is left to `decode_records`. Every batch is built with one schema.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
        self._fixed: list[tuple[Any, ...]] = []
        """The fixed part of each record. In unusual ones the producer's host and the broker's id are text already."""
        self._bodies: list[bytes] = []
        self._properties: list[bytes] = []
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
        unpack, tag_of, tags = FIXED.unpack_from, names.tag_of, self._tags
        fixed_parts, bodies, properties = self._fixed, self._bodies, self._properties
        while at + FIXED.size < end:
            fixed = unpack(data, at)
            stop = at + fixed[0]
            if fixed[1] != MAGIC_V1 or fixed[7] & _UNUSUAL:
                self._add_unusual(data[at:stop] if fixed[0] > 0 else data[at:], low, high)
                if fixed[0] <= 0:
                    raise ProtocolError(f"record of {fixed[0]} bytes")
                at = stop
                continue
            body_end = at + 88 + fixed[14]
            start = body_end + 3 + data[body_end] if body_end < end else end + 1
            if start > stop or stop > end:
                raise ProtocolError(f"record at byte {at} of {end} is cut short or longer than it says")
            raw = data[start:stop]
            if low <= fixed[5] < high and (not tags or tag_of(raw) in tags):
                fixed_parts.append(fixed)
                bodies.append(data[at + 88 : body_end])
                properties.append(raw)
            at = stop
        if at != end:
            raise ProtocolError(f"{end - at} bytes behind the last record")
        self._bytes += end

    def _add_unusual(self, record: bytes, low: int, high: int) -> None:
        for message in decode_records(record, None, max_inflated_bytes=self._max_inflated):
            if not low <= message.offset < high or (self._tags and message.raw_tag() not in self._tags):
                continue
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
        fixed = list(zip(*self._fixed, strict=True))
        arrays = [_BUILD[name](self, fixed) for name in self._columns]
        count = len(self._fixed)
        if not arrays:
            raise RecordError("a read without columns")
        self._fixed, self._bodies, self._properties, self._bytes = [], [], [], 0
        assert all(len(array) == count for array in arrays)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, value: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.string()), len(self._fixed))

    def _texts(self, values: list[bytes | None]) -> pa.Array:
        """Text as UTF-8; broken bytes are replaced, as elsewhere."""
        try:
            return pa.array(values, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([None if value is None else value.decode("utf-8", "replace") for value in values])

    def _ids(self, fixed: list[tuple[Any, ...]]) -> pa.Array:
        found = [names.unique_id_of(raw) for raw in self._properties]
        if None in found:
            places = zip(fixed[11], fixed[6], strict=True)
            found = [
                (place if isinstance(place, str) else offset_id(place[:-4], PORT.unpack(place[-4:])[0], physical))
                if unique is None
                else unique
                for unique, (place, physical) in zip(found, places, strict=True)
            ]
        return pa.array(found, pa.string())

    def _maps(self) -> pa.Array:
        return pa.array([list(names.decode(raw).items()) for raw in self._properties], _TYPES["map<string,string>"])


def _fixed_of(message: Message) -> tuple[Any, ...]:
    """The fixed part of an unusual record: hosts are text, what no column uses is 0."""
    return (
        *(message.size, 0, 0, message.queue_id, message.flag, message.offset, message.physical_offset),
        *(message.sys_flag, message.born_ms, message.born_host, message.stored_ms, message.offset_message_id),
        *(message.reconsume_times, 0, 0),
    )


def _times(milliseconds: Sequence[int]) -> pa.Array:
    """Producers' clocks may be wild: a time that Spark cannot show is null."""
    if max(milliseconds) > _LAST_MS or min(milliseconds) < -_LAST_MS:
        kept = [ms if -_LAST_MS <= ms <= _LAST_MS else None for ms in milliseconds]
        return pc.multiply(pa.array(kept, pa.int64()), 1000).cast(_TYPES["timestamp"])
    return pc.multiply(pa.array(milliseconds, pa.int64()), 1000).cast(_TYPES["timestamp"])


def _hosts(values: Sequence[bytes | str]) -> pa.Array:
    known = {value: _host(value) for value in set(values)}
    return pa.array([known[value] for value in values], pa.string())


def _host(value: bytes | str) -> str:
    if isinstance(value, str):
        return value
    return f"{ipaddress.IPv4Address(value[:4])}:{PORT.unpack(value[4:])[0]}"


_Build = Callable[[Rows, list[tuple[Any, ...]]], pa.Array]
_BUILD: dict[str, _Build] = {
    "topic": lambda rows, _: rows._constant(rows._queue.topic),
    "broker": lambda rows, _: rows._constant(rows._queue.broker),
    "queue_id": lambda _, fixed: pa.array(fixed[3], pa.int32()),
    "queue_offset": lambda _, fixed: pa.array(fixed[5], pa.int64()),
    "body": lambda rows, _: pa.array(rows._bodies, pa.binary()),
    "tags": lambda rows, _: rows._texts([names.tag_of(raw) for raw in rows._properties]),
    "keys": lambda rows, _: rows._texts([names.keys_of(raw) for raw in rows._properties]),
    "msg_id": lambda rows, fixed: rows._ids(fixed),
    "born_timestamp": lambda _, fixed: _times(fixed[8]),
    "store_timestamp": lambda _, fixed: _times(fixed[10]),
    "born_host": lambda _, fixed: _hosts(fixed[9]),
    "flag": lambda _, fixed: pa.array(fixed[4], pa.int32()),
    "sys_flag": lambda _, fixed: pa.array(fixed[7], pa.int32()),
    "reconsume_times": lambda _, fixed: pa.array(fixed[12], pa.int32()),
    PROPERTIES: lambda rows, _: rows._maps(),
}
