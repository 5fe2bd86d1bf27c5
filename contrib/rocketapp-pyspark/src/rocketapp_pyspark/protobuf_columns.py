"""A generated Protobuf class → columns. Without one in use, its runtime is not imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC
from typing import Any

import pyarrow as pa

from rocketapp_pyspark.columns import TIMESTAMP, Columns

_BYTES = 12
"""FieldDescriptor.TYPE_BYTES; the other types are told apart by how C++ has them."""
_SCALARS = {
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
        return pa.binary() if field.type == _BYTES else _SCALARS[field.cpp_type], _same
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
