"""A declared type → columns: dataclasses, msgspec Structs and unions of them, TypedDicts, attrs classes, pydantic."""

from __future__ import annotations

import datetime
import decimal
import enum
import sys
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any, get_type_hints

import pyarrow as pa
from msgspec import inspect as kinds

from rocketapp_lake.columns import TIMESTAMP, Columns, of_object

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


def typed_columns(kind: Any) -> Columns:
    """Raises TypeError for what has no columns."""
    about = _about(kind)
    if isinstance(about, kinds.UnionType):
        return _of_union(kind, about)
    fields = _fields_of(about)
    if fields is None:
        raise TypeError(
            f"{kind!r} has no fields: give a dataclass, a msgspec Struct, a TypedDict, a pydantic model, a Protobuf "
            f"class, a pyarrow schema or Spark DDL"
        )
    names = [name for name, _ in fields]
    try:
        columns = _columns(fields)
    except RecursionError:
        raise TypeError(f"{kind!r} holds itself: a column has an end") from None
    return Columns(
        kind=kind,
        schema=pa.schema(columns),
        values=_of_mapping(names) if isinstance(about, kinds.TypedDictType) else of_object(names),
        plain=[None if _is_plain(one) else _plain for _, one in fields],
    )


def _of_union(kind: Any, about: kinds.UnionType) -> Columns:
    """The fields of all of its types, and the tag that tells them apart."""
    structs = [one for one in about.types if isinstance(one, kinds.StructType) and one.tag_field is not None]
    if len(structs) < len(about.types):
        raise TypeError(f"{kind!r}: several types are one table when all of them are msgspec Structs with a tag")
    tags = {one.cls: one.tag for one in structs}
    name = str(structs[0].tag_field)
    fields: dict[str, kinds.Type] = {}
    for one in structs:
        for field in one.fields:
            said, own = _type(fields.get(field.name, field.type), field.name), _type(field.type, field.name)
            if field.name == name or said != own:
                raise TypeError(f"{kind!r}: field {field.name!r} has not the same type in all of them")
            fields[field.name] = field.type
    tag = pa.string() if all(isinstance(said, str) for said in tags.values()) else pa.int64()
    names = list(fields)
    return Columns(
        kind=kind,
        schema=pa.schema([pa.field(name, tag), *_columns(list(fields.items()))]),
        values=lambda value: [tags[type(value)], *(getattr(value, one, None) for one in names)],
        plain=[None, *(None if _is_plain(one) else _plain for one in fields.values())],
    )


def _of_mapping(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    return lambda value: [value.get(name) for name in names]


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


def _columns(fields: Sequence[tuple[str, kinds.Type]]) -> list[pa.Field]:
    """Every column may be empty: types grow by fields, and old rows do not have them."""
    return [pa.field(name, _type(about, name)) for name, about in fields]


def _fields_of(about: kinds.Type) -> list[tuple[str, kinds.Type]] | None:
    """Names and types, as they are written; None for a type without fields."""
    if isinstance(about, kinds.CustomType) and hasattr(about.cls, "model_fields"):
        # `annotation` is without what pydantic checks beside the type.
        return [(name, _about(field.annotation)) for name, field in about.cls.model_fields.items()]
    if isinstance(about, kinds.TypedDictType):  # its fields come in another order
        names = list(get_type_hints(about.cls))
        return [(one.name, one.type) for one in sorted(about.fields, key=lambda field: names.index(field.name))]
    if isinstance(about, kinds.StructType | kinds.DataclassType):
        return [(one.name, one.type) for one in about.fields]
    return None


def _type(about: kinds.Type, name: str) -> pa.DataType:
    if isinstance(about, kinds.UnionType):
        rest = [one for one in about.types if not isinstance(one, kinds.NoneType)]
        if len(rest) == 1:
            return _type(rest[0], name)
    for kind, found in _SCALARS:
        if isinstance(about, kind):
            return found
    if isinstance(about, kinds.EnumType | kinds.LiteralType):
        values = about.values if isinstance(about, kinds.LiteralType) else [one.value for one in about.cls]
        return pa.int64() if all(isinstance(value, int) for value in values) else pa.string()
    if isinstance(about, kinds.ListType | kinds.VarTupleType | kinds.SetType | kinds.FrozenSetType):
        return pa.list_(_type(about.item_type, name))
    if isinstance(about, kinds.DictType):
        return pa.map_(_type(about.key_type, name), _type(about.value_type, name))
    fields = _fields_of(about)
    if fields is not None:
        return pa.struct(_columns(fields))
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
    for said in ("__struct_fields__", "model_fields", "__dataclass_fields__"):
        fields = getattr(type(value), said, None)
        if fields is not None:
            return tuple(fields)
    return tuple(field.name for field in value.__attrs_attrs__)


_BYTES = 12
"""FieldDescriptor.TYPE_BYTES; the other types are told apart by how C++ has them."""
_PROTOBUF_SCALARS = {
    1: pa.int32(),
    2: pa.int64(),
    3: pa.uint32(),
    4: pa.uint64(),
    5: pa.float64(),
    6: pa.float32(),
    7: pa.bool_(),
    8: pa.string(),  # enums, by name
    9: pa.string(),
}
_MESSAGE, _ENUM = 10, 8
_TIMESTAMP = "google.protobuf.Timestamp"

Get = Callable[[Any], Any]


def is_generated(kind: Any) -> bool:
    """Where a generated class is, the runtime is imported."""
    runtime = sys.modules.get("google.protobuf.message")
    return runtime is not None and isinstance(kind, type) and issubclass(kind, runtime.Message)


def protobuf_columns(kind: Any) -> Columns:
    """Raises TypeError for a message that holds itself."""
    fields = [(field.name, *_field(field, (kind.DESCRIPTOR.full_name,))) for field in kind.DESCRIPTOR.fields]
    gets = [get for _, _, get in fields]
    return Columns(
        kind=kind,
        schema=pa.schema([pa.field(name, about) for name, about, _ in fields]),
        values=lambda message: [get(message) for get in gets],
        plain=[None for _ in fields],
    )


def _field(field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Get]:
    """The type of its column, and what takes its value out of a message."""
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[one] for one in ("key", "value"))
        key_type, _ = _single(key, inside)
        value_type, of_value = _single(value, inside)
        return pa.map_(key_type, value_type), lambda message: [
            (one, of_value(item)) for one, item in getattr(message, name).items()
        ]
    about, of_value = _single(field, inside)
    if field.is_repeated:
        return pa.list_(about), lambda message: [of_value(item) for item in getattr(message, name)]
    if field.has_presence:
        return about, lambda message: of_value(getattr(message, name)) if message.HasField(name) else None
    return about, lambda message: of_value(getattr(message, name))


def _single(field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Get]:
    if field.cpp_type == _ENUM:
        names = field.enum_type.values_by_number
        return pa.string(), lambda number: names[number].name if number in names else str(number)
    if field.cpp_type != _MESSAGE:
        return pa.binary() if field.type == _BYTES else _PROTOBUF_SCALARS[field.cpp_type], _same
    about = field.message_type
    if about.full_name == _TIMESTAMP:
        return TIMESTAMP, lambda value: value.ToDatetime(tzinfo=UTC)
    if about.full_name in inside:
        raise TypeError(f"field {field.full_name} has no column: {about.full_name} holds itself")
    parts = [(one.name, *_field(one, (*inside, about.full_name))) for one in about.fields]
    gets = [(name, get) for name, _, get in parts]
    kind = pa.struct([pa.field(name, one) for name, one, _ in parts])
    return kind, lambda value: {name: get(value) for name, get in gets}


def _same(value: Any) -> Any:
    return value
