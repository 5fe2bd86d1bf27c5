"""Stored records into Arrow, column by column.

One by one only the lengths of records are read; the rest is `records`. What makes a record unusual (compression, IPv6
hosts, long topics, inner batches) is left to `decode_records`, and its messages are written as usual records. Every
batch is built with one schema.
"""

from __future__ import annotations

import ipaddress
import struct
from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.columns import BAD_RECORD, PROPERTIES, ddl
from pyspark_rocketmq.problems import RecordError
from rocketapp import Message, MessageQueue
from rocketapp.errors import ProtocolError
from rocketapp.wire import properties as names
from rocketapp.wire.compression import COMPRESSED
from rocketapp.wire.layout import BORN_IPV6, FIXED, INNER_BATCH, MAGIC_V1, NEED_UNWRAP, PORT, STORE_IPV6
from rocketapp.wire.message_id import offset_id
from rocketapp.wire.record import decode_records
from rocketapp_lake import raw_records as records
from rocketapp_lake.arrow_columns import schema_of_ddl
from rocketapp_lake.columns import TIMESTAMP
from rocketapp_lake.raw_records import Entries, Records, texts

_UNUSUAL = COMPRESSED | BORN_IPV6 | STORE_IPV6 | NEED_UNWRAP | INNER_BATCH
_CUT = struct.Struct(">ii28xi")
"""Of the fixed part what is needed for cutting: size, magic, sys flag."""
_PLACE = struct.Struct(">28xq28x4si")
"""Of the fixed part where the record is: physical offset, the broker's address and port."""
_BEHIND_BODY = struct.Struct(">BH")
"""The lengths of an empty topic, and of the properties."""
_MEND = "With badRecords=null such a row has no body, and tells where the record is"
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, which is the last that Spark's dates have."""


class Rows:
    """Gathers the rows of one queue until they are enough for a batch."""

    def __init__(
        self,
        queue: MessageQueue,
        columns: Sequence[str],
        *,
        tags: frozenset[str] = frozenset(),
        max_rows: int = 10_000,
        max_bytes: int = 4 * 1024 * 1024,
        max_inflated_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """`tags`: only messages with one of these; empty: all. Brokers compare hashes of tags, this compares tags."""
        self._queue, self._columns, self._schema = queue, tuple(columns), schema_of_ddl(ddl(tuple(columns)))
        self._tags = pa.array([tag.encode() for tag in sorted(tags)], pa.binary())
        self._max_rows, self._max_bytes, self._max_inflated = max_rows, max_bytes, max_inflated_bytes
        self._with_body, self._with_bad = "body" in columns, BAD_RECORD in columns
        self._begin()

    def _begin(self) -> None:
        self._pieces: list[bytes] = []
        self._starts = array("q")
        """Where each record begins in the joined pieces."""
        self._spans: list[tuple[int, int, int]] = []
        """How many of them came together, and the offsets of those that are wanted."""
        self._unusual: dict[int, Message] = {}
        """The messages of unusual records, by where they begin. What is written for them has no hosts."""
        self._bad: dict[int, str] = {}
        """Where each record is that cannot be read, and why, in the same way."""
        self._bytes = 0

    @property
    def are_enough(self) -> bool:
        """Whether they make a batch."""
        return len(self._starts) >= self._max_rows or self._bytes >= self._max_bytes

    def add(self, data: bytes, low: int, high: int) -> None:
        """Take the records with `low <= offset < high`. Raises RecordError for a damaged one."""
        at, end = 0, len(data)
        kept, shift = 0, self._bytes
        """Where the next piece begins in `data`, and how far it lies further on in the joined pieces."""
        unpack, starts, before = _CUT.unpack_from, self._starts, len(self._starts)
        usual, unusual, least, add = MAGIC_V1, _UNUSUAL, records.SMALLEST, starts.append
        last = end - least
        try:
            while at <= last:
                size, magic, sys_flag = unpack(data, at)
                if magic == usual and not sys_flag & unusual and size >= least:
                    add(at + shift)
                    at += size
                    continue
                if size <= 0:
                    raise ProtocolError(f"record of {size} bytes")
                self._pieces.append(data[kept:at])
                place = self._add_unusual(data[at : at + size], at + shift, low, high)
                at += size
                kept, shift = at, place - at
            if at != end:
                raise ProtocolError(f"record at byte {at} of {end} is cut short or longer than it says")
        except ProtocolError as error:
            raise self._unreadable(_offset_of(data, at, low), error) from None
        self._pieces.append(data[kept:])
        self._spans.append((len(starts) - before, low, high))
        self._bytes = end + shift

    def _unreadable(self, offset: int, error: ProtocolError) -> RecordError:
        return RecordError(f"{self._queue} from offset {offset} on: {error}")

    def _add_unusual(self, record: bytes, place: int, low: int, high: int) -> int:
        """Write the messages of a record as usual ones; return where they end."""
        for message in decode_records(record, None, max_inflated_bytes=self._max_inflated):
            if low <= message.offset < high:
                self._starts.append(place)
                self._unusual[place] = message
                self._pieces.append(_usual(message, self._body_of(message, place)))
                place += len(self._pieces[-1])
        return place

    def _body_of(self, message: Message, place: int) -> bytes:
        if not self._with_body:
            return b""
        try:
            return message.body
        except ProtocolError as error:
            if not self._with_bad:
                raise RecordError(f"{self._queue} offset {message.offset}: {error}. {_MEND}") from None
            self._bad[place] = f"{message.offset_message_id}: {error}"
            return b""

    def _joined(self) -> Records:
        data, starts = b"".join(self._pieces), np.frombuffer(self._starts, np.int64)
        try:
            return Records(data, starts)
        except ProtocolError as error:
            damaged = next(start for start in self._starts if not _is_whole(data, start))
            raise self._unreadable(_offset_at(data, damaged), error) from None

    def take(self) -> pa.RecordBatch:
        """The gathered rows as one batch, perhaps an empty one; forgets them. Raises RecordError for damaged ones."""
        counts, low, high = zip(*self._spans, strict=True) if self._spans else ((), (), ())
        found = self._joined()
        offsets = found.field(records.QUEUE_OFFSET)
        found = found.where((offsets >= np.repeat(low, counts)) & (offsets < np.repeat(high, counts)))
        batch = _Batch(self._queue, found, self._unusual, self._bad)
        if len(self._tags):
            has_tag = pc.is_in(batch.value_of(names.TAGS), self._tags).to_numpy(zero_copy_only=False)
            batch = _Batch(self._queue, found.where(has_tag), self._unusual, self._bad)
        self._begin()
        arrays = [_BUILD[name](batch) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _offset_at(data: bytes, start: int) -> int:
    at = start + records.QUEUE_OFFSET[0]
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def _offset_of(data: bytes, stop: int, first: int) -> int:
    """The offset behind the records that are whole and end at `stop` or before; `first` when there is none."""
    at = 0
    while (after := at + int.from_bytes(data[at : at + 4], "big")) <= min(stop, len(data)) and after > at:
        at, first = after, _offset_at(data, at) + 1
    return first


def _is_whole(data: bytes, start: int) -> bool:
    try:
        return len(Records(data, np.array([start]))) == 1
    except ProtocolError:
        return False


class _Batch:
    """The columns of some records."""

    def __init__(self, queue: MessageQueue, found: Records, unusual: dict[int, Message], bad: dict[int, str]) -> None:
        self.queue, self.records = queue, found
        rows = [(row, start) for row, start in enumerate(found.starts.tolist()) if start in unusual] if unusual else []
        self._unusual = {row: unusual[start] for row, start in rows}
        self._problems = {row: bad[start] for row, start in rows if start in bad}

    @cached_property
    def _properties(self) -> pa.Array:
        return self.records.properties()

    @cached_property
    def _entries(self) -> Entries:
        return Entries(self._properties)

    def value_of(self, name: str) -> pa.Array:
        return self._entries.values(name)

    def constant(self, value: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.string()), len(self.records))

    def text_of(self, name: str) -> pa.Array:
        """The property as UTF-8; broken bytes are replaced, as elsewhere."""
        return texts(self.value_of(name))

    def ids(self) -> pa.Array:
        """The producers' ids; those of the broker where a message has none."""
        found = self.text_of(names.UNIQ_KEY)
        if not found.null_count:
            return found
        return pa.array(
            [self._place(row) if unique is None else unique for row, unique in enumerate(found.to_pylist())],
            pa.string(),
        )

    def _place(self, row: int) -> str:
        """The broker's id of a message."""
        message = self._unusual.get(row)
        if message is not None:
            return message.offset_message_id
        physical, host, port = _PLACE.unpack(self.records.fixed(row)[: _PLACE.size])
        return offset_id(host, port, physical)

    def hosts(self) -> pa.Array:
        different, which = np.unique(self.records.field(records.BORN_HOST), return_inverse=True)
        hosts = [_host(int(host)) for host in different]
        if not self._unusual:
            return pa.array(hosts, pa.string()).take(pa.array(which))
        found = [hosts[number] for number in which]
        for row, message in self._unusual.items():
            found[row] = message.born_host
        return pa.array(found, pa.string())

    def bodies(self) -> pa.Array:
        found = self.records.bodies()
        return pc.if_else(self.problems().is_valid(), None, found) if self._problems else found

    def problems(self) -> pa.Array:
        if not self._problems:
            return pa.nulls(len(self.records), pa.string())
        return pa.array([self._problems.get(row) for row in range(len(self.records))], pa.string())

    def maps(self) -> pa.Array:
        found = [list(names.decode(raw).items()) for raw in self._properties.to_pylist()]
        return pa.array(found, pa.map_(pa.string(), pa.string()))


def _usual(message: Message, body: bytes) -> bytes:
    """A usual record of an unusual message, with 0 for what no column uses or what does not fit."""
    raw = message.raw_properties
    fixed = FIXED.pack(
        *(records.SMALLEST + len(body) + len(raw), MAGIC_V1, 0, message.queue_id, message.flag, message.offset),
        *(message.physical_offset, message.sys_flag, message.born_ms, bytes(8), message.stored_ms, bytes(8)),
        *(message.reconsume_times, 0, len(body)),
    )
    return b"".join((fixed, body, _BEHIND_BODY.pack(0, len(raw)), raw))


def _times(milliseconds: Any) -> pa.Array:
    """Producers' clocks may be wild: a time that Spark cannot show is null."""
    ms = milliseconds.astype(np.int64)
    wild = (ms > _LAST_MS) | (ms < -_LAST_MS)
    us = np.where(wild, 0, ms) * 1000
    return pa.array(us, pa.int64(), mask=wild).cast(TIMESTAMP)


def _host(value: int) -> str:
    return f"{ipaddress.IPv4Address(value >> 32)}:{PORT.unpack((value & 0xFFFF_FFFF).to_bytes(4, 'big'))[0]}"


_BUILD: dict[str, Callable[[_Batch], pa.Array]] = {
    "topic": lambda batch: batch.constant(batch.queue.topic),
    "broker": lambda batch: batch.constant(batch.queue.broker_name),
    "queue_id": lambda batch: pa.array(batch.records.field(records.QUEUE_ID)),
    "queue_offset": lambda batch: pa.array(batch.records.field(records.QUEUE_OFFSET)),
    "body": lambda batch: batch.bodies(),
    "tags": lambda batch: batch.text_of(names.TAGS),
    "keys": lambda batch: batch.text_of(names.KEYS),
    "msg_id": lambda batch: batch.ids(),
    "born_timestamp": lambda batch: _times(batch.records.field(records.BORN)),
    "store_timestamp": lambda batch: _times(batch.records.field(records.STORED)),
    "born_host": lambda batch: batch.hosts(),
    "flag": lambda batch: pa.array(batch.records.field(records.FLAG)),
    "sys_flag": lambda batch: pa.array(batch.records.field(records.SYS_FLAG)),
    "reconsume_times": lambda batch: pa.array(batch.records.field(records.TIMES)),
    PROPERTIES: lambda batch: batch.maps(),
    BAD_RECORD: lambda batch: batch.problems(),
}
