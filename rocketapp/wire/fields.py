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
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""An attribute of 32 bits; other integers have 64."""
Int64 = Annotated[int, msgspec.Meta(gt=-(2**53), lt=2**53)]
"""An attribute of 64 bits of an `OftenReadHeader`. Larger ones are read one by one: a float would be rounded in C."""
MissingText = Annotated[str, "may be missing"]
"""A text that peers may leave out: it is empty then."""
MissingInt = Annotated[Int64, "may be missing"]
"""A number that peers may leave out: it is 0 then."""

_INT32, _INT64 = 2**31, 2**63


def text(fields: Fields, name: str, default: str | None = None) -> str:
    value = fields.get(name, default) if fields else default
    if value is None:
        raise ProtocolError(f"field {name} is missing")
    return value


def optional_text(fields: Fields, name: str) -> str | None:
    return fields.get(name) if fields else None


def _number(bits: int) -> Callable[..., int]:
    bound = 1 << bits - 1

    def read(fields: Fields, name: str, default: int | None = None) -> int:
        if default is not None and not (fields and name in fields):
            return default
        value = text(fields, name)
        try:
            number = int(value)
        except ValueError:
            raise ProtocolError(f"field {name}: {value[:40]!r} is not an integer") from None
        if not -bound <= number < bound:
            raise ProtocolError(f"field {name}: {value[:40]} does not fit into {bits} bits")
        return number

    return read


int32: Callable[..., int] = _number(32)
int64: Callable[..., int] = _number(64)
"""(fields, name, default) -> the number; without a default it must be there."""


def boolean(fields: Fields, name: str) -> bool:
    """Java's Boolean.parseBoolean: `true` in any case, everything else is false."""
    return text(fields, name, "").lower() == "true"


def boolean_text(value: bool) -> str:
    return "true" if value else "false"


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
    where it is a boolean, and otherwise its default.
    """

    def to_fields(self) -> dict[str, str]:
        found = {}
        for name, value in zip(self.__struct_encode_fields__, msgspec.structs.astuple(self), strict=True):
            if value is True or value is False:
                found[name] = boolean_text(value)
            elif value is not None:
                found[name] = str(value)
        return found

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        """Read it from the fields of a command. Raises ProtocolError when one is missing or malformed."""
        return cls(*[read(fields, name, default) for read, name, default in _read_by(cls)])


class OftenReadHeader(Header, frozen=True):
    """A header of pulls and sends. What has defaults has the one that a missing field means."""

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        """Read it from the fields of a command. Raises ProtocolError when one is missing or malformed."""
        try:
            # In C: this is a sixth of the time of reading the fields one by one, and every message pays for it.
            return msgspec.convert(fields, cls, strict=False)
        except msgspec.ValidationError:
            return super().from_fields(fields)


_Read = Callable[[Fields, str, Any], Any]


_READERS: dict[Any, _Read] = {
    str: text,
    MissingText: lambda fields, name, _: text(fields, name, ""),
    MissingInt: lambda fields, name, _: int64(fields, name, 0),
    Int32: int32,
    int: int64,
    Int64: int64,
    bool: lambda fields, name, _: boolean(fields, name),
    str | None: lambda fields, name, _: optional_text(fields, name),
    Int32 | None: lambda fields, name, _: int32(fields, name) if fields and name in fields else None,
    bool | None: lambda fields, name, _: boolean(fields, name) if fields and name in fields else None,
}


@cache
def _read_by(header: type[Header]) -> list[tuple[_Read, str, Any]]:
    """How each attribute is read, its field, and its default; None where it must be there."""
    return [
        (_READERS.get(one.type, text), one.encode_name, None if one.default is msgspec.NODEFAULT else one.default)
        for one in msgspec.structs.fields(header)
    ]
