"""Which line of a settings file says something; asked for an error alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def line_of(text: str, paths: list[tuple[str, ...]]) -> int | None:
    """The line on which the statement of the first of these paths begins that is in the file, or None.

    TOML's readers give no positions. But what stands before a statement is a file as well, without the path, and with
    the statement it has the path. Only lines with the path's last name are tried.
    """
    lines = text.split("\n")
    for path in paths:
        for number, line in enumerate(lines):
            if path[-1].lower() in line.lower() and _begins(lines, number, path):
                return number + 1
    return None


def _begins(lines: list[str], number: int, path: tuple[str, ...]) -> bool:
    before = _read(lines[:number])
    if before is None or _has(before, path):
        return False
    for end in range(number + 1, len(lines) + 1):  # a statement may go over several lines
        raw = _read(lines[:end])
        if raw is not None:
            return _has(raw, path)
    return False


def _read(lines: list[str]) -> dict[str, Any] | None:
    import tomllib

    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError:
        return None


def _has(raw: Any, path: tuple[str, ...]) -> bool:
    """Names of tables may be in capitals, as dynaconf has it."""
    for name in path:
        if not isinstance(raw, Mapping):
            return False
        folded = {key.lower(): value for key, value in raw.items()}
        if name.lower() not in folded:
            return False
        raw = folded[name.lower()]
    return True
