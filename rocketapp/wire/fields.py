"""Reads one named value of a command's `extFields`, in which every value is a string.

A missing value without a default, or a value that is not an integer of the expected width,
raises ProtocolError with the field's name.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketapp.errors import ProtocolError

Fields = Mapping[str, str] | None

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
    if value is None:
        value = default
    if value is None:
        raise _missing(name)
    return value


def int64(fields: Fields, name: str, default: int | None = None) -> int:
    value = _integer(fields, name, _INT64)
    if value is None:
        value = default
    if value is None:
        raise _missing(name)
    return value


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
