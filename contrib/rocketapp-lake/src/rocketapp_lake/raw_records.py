"""Many stored records in one piece of bytes, read column by column.

The fixed part of a record has the layout of `rocketapp.wire.layout.FIXED`. A column is one look at all records: numpy
reads a number at any byte, so records need neither be cut nor be of one size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketapp.errors import ProtocolError
from rocketapp.wire.layout import FIXED

QUEUE_ID, FLAG, QUEUE_OFFSET, SYS_FLAG = (12, ">i4"), (16, ">i4"), (20, ">i8"), (36, ">i4")
BORN, BORN_HOST, STORED, TIMES = (40, ">i8"), (48, ">u8"), (56, ">i8"), (72, ">i4")
"""Where fields of the fixed part lie, and their types. A host is address and port in one number."""
_SIZE, _BODY_LENGTH = (0, ">i4"), (84, ">u4")
SMALLEST = FIXED.size + 3
"""Bytes of a record without body, topic and properties."""
_ENTRY_END = b"\x02"
_TO_THE_END = 2**31 - 1


class Records:
    """Records of any size, in order. `starts`: where each begins. The bytes are less than 2 GiB."""

    def __init__(self, data: bytes, starts: Any) -> None:
        """Raises ProtocolError when the parts of a record are longer or shorter than the record."""
        self._data, self.starts = data, starts
        self._stops = starts + self.field(_SIZE)
        self._body_stops = starts + FIXED.size + self.field(_BODY_LENGTH).astype(np.int64)
        self._refuse(self._body_stops + 3 > self._stops)
        self._properties = self._body_stops + 3 + self._at(self._body_stops, "u1")
        self._refuse(self._properties > self._stops)
        self._refuse(self._properties + self._at(self._properties - 2, ">u2") != self._stops)

    def _refuse(self, wrong: Any) -> None:
        if wrong.any():
            at = self.starts[wrong][0]
            raise ProtocolError(f"record at byte {at} of {len(self._data)}: its parts are not as long as it says")

    def __len__(self) -> int:
        return len(self.starts)

    def where(self, chosen: Any) -> Records:
        """Only these, given as a mask."""
        return self if chosen.all() else Records(self._data, self.starts[chosen])

    def field(self, field: tuple[int, str]) -> Any:
        """A field of all records, as native numbers."""
        return self._at(self.starts + field[0], field[1])

    def _at(self, places: Any, kind: str) -> Any:
        big_endian = np.dtype(kind)
        count = max(0, len(self._data) - big_endian.itemsize + 1)
        anywhere: Any = np.ndarray(count, big_endian, self._data, strides=(1,))
        return anywhere[places].astype(big_endian.newbyteorder("="))

    def fixed(self, row: int) -> bytes:
        """The fixed part of one record."""
        start = int(self.starts[row])
        return self._data[start : start + FIXED.size]

    def bodies(self) -> pa.Array:
        return self._cut(self.starts + FIXED.size, self._body_stops)

    def properties(self) -> pa.Array:
        """The encoded properties."""
        return self._cut(self._properties, self._stops)

    def _cut(self, starts: Any, stops: Any) -> pa.Array:
        """One piece of each record. To Arrow, what lies between them are values too: it copies every second."""
        if not len(self):
            return pa.array([], pa.binary())
        edges = np.stack((starts, stops), axis=1).astype(np.int32)
        count = 2 * len(self) - 1
        pieces = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(self._data)])
        return pieces.take(pa.array(np.arange(0, count, 2)))


def texts(values: pa.Array) -> pa.Array:
    """Bytes as UTF-8; broken ones are replaced, as elsewhere."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        found = [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()]
        return pa.array(found, pa.string())


class Entries:
    """The single properties of many messages."""

    def __init__(self, encoded: pa.Array) -> None:
        entries = pc.split_pattern(encoded, _ENTRY_END)
        self._count = len(encoded)
        self._rows = pc.list_parent_indices(entries).to_numpy()
        self._entries = entries.flatten()
        self._sizes = pc.binary_length(self._entries).to_numpy()

    def values(self, name: str) -> pa.Array:
        """By message the value of this property, null for none. An empty one counts as none; the last one wins."""
        prefix = name.encode() + b"\x01"
        has_it = pc.starts_with(self._entries, prefix).to_numpy(zero_copy_only=False) & (self._sizes > len(prefix))
        places = np.flatnonzero(has_it)
        last = np.full(self._count, -1)
        last[self._rows[places]] = places
        is_absent = last < 0
        found = self._entries.take(pa.array(last, mask=is_absent))
        values = pc.binary_slice(found.fill_null(prefix), len(prefix), _TO_THE_END)
        return pc.if_else(pa.array(is_absent), pa.scalar(None, pa.binary()), values) if is_absent.any() else values
