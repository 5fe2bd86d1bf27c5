"""A batch of messages → an Arrow table with the coordinates of each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pyarrow as pa

from rocketapp.plugin import Message, RocketAppError
from rocketapp_pyspark.batches import Batch
from rocketapp_pyspark.columns import COORDINATES, PLAIN, PROBLEM, TIMESTAMP, Columns
from rocketapp_pyspark.errors import SinkError
from rocketapp_pyspark.lanes import Lane

BadRows = Literal["fail", "column", "table"]
Transform = Callable[[pa.Table], "pa.Table | None"]


class Rows:
    """Makes the rows of one sink."""

    def __init__(self, kind: Any, bad_rows: BadRows, transform: Callable[[], Transform | None]) -> None:
        """`kind`: what bodies are, or None for the bodies themselves. `transform` gives the user's function, if any.

        Raises TypeError for a type without columns.
        """
        self._columns = None if kind is None else Columns(kind)
        self._keeps_bad, self._transform = bad_rows == "column", transform
        self._sets_aside = kind is not None and bad_rows == "table"
        self._aside: tuple[Batch[Message], list[tuple[Lane, Message, str]]] | None = None
        """The bad rows of the batch that was decoded last."""
        own = list(PLAIN if self._columns is None else self._columns.schema)
        self._own = pa.schema([*own, *(PROBLEM if self._columns is not None and self._keeps_bad else ())])
        self.schema = pa.schema([*self._own, *COORDINATES])
        """Before the user's function."""

    def table(self, batch: Batch[Message]) -> pa.Table | None:
        """The rows, after the user's function; None when it wants none of them.

        Raises SinkError for a body that cannot be decoded, unless those are kept.
        """
        located, values = self._decoded(batch)
        columns: list[tuple[Any, ...]] = list(zip(*values, strict=True)) or [() for _ in self._own]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._own, strict=True)]
        table = pa.Table.from_arrays([*arrays, *_coordinates(located)], schema=self.schema)
        transform = self._transform()
        return table if transform is None else _checked(transform(table))

    def bad(self, batch: Batch[Message]) -> pa.Table | None:
        """What `table` sets aside of this batch; None when that is nothing."""
        if not self._sets_aside:
            return None
        if self._aside is None or self._aside[0] is not batch:
            self._decoded(batch)
        assert self._aside is not None
        found = self._aside[1]
        if not found:
            return None
        problems = pa.array([problem for _, _, problem in found], pa.string())
        bodies = pa.array([_raw(message) for _, message, _ in found], pa.binary())
        located = [(lane, message) for lane, message, _ in found]
        return pa.Table.from_arrays([problems, bodies, *_coordinates(located)], schema=BAD)

    def _decoded(self, batch: Batch[Message]) -> tuple[list[tuple[Lane, Message]], list[list[Any]]]:
        """Where each row comes from, and its values; bad rows are noted down if they are to be set aside."""
        located, values, aside = [], [], list[tuple[Lane, Message, str]]()
        for lane, messages in batch.rows.items():
            for message in messages:
                try:
                    values.append(self._values(lane, message))
                except _BadRowError as error:
                    aside.append((lane, message, str(error)))
                else:
                    located.append((lane, message))
        self._aside = batch, aside
        return located, values

    def _values(self, lane: Lane, message: Message) -> list[Any]:
        try:
            body = message.body
            if self._columns is None:
                return [body, message.tag, " ".join(message.keys)]
            values = self._columns.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RocketAppError) as error:
            if self._sets_aside:
                raise _BadRowError(f"{type(error).__name__}: {error}") from error
            if not self._keeps_bad:
                raise SinkError(f"{lane} #{message.offset} cannot be decoded: {error}") from error
            width = len(self._own) - len(PROBLEM)
            raw = None if isinstance(error, RocketAppError) else body
            return [*[None] * width, f"{type(error).__name__}: {error}", raw]
        return [*values, None, None] if self._keeps_bad else values


BAD = pa.schema([*PROBLEM, *COORDINATES])


class _BadRowError(Exception):
    """A body that is set aside."""


def _raw(message: Message) -> bytes | None:
    try:
        return message.body
    except RocketAppError:
        return None  # compressed, and it cannot be inflated


def _coordinates(located: list[tuple[Lane, Message]]) -> list[pa.Array]:
    stored = pa.array([message.stored_ms * 1000 for _, message in located], pa.int64())
    return [
        pa.array([lane.topic for lane, _ in located], pa.string()),
        pa.array([lane.broker for lane, _ in located], pa.string()),
        pa.array([lane.queue for lane, _ in located], pa.int32()),
        pa.array([message.offset for _, message in located], pa.int64()),
        stored.cast(TIMESTAMP),
    ]


def _checked(answer: object) -> pa.Table | None:
    if answer is None or isinstance(answer, pa.Table):
        return answer
    raise SinkError(f"the function of the sink returned {type(answer).__name__}: return a pyarrow.Table, or None")
