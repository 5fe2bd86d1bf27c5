"""A declared type → the columns of a table, and the values of a row."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, get_type_hints

import pyarrow as pa
from msgspec import inspect as kinds

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
PLAIN = pa.schema([pa.field("body", pa.binary()), pa.field("tag", pa.string()), pa.field("keys", pa.string())])
"""The columns without a declared type; keys are separated by blanks, as brokers keep them."""
PROBLEM = pa.schema([pa.field("_rmq_problem", pa.string()), pa.field("_rmq_body", pa.binary())])
"""What a body that cannot be decoded leaves, beside empty columns."""

_SCALARS: list[tuple[type[kinds.Type], pa.DataType]] = [
    (kinds.BoolType, pa.bool_()),
    (kinds.IntType, pa.int64()),
    (kinds.FloatType, pa.float64()),
    (kinds.StrType, pa.string()),
    (kinds.BytesType, pa.binary()),
    (kinds.DateTimeType, TIMESTAMP),
    (kinds.DateType, pa.date32()),
    (kinds.UUIDType, pa.string()),
    (kinds.DecimalType, pa.decimal128(38, 9)),
]
_PLAIN: tuple[type[kinds.Type], ...] = (kinds.NoneType, *(kind for kind, _ in _SCALARS if kind is not kinds.UUIDType))
"""Types whose values Arrow takes as they are."""


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


def columns_of(kind: Any) -> Columns:
    """`kind`: a dataclass, msgspec Struct, TypedDict or attrs class. Raises TypeError for what has no columns."""
    about = _about(kind)
    if not isinstance(about, kinds.StructType | kinds.DataclassType | kinds.TypedDictType):
        raise TypeError(f"{kind!r} has no fields: give a dataclass, a msgspec Struct or a TypedDict")
    fields = _ordered(about)
    names = [field.name for field in fields]
    return Columns(
        kind=kind,
        schema=pa.schema(_fields(about)),
        values=_of_mapping(names) if isinstance(about, kinds.TypedDictType) else _of_object(names),
        plain=[None if _is_plain(field.type) else _plain for field in fields],
    )


def _of_mapping(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    return lambda value: [value.get(name) for name in names]


def _of_object(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    get = attrgetter(*names) if names else lambda value: ()
    return get if len(names) != 1 else lambda value: (get(value),)


def _is_plain(about: kinds.Type) -> bool:
    """Whether Arrow takes every value of this type."""
    if isinstance(about, kinds.UnionType):
        return all(_is_plain(one) for one in about.types)
    return isinstance(about, _PLAIN)


def _about(kind: Any) -> kinds.Type:
    try:
        return kinds.type_info(kind)
    except TypeError as error:
        raise TypeError(f"{kind!r}: {error}") from None


def _fields(about: kinds.StructType | kinds.DataclassType | kinds.TypedDictType) -> list[pa.Field]:
    """Every column may be empty: types grow by fields, and old rows do not have them."""
    return [pa.field(field.name, _type(field.type, field.name)) for field in _ordered(about)]


def _ordered(about: kinds.StructType | kinds.DataclassType | kinds.TypedDictType) -> list[kinds.Field]:
    """The fields as they are written: those of a TypedDict come in another order."""
    if not isinstance(about, kinds.TypedDictType):
        return list(about.fields)
    names = list(get_type_hints(about.cls))
    return sorted(about.fields, key=lambda field: names.index(field.name))


def _type(about: kinds.Type, name: str) -> pa.DataType:  # noqa: PLR0911 - one line per kind of type
    if isinstance(about, kinds.UnionType):
        rest = [one for one in about.types if not isinstance(one, kinds.NoneType)]
        if len(rest) == 1:
            return _type(rest[0], name)
    for kind, found in _SCALARS:
        if isinstance(about, kind):
            return found
    if isinstance(about, kinds.EnumType):
        return pa.int64() if all(isinstance(one.value, int) for one in about.cls) else pa.string()
    if isinstance(about, kinds.LiteralType):
        return pa.int64() if all(isinstance(value, int) for value in about.values) else pa.string()
    if isinstance(about, kinds.ListType | kinds.VarTupleType | kinds.SetType | kinds.FrozenSetType):
        return pa.list_(_type(about.item_type, name))
    if isinstance(about, kinds.DictType):
        return pa.map_(_type(about.key_type, name), _type(about.value_type, name))
    if isinstance(about, kinds.StructType | kinds.DataclassType | kinds.TypedDictType):
        return pa.struct(_fields(about))
    raise TypeError(f"field {name!r} has no column: {type(about).__name__} is not one of the types that tables have")


_KEPT = (datetime.datetime, datetime.date, decimal.Decimal, bytes, str, int, float, bool, type(None))


def _plain(value: Any) -> Any:
    """As Arrow takes it."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, _KEPT):
        return value
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return {name: _plain(getattr(value, name)) for name in _names(value)}


def _names(value: Any) -> tuple[str, ...]:
    fields = getattr(value, "__struct_fields__", None)
    return tuple(fields) if fields is not None else tuple(value.__dataclass_fields__)
