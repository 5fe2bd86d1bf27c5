"""Declare an option once: default, meaning, bounds, its name in Java.

Its check, its environment name, its help and its place in the reference all come
from the one declaration.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
_KEY = "rocketapp.option"


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """The metadata of one option, beside its type and default."""

    meaning: str
    java: str | None = None
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False


def option(
    default: T,
    meaning: str,
    *,
    java: str | None = None,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
) -> T:
    """A dataclass field with its meaning and bounds. Seconds are floats, sizes end in `_bytes`.

    `least=1`: of a text that may not be empty.
    `secret`: its value is shown nowhere, also not in the `repr` of its table.
    """
    info = OptionInfo(meaning, java, least, most, choices, secret)
    return dataclasses.field(default=default, repr=not secret, metadata={_KEY: info})  # type: ignore[return-value,no-any-return,unused-ignore]


def info_of(field: dataclasses.Field[Any]) -> OptionInfo:
    """The declaration behind a field made by `option`."""
    info: OptionInfo = field.metadata[_KEY]
    return info


def bounds_problem(info: OptionInfo, value: Any) -> str | None:
    """Why this value is out of bounds; None when it is within them."""
    if isinstance(value, str) and "\0" in value:
        return "no text with a NUL is taken"
    if info.choices and value not in info.choices:
        return f"{value!r} is not one of {', '.join(info.choices)}"
    if isinstance(value, str):
        return f"{value!r} is empty: leave it out, or give it a value" if len(value) < (info.least or 0) else None
    if info.least is not None and value is not None and value < info.least:
        return f"{value!r} is below the least, {info.least:g}"
    if info.most is not None and value is not None and value > info.most:
        return f"{value!r} is above the most, {info.most:g}"
    return None
