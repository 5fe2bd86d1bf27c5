"""The columns of a table, and what makes a row of a payload."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")

COORDINATES = pa.schema(
    [
        pa.field("_rmq_topic", pa.string(), nullable=False),
        pa.field("_rmq_broker", pa.string(), nullable=False),
        pa.field("_rmq_queue", pa.int32(), nullable=False),
        pa.field("_rmq_offset", pa.int64(), nullable=False),
        pa.field("_rmq_store_ts", TIMESTAMP, nullable=False),
    ]
)
"""Where a row comes from. The first four name one message of a cluster."""
PLACE = COORDINATES.names[:4]


def nullable(columns: Iterable[pa.Field]) -> pa.Schema:
    """As plain columns that may be empty."""
    return pa.schema([column.with_nullable(True).remove_metadata() for column in columns])


PLAIN = pa.schema([pa.field("body", pa.binary()), pa.field("tag", pa.string()), pa.field("keys", pa.string())])
"""The columns without a declared type; keys are separated by blanks, as brokers keep them."""
PROBLEM = pa.schema([pa.field("_rmq_problem", pa.string()), pa.field("_rmq_body", pa.binary())])
"""What a body that cannot be decoded leaves, beside empty columns."""


def as_tables_have(rows: pa.Table) -> pa.Table:
    """The same with times of microseconds at most, and those of a zone in UTC: formats do not have others.

    They have no numbers without a sign either: those become the next larger kind that holds all of them.
    """
    fields = [field.with_type(_as_tables_have(field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields), safe=False)


_SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def _as_tables_have(kind: pa.DataType) -> pa.DataType:
    if kind in _SIGNED:
        return _SIGNED[kind]
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us" if kind.unit == "ns" else kind.unit, kind.tz and "UTC")
    inner = [field.with_type(_as_tables_have(field.type)) for field in map(kind.field, range(kind.num_fields))]
    if pa.types.is_struct(kind):
        return pa.struct(inner)
    if pa.types.is_map(kind):
        return pa.map_(*(field for field in inner[0].type))
    if pa.types.is_list(kind):
        return pa.list_(*inner)
    return pa.large_list(*inner) if pa.types.is_large_list(kind) else kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of one type."""

    kind: Any
    """What bodies are decoded as."""
    schema: pa.Schema
    values: Callable[[Any], Sequence[Any]]
    """A payload → the values of its row."""
    plain: Sequence[Callable[[Any], Any] | None]
    """By column: what makes of a value one that Arrow takes; None where Arrow takes all of them."""


def of_object(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """What takes the values of these attributes out of an object."""
    get = attrgetter(*names) if names else lambda value: ()
    return get if len(names) != 1 else lambda value: (get(value),)
