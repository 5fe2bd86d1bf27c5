"""What `app.sink` was given, checked where it is written."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from rocketapp.plugin import Start
from rocketapp_pyspark.batches import Limits
from rocketapp_pyspark.formats import PartitionBy
from rocketapp_pyspark.rows import BadRows, Rows

if TYPE_CHECKING:
    import pyarrow as pa

Transform = Callable[["pa.Table"], "pa.Table | None"]


@dataclass(slots=True, kw_only=True)
class Sink:
    """One sink of an app."""

    topic: str
    group: str
    table: str | os.PathLike[str]
    format: str
    name: str
    schema: Any
    bad_rows: BadRows
    partition_by: PartitionBy | None
    limits: Limits
    compact_every: float | None
    target_file_size: int
    place: str
    start: Start
    transform: Transform | None = field(default=None, init=False)
    """The user's function, when the sink is used as a decorator."""

    def rows(self) -> Rows:
        """Raises TypeError for a type without columns."""
        return Rows(self.schema, self.bad_rows, lambda: self.transform)


def problem_of(sink: Sink, formats: Iterable[str]) -> str | None:
    """Why it cannot work; None when it can. `formats`: those that are known."""
    return (
        _choice_problem(sink, sorted(formats))
        or _table_problem(sink)
        or _limits_problem(sink.limits)
        or _compaction_problem(sink)
        or _name_problem(sink)
    )


def _choice_problem(sink: Sink, formats: Sequence[str]) -> str | None:
    for name, value, known in (
        ("format", sink.format, formats),
        ("bad_rows", sink.bad_rows, get_args(BadRows)),
        ("partition_by", sink.partition_by, (None, *get_args(PartitionBy))),
    ):
        if value not in known:
            return f"{name}={value!r} is unknown: give {' or '.join(map(repr, known))}"
    return None


def _table_problem(sink: Sink) -> str | None:
    table: object = sink.table
    if not isinstance(table, str | os.PathLike) or not os.fspath(table):
        return f"table={table!r}: give the place of the table"
    if sink.format == "parquet" and "://" in os.fspath(table):
        return f"table={table!r}: a Parquet directory needs a file system with hard links; give a path"
    return None


def _limits_problem(limits: Limits) -> str | None:
    for name, value in (("flush_rows", limits.rows), ("flush_bytes", limits.bytes)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            return f"{name}={value!r}: give a whole number, 1 or more"
    if not _is_seconds(limits.seconds):
        return f"flush_seconds={limits.seconds!r}: give seconds, more than 0"
    return None


def _compaction_problem(sink: Sink) -> str | None:
    every: object = sink.compact_every
    if every is not None and not _is_seconds(every):
        return f"compact_every={every!r}: give seconds, more than 0, or None"
    size: object = sink.target_file_size
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        return f"target_file_size={size!r}: give bytes, 1 or more"
    return None


def _is_seconds(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value < math.inf


def _name_problem(sink: Sink) -> str | None:
    return None if isinstance(sink.name, str) and sink.name else f"name={sink.name!r}: give a text"


def transform_problem(function: object) -> str | None:
    """Why this cannot be the function of a sink; None when it can."""
    if not callable(function):
        return f"{function!r} is not a function"
    if inspect.iscoroutinefunction(function):
        return "the function of a sink works on a batch in a thread: make it a plain `def`"
    try:
        inspect.signature(function).bind(object())
    except (TypeError, ValueError):
        return "the function of a sink takes one argument, the batch as a pyarrow.Table"
    return None
