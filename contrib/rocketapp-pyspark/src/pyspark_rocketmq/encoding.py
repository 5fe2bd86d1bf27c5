"""Rows into messages, column by column: each becomes an item of a batch, as `rocketapp.wire.batch` has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.columns import SHARDING_KEY, STAMP
from rocketapp.errors import ProtocolError
from rocketapp.wire import properties as names
from rocketapp.wire.batch import ITEM_BYTES

_HEAD = np.dtype([("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body", ">u4")])
_SHORT = np.dtype(">u2")
_BYTES, _TEXT = pa.large_binary(), pa.large_string()
"""With offsets of 64 bits: items are larger than the bodies, of which a batch may have 2 GiB."""
_TEXTS = {"keys": names.KEYS, "tags": names.TAGS, "sharding_key": SHARDING_KEY}
"""Columns that become a property as they are."""
_OWN = frozenset({*_TEXTS.values(), names.UNIQ_KEY, STAMP, names.WAIT, names.TIMER_DELIVER_MS})
"""Properties that are not taken from the column of properties."""


class RowError(Exception):
    """A row of a batch cannot be a message."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(row, problem)
        self.row, self.problem = row, problem


def encode(columns: Mapping[str, Any], unique_ids: list[str], stamps: Any = None) -> Any:
    """The item of each row, as a `large_binary` array.

    `columns`: Arrow arrays by name, `body` among them. `stamps`: the values of the property that names the row, if it
    has one. Raises RowError for a row that cannot be a message.
    """
    bodies = columns["body"].cast(_BYTES)
    refuse(bodies.is_null(), lambda _: "its body is null")
    parts = _Parts()
    if "properties" in columns:
        parts.add(pa.array(_encoded(columns["properties"]), _BYTES))
    for column, name in _TEXTS.items():
        if column in columns:
            parts.add_property(name, _checked(columns[column], name))
    parts.add_property(names.UNIQ_KEY, pa.array(unique_ids, _BYTES))
    if stamps is not None:
        parts.add_property(STAMP, stamps)
    parts.add_constant(names.encode({names.WAIT: "true"}))
    if "deliver_at" in columns:
        parts.add_property(names.TIMER_DELIVER_MS, _milliseconds(columns["deliver_at"]))
    raw = parts.joined()
    raw_bytes = pc.binary_length(raw).to_numpy()
    refuse(
        pa.array(raw_bytes > names.LONGEST),
        lambda row: f"its properties are {raw_bytes[row]} bytes long, at most {names.LONGEST} are legal",
    )
    heads = np.zeros(len(bodies), _HEAD)
    heads["body"] = pc.binary_length(bodies).to_numpy()
    heads["size"] = ITEM_BYTES + heads["body"] + raw_bytes
    return _join(_of_one_size(heads), bodies, _of_one_size(raw_bytes.astype(_SHORT)), raw)


class _Parts:
    """Pieces of text that are joined row by row. Constant ones become one, as each piece costs something."""

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._constant = b""

    def add_constant(self, text: bytes) -> None:
        self._constant += text

    def add(self, values: Any) -> None:
        """Of each row its own; null is nothing."""
        if self._constant:
            self._parts.append(pa.scalar(self._constant, _BYTES))
            self._constant = b""
        self._parts.append(values)

    def add_property(self, name: str, values: Any) -> None:
        """A property of each row; those with null do not have it."""
        before, behind = f"{name}{names.NAME_END}".encode(), names.ENTRY_END.encode()
        values = values.cast(_BYTES)
        if values.null_count:
            texts = pa.scalar(before, _BYTES), values, pa.scalar(behind, _BYTES), pa.scalar(b"", _BYTES)
            self.add(pc.binary_join_element_wise(*texts))
            return
        self.add_constant(before)
        self.add(values)
        self.add_constant(behind)

    def joined(self) -> Any:
        parts = [*self._parts, pa.scalar(self._constant, _BYTES)]
        return _join(*parts)


def _join(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", _BYTES), null_handling="replace", null_replacement="")


def _of_one_size(numbers: Any) -> Any:
    """Each element as its bytes."""
    size = numbers.dtype.itemsize
    edges = np.arange(0, (len(numbers) + 1) * size, size, dtype=np.int64)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(numbers.tobytes())]
    return pa.Array.from_buffers(_BYTES, len(numbers), buffers)


def _checked(values: Any, name: str) -> Any:
    """Raises RowError when a text would end its property."""
    values = values.cast(_TEXT)
    refuse(
        pc.match_substring(values, names.ENTRY_END),
        lambda row: _problem_of({name: values[row].as_py()}),
    )
    return values


def _problem_of(properties: dict[str, str]) -> str:
    try:
        names.encode(properties)
    except ProtocolError as error:
        return str(error)
    return "it cannot be a property"


def _encoded(rows: Any) -> list[bytes]:
    """The encoded properties of each row, without those that other columns and the writer give."""
    found = []
    for row, pairs in enumerate(rows.to_pylist()):
        try:
            found.append(names.encode({name: value for name, value in pairs or () if name not in _OWN}))
        except ProtocolError as error:
            raise RowError(row, str(error)) from None
    return found


def _milliseconds(times: Any) -> Any:
    """Since 1970, as text."""
    zone = times.type.tz
    return times.cast(pa.timestamp("ms", zone), safe=False).cast(pa.int64()).cast(_TEXT)


def refuse(wrong: Any, problem: Callable[[int], str]) -> None:
    """Raise RowError for the first row that is wrong."""
    row = pc.index(wrong, True).as_py()
    if row >= 0:
        raise RowError(row, problem(row))


def stamps_of(place: str, first: int, count: int) -> Any:
    """`place/number` of `count` rows from that number on."""
    numbers = pa.array(np.arange(first, first + count)).cast(_TEXT)
    return pc.binary_join_element_wise(pa.scalar(f"{place}/", _TEXT), numbers, pa.scalar("", _TEXT))
