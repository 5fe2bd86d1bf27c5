"""Which queues and offsets a query's filters leave. Pure.

Filters only make the plan smaller: Spark applies all of them again, so a part of a filter is enough, and what is not
understood changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pyspark_rocketmq.planning import Range
from rocketapp import MessageQueue

_OF_QUEUE = ("topic", "broker", "queue_id")
"""The columns that together name a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the filters leave. None: no bound."""

    among: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    """By column of a queue its values that are left; a column that is not named has all."""
    first: int | None = None
    """The lowest offset."""
    last: int | None = None
    since_ms: int | None = None
    """The lowest store time, in ms since 1970."""
    until_ms: int | None = None

    def has(self, queue: MessageQueue) -> bool:
        """Whether rows of this queue may be left."""
        return all(value in self.among.get(column, (value,)) for column, value in zip(_OF_QUEUE, queue, strict=True))

    def within(self, whole: Range) -> Range:
        """The part of a range whose offsets are left; perhaps an empty one."""
        start = whole.start if self.first is None else max(whole.start, self.first)
        end = whole.end if self.last is None else min(whole.end, self.last + 1)
        return Range(whole.queue, start, max(start, end))


def wanted_of(filters: Iterable[Any]) -> Wanted:
    """What Spark's filters leave, all of them taken together. They are told apart by the names of their classes."""
    wanted = Wanted()
    for one in filters:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        value = getattr(one, "value", None)
        if len(path) == 1 and value is not None:
            wanted = _narrowed(wanted, path[0], type(one).__name__, value)
    return wanted


def _narrowed(wanted: Wanted, column: str, kind: str, value: Any) -> Wanted:
    if kind in ("EqualTo", "EqualNullSafe", "In") and column in _OF_QUEUE:
        values = frozenset(value if kind == "In" else (value,))
        return replace(wanted, among={**wanted.among, column: wanted.among.get(column, values) & values})
    low = kind in ("GreaterThan", "GreaterThanOrEqual", "EqualTo")
    high = kind in ("LessThan", "LessThanOrEqual", "EqualTo")
    if column == "queue_offset" and isinstance(value, int):
        first = value + (kind == "GreaterThan") if low else None
        last = value - (kind == "LessThan") if high else None
        return replace(wanted, first=_most(wanted.first, first), last=_least(wanted.last, last))
    if column == "store_timestamp" and isinstance(value, datetime):
        ms = value.timestamp() * 1000
        since, until = math.floor(ms) if low else None, math.ceil(ms) if high else None
        return replace(wanted, since_ms=_most(wanted.since_ms, since), until_ms=_least(wanted.until_ms, until))
    return wanted


def _most(*bounds: int | None) -> int | None:
    return max((bound for bound in bounds if bound is not None), default=None)


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)
