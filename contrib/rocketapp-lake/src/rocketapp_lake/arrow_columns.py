"""Columns that are given themselves, by a pyarrow schema or by Spark DDL → a type that bodies are decoded as."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from rocketapp_lake.columns import Columns, of_object


def arrow_columns(schema: pa.Schema) -> Columns:
    """Raises TypeError for a column that no body fills.

    A field that may not be empty has to be in each body. The columns themselves may be: of tables that grow, old rows
    lack what is new.
    """
    names = [f"f{number}" for number in range(len(schema))]
    return Columns(
        kind=_struct("Row", list(schema)),
        schema=pa.schema([pa.field(column.name, column.type) for column in schema]),
        values=of_object(names),
        plain=[_plain(column.type) for column in schema],
    )


def _struct(name: str, fields: list[pa.Field]) -> type[msgspec.Struct]:
    """Its attributes are numbered: columns may have names that no attribute has."""
    if len({field.name for field in fields}) < len(fields):
        raise TypeError("two columns have the same name")
    members: list[Any] = []
    for number, field in enumerate(fields):
        kind = _kind(field.type, field.name)
        members.append((f"f{number}", kind | None, None) if field.nullable else (f"f{number}", kind))
    rename = {f"f{number}": field.name for number, field in enumerate(fields)}
    return msgspec.defstruct(name, members, rename=rename, kw_only=True)


def _kind(about: pa.DataType, name: str) -> Any:
    if pa.types.is_signed_integer(about):
        half = 2 ** (about.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-half, le=half - 1)]
    if pa.types.is_integer(about) and about.bit_width < 64:
        return Annotated[int, msgspec.Meta(ge=0, le=2**about.bit_width - 1)]
    for is_one, kind in _KINDS:
        if is_one(about):
            return kind
    if pa.types.is_list(about) or pa.types.is_large_list(about):
        return list[_inside(about.value_field, name)]  # type: ignore[misc]  # made at run time
    if pa.types.is_map(about):
        return dict[_kind(about.key_type, name), _inside(about.item_field, name)]  # type: ignore[misc]
    if pa.types.is_struct(about):
        return _struct(name, [about.field(number) for number in range(about.num_fields)])
    raise TypeError(f"column {name!r} is {about}: no body fills it")


def _inside(field: pa.Field, name: str) -> Any:
    kind = _kind(field.type, name)
    return kind | None if field.nullable else kind


_KINDS: list[tuple[Any, Any]] = [
    (pa.types.is_boolean, bool),
    (pa.types.is_uint64, Annotated[int, msgspec.Meta(ge=0)]),
    (pa.types.is_floating, float),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_large_binary, bytes),
    (pa.types.is_timestamp, datetime.datetime),
    (pa.types.is_date, datetime.date),
    (pa.types.is_decimal, decimal.Decimal),
]


_BUILT_IN = (bytes, datetime.datetime, datetime.date, decimal.Decimal)


def _plain(about: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes of a decoded value one that Arrow takes; None where it takes all of them."""
    return partial(msgspec.to_builtins, builtin_types=_BUILT_IN) if pa.types.is_nested(about) else None
