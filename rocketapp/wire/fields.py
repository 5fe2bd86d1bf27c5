"""Reads and writes a command's `extFields`, in which every value is a string.

A missing value without a default, or a value that is not an integer of the expected width,
raises ProtocolError with the field's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Self

import msgspec

from rocketapp.errors import ProtocolError

Fields = Mapping[str, str] | None
Int32 = Annotated[int, 32]
"""An attribute of 32 bits; other integers have 64."""
MissingText = Annotated[str, "may be missing"]
"""A text that peers may leave out: it is empty then."""

_INT32, _INT64 = 2**31, 2**63


def text(fields: Fields, name: str, default: str | None = None) -> str:
    value = fields.get(name, default) if fields else default
    if value is None:
        raise _missing(name)
    return value


def optional_text(fields: Fields, name: str) -> str | None:
    return fields.get(name) if fields else None


def int32(fields: Fields, name: str, default: int | None = None) -> int:
    value = _integer(fields, name, _INT32)
    return _default(name, default) if value is None else value


def int64(fields: Fields, name: str, default: int | None = None) -> int:
    value = _integer(fields, name, _INT64)
    return _default(name, default) if value is None else value


def _default(name: str, default: int | None) -> int:
    if default is None:
        raise _missing(name)
    return default


def optional_int32(fields: Fields, name: str) -> int | None:
    return _integer(fields, name, _INT32)


def boolean(fields: Fields, name: str, default: bool = False) -> bool:
    """Java's Boolean.parseBoolean: `true` in any case, everything else is false."""
    value = fields.get(name) if fields else None
    return default if value is None else value.lower() == "true"


def boolean_text(value: bool) -> str:
    return "true" if value else "false"


def _integer(fields: Fields, name: str, bound: int) -> int | None:
    value = fields.get(name) if fields else None
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        raise ProtocolError(f"field {name}: {value[:40]!r} is not an integer") from None
    if not -bound <= number < bound:
        raise ProtocolError(f"field {name}: {value[:40]} does not fit into {bound.bit_length()} bits")
    return number


def _missing(name: str) -> ProtocolError:
    return ProtocolError(f"field {name} is missing")


def java_names(**names: str) -> Callable[[str], str]:
    """For `rename` of a Header: these names, and for the other attributes the same as Java writes it."""
    known = {"group": "consumerGroup", "broker_name": "bname", **names}

    def name_of(attribute: str) -> str:
        first, *others = attribute.split("_")
        return known.get(attribute) or first + "".join(map(str.capitalize, others))

    return name_of


class Header(msgspec.Struct, frozen=True, rename=java_names()):
    """The fields of one kind of request or response, an attribute each.

    An attribute that is None is left out. When a field is missing, the attribute is None where that is possible, false
    where it is a boolean, and otherwise its default. Pulls and sends do not use this: they are read and written often.
    """

    def to_fields(self) -> dict[str, str]:
        values = zip(self.__struct_encode_fields__, msgspec.structs.astuple(self), strict=True)
        return {
            name: value if value.__class__ is str else _written(value) for name, value in values if value is not None
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        """Read it from the fields of a command. Raises ProtocolError when one is missing or malformed."""
        return cls(*[read(fields, name, default) for read, name, default in _read_by(cls)])


_Read = Callable[[Fields, str, Any], Any]


def _written(value: int) -> str:
    return boolean_text(value) if isinstance(value, bool) else str(int(value))


def _optional_boolean(fields: Fields, name: str) -> bool | None:
    return boolean(fields, name) if fields and name in fields else None


_READERS: dict[Any, _Read] = {
    str: text,
    MissingText: lambda fields, name, _: text(fields, name, ""),
    Int32: int32,
    int: int64,
    bool: lambda fields, name, _: boolean(fields, name),
    str | None: lambda fields, name, _: optional_text(fields, name),
    Int32 | None: lambda fields, name, _: optional_int32(fields, name),
    bool | None: lambda fields, name, _: _optional_boolean(fields, name),
}


@cache
def _read_by(header: type[Header]) -> list[tuple[_Read, str, Any]]:
    """How each attribute is read, its field, and its default; None where it must be there."""
    return [
        (_READERS[one.type], one.encode_name, None if one.default is msgspec.NODEFAULT else one.default)
        for one in msgspec.structs.fields(header)
    ]
