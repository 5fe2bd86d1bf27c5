"""Checks of numbers that users give: True and False do not count as numbers."""

from __future__ import annotations

from typing import TypeGuard

MOST_SECONDS = 10**9
"""Of a time that is given, some 30 years: brokers and operating systems count milliseconds of 64 bits."""

END_MS = 253_402_300_800_000
"""The end of the year 9999, in milliseconds since 1970: behind it there is no date."""


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is an int or a float, and neither True nor False."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is an int, and neither True nor False."""
    return isinstance(value, int) and not isinstance(value, bool)
