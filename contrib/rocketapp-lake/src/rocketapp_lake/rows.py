"""A batch of messages → an Arrow table with the coordinates of each row, and the rows that are bad."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketapp import Message, MessageQueue, RocketAppError
from rocketapp.plugin import StoredRecords
from rocketapp.wire.properties import KEYS, TAGS, keys_of
from rocketapp_lake.batches import BadRow, Batch, Made
from rocketapp_lake.columns import COORDINATES, PLAIN, PROBLEM, TIMESTAMP, Columns, as_tables_have
from rocketapp_lake.errors import SinkError, TransformError
from rocketapp_lake.options import BadRows, Transform
from rocketapp_lake.raw_records import QUEUE_OFFSET, STORED, Entries, Records, texts

SET_ASIDE = ("table", "topic")
"""The kinds of `BadRows` that keep bad rows out of the table."""
Read = Callable[[Message], Any]
"""A message → its payload. Raises ValueError with the reason for a bad row."""

_PORTION = 1024 * 1024
"""Bytes of records from which columns are made at once."""
_MESSAGES = 512
"""Messages of which rows are made at once: of 100,000, the garbage collector took half of the time."""
_NO_ARRAY = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow raises for a value that its column does not hold."""


class Rows:
    """Makes the rows of one sink."""

    def __init__(
        self,
        columns: Columns | None,
        read: Read | None,
        bad_rows: BadRows,
        transform: Callable[[], Transform | None],
    ) -> None:
        """`columns`: of the declared type, or None for the bodies themselves, which `read` is not needed for.

        `transform` gives the user's function, if any.
        """
        self._columns, self._read, self._bad_rows, self._transform = columns, read, bad_rows, transform
        own = PLAIN if columns is None else columns.schema
        problem = PROBLEM if bad_rows == "column" else ()
        self._own = own
        self.schema = pa.schema([*own, *problem, *COORDINATES])
        """Before the user's function."""

    def made(self, batch: Batch) -> Made:
        """The rows, after the user's function, and the bad ones.

        Raises SinkError for a body that cannot be decoded, if bad rows fail.
        """
        if self._bad_rows == "fail":
            batch = replace(batch, refused={})
        table, bad = None if batch.refused else self._bodies(batch), list[BadRow]()
        if table is None:
            table, bad = self._decoded(batch)
        if bad and self._bad_rows == "fail":
            problem = f"{bad[0].queue} #{bad[0].message.offset} cannot be decoded: {bad[0].problem}"
            raise SinkError(f"{problem}: bad_rows= of the sink says what else may become of it")
        transform = self._transform()
        answer = table if transform is None else transformed(transform, table)
        return Made(None if answer is None else as_tables_have(answer), bad)

    def bad(self, batch: Batch) -> list[BadRow]:
        """Those that cannot be rows, whatever becomes of them."""
        return self._decoded(batch)[1]

    def _decoded(self, batch: Batch) -> tuple[pa.Table, list[BadRow]]:
        parts = [
            self._few(queue, messages, batch.refused)
            for queue, held in batch.pieces.items()
            for messages in _portions_of_messages(held)
        ]
        table = pa.concat_tables([part for part, _ in parts]) if parts else self.schema.empty_table()
        return table, [one for _, bad in parts for one in bad]

    def _few(
        self, queue: MessageQueue, messages: Sequence[Message], refused: Mapping[tuple[MessageQueue, int], str]
    ) -> tuple[pa.Table, Sequence[BadRow]]:
        """The rows of some messages, and the bad ones. `refused`: why some are bad although they can be decoded."""
        problems = dict[int, str]()
        values = self._values(messages, problems)
        for number, message in enumerate(messages if refused else ()):
            if (queue, message.offset) in refused and number not in problems:
                problems[number], values[number] = refused[queue, message.offset], (None,) * len(self._own)
        arrays = self._arrays(values, problems)
        bad = [BadRow(queue, messages[number], problems[number]) for number in sorted(problems)]
        if self._bad_rows == "column":
            said = [problems.get(number) for number in range(len(messages))]
            raw = [body_of(message) if number in problems else None for number, message in enumerate(messages)]
            arrays += [pa.array(said, pa.string()), pa.array(raw, pa.binary())]
        offsets = pa.array([message.offset for message in messages], pa.int64())
        places = coordinates(queue, offsets, pa.array([message.stored_ms for message in messages], pa.int64()))
        table = pa.Table.from_arrays([*arrays, *places], schema=self.schema)
        if self._bad_rows == "column" or not bad:
            return table, bad
        return table.filter(pa.array(number not in problems for number in range(len(messages)))), bad

    def _bodies(self, batch: Batch) -> pa.Table | None:
        """Bodies as they are, column by column; None where they are decoded, or a record is not a usual one."""
        if self._columns is not None or any(piece.are_decoded for held in batch.pieces.values() for piece in held):
            return None
        parts = [
            self._part(queue, _joined(pieces)) for queue, held in batch.pieces.items() for pieces in _portions(held)
        ]
        return pa.Table.from_batches(parts, self.schema)

    def _part(self, queue: MessageQueue, records: Records) -> pa.RecordBatch:
        entries = Entries(records.properties())
        tags, keys = (texts(entries.values(name)) for name in (TAGS, KEYS))
        arrays = [records.bodies(), tags, keys.fill_null("")]
        if self._bad_rows == "column":
            arrays += [pa.nulls(len(records), field.type) for field in PROBLEM]
        offsets, stored = (pa.array(records.field(field)) for field in (QUEUE_OFFSET, STORED))
        places = coordinates(queue, offsets, stored)
        return pa.RecordBatch.from_arrays([*arrays, *places], schema=self.schema)

    def _values(self, messages: Sequence[Message], problems: dict[int, str]) -> list[Any]:
        """The values of each row. Why some cannot be one is noted in `problems`, by number."""
        read, values = self._reading(), list[Any]()
        empty = (None,) * len(self._own)
        for number, message in enumerate(messages):
            try:
                values.append(read(message))
            except (ValueError, RocketAppError) as error:
                values.append(empty)
                problems[number] = without_nul(str(error))
        return values

    def _reading(self) -> Callable[[Message], Any]:
        if self._columns is None:
            return lambda message: (message.body, message.tag, _keys(message))
        assert self._read is not None
        read, values = self._read, self._columns.values
        return lambda message: values(read(message))

    def _arrays(self, values: list[Any], problems: dict[int, str]) -> list[pa.Array]:
        """The columns. A row that has no place in them, such as a number that is too large, is emptied and bad."""
        columns = list(zip(*values, strict=True)) or [() for _ in self._own]
        plain = [self._plain(number, column) for number, column in enumerate(columns)]
        try:
            return [_array(column, field.type) for column, field in zip(plain, self._own, strict=True)]
        except _NO_ARRAY:
            found = [one for column, field in zip(plain, self._own, strict=True) for one in _misfits(column, field)]
            if not found:
                raise
        for number, problem in found:
            problems.setdefault(number, problem)
            values[number] = (None,) * len(self._own)
        return self._arrays(values, problems)

    def _plain(self, number: int, column: Sequence[Any]) -> Sequence[Any]:
        plain = None if self._columns is None else self._columns.plain[number]
        return column if plain is None else [plain(value) for value in column]


def _keys(message: Message) -> str:
    """With blanks between them. The other properties are not decoded."""
    return (keys_of(message.raw_properties) or b"").decode("utf-8", "replace")


def bad_table(bad: Sequence[BadRow]) -> pa.Table:
    """Rows for a table of bad rows, of one or more: the reason, the body, and where it comes from."""
    held = [(one, one.message) for one in bad]
    rows = [(one.problem, body_of(it), *one.queue, it.offset, 1000 * it.stored_ms) for one, it in held]
    columns = zip(zip(*rows, strict=True), BAD, strict=True)
    return pa.Table.from_arrays([pa.array(values, field.type) for values, field in columns], schema=BAD)


BAD = pa.schema([*PROBLEM, *COORDINATES])


def body_of(message: Message) -> bytes | None:
    """The body; None of one that is compressed and cannot be inflated."""
    try:
        return message.body
    except RocketAppError:
        return None


def _portions(pieces: Sequence[StoredRecords]) -> Iterator[Sequence[StoredRecords]]:
    """As many at a time as stay in the processor's cache while their columns are made."""
    first = size = 0
    for number, piece in enumerate(pieces):
        size += len(piece.data)
        if size >= _PORTION:
            yield pieces[first : number + 1]
            first, size = number + 1, 0
    if first < len(pieces):
        yield pieces[first:]


def _portions_of_messages(pieces: Sequence[StoredRecords]) -> Iterator[Sequence[Message]]:
    """Some at a time: what is made of them is gone before the garbage collector looks at it often."""
    some: list[Message] = []
    for piece in pieces:
        some += piece.messages()
        if len(some) >= _MESSAGES:
            yield some
            some = []
    if some:
        yield some


def _joined(pieces: Sequence[StoredRecords]) -> Records:
    """All of their records, one behind the other; of one piece or more."""
    data, own = [piece.data for piece in pieces], [piece.starts for piece in pieces]
    before = np.cumsum([0, *map(len, data[:-1])])
    starts = np.frombuffer(b"".join(own), np.dtype(own[0].typecode))
    return Records(b"".join(data), starts + np.repeat(before, [*map(len, own)]))


def coordinates(queue: MessageQueue, offsets: pa.Array, stored: pa.Array) -> list[pa.Array]:
    """Where each row comes from. `stored`: when brokers stored them, in milliseconds since 1970."""
    own = [pa.repeat(pa.scalar(value, kind), len(offsets)) for value, kind in zip(queue, _OF_QUEUE, strict=True)]
    return [*own, offsets, pc.multiply(stored, 1000).cast(TIMESTAMP)]


_OF_QUEUE = COORDINATES.types[:3]


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Raises one of _NO_ARRAY for a value that the column does not hold, or that readers could not show."""
    found = pa.array(values, kind)
    for years in map(pc.year, _times(found)):
        if pc.any(pc.or_(pc.less(years, 1), pc.greater(years, 9999))).as_py():
            raise OverflowError("in UTC its year is not one of 1 to 9999")
    return found


def _times(column: pa.Array) -> Iterator[pa.Array]:
    """The times in it, at any depth."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        yield column
    elif pa.types.is_map(kind):
        yield from (*_times(column.keys), *_times(column.items))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _times(column.flatten())
    elif pa.types.is_struct(kind):
        for field in column.flatten():  # without those of a null
            yield from _times(field)


def _misfits(column: Sequence[Any], field: pa.Field) -> list[tuple[int, str]]:
    found = []
    for number, value in enumerate(column):
        try:
            _array([value], field.type)
        except _NO_ARRAY as error:
            found.append((number, without_nul(f"field {field.name}: {error}")))
    return found


NUL = "\x00"


def without_nul(text: str) -> str:
    """The same with a sign in its place that every table holds."""
    return text.replace(NUL, "\N{REPLACEMENT CHARACTER}")


def transformed(transform: Transform, table: pa.Table) -> pa.Table | None:
    """What the function makes of the rows. Raises TransformError, with its line, when it fails."""
    try:
        answer: object = transform(table)
    except SinkError:
        raise
    except (Exception, SystemExit) as error:  # the loop would end with what ends a thread, and the batch be lost
        failure = f"{type(error).__name__}: {error}"
        raise TransformError(f"the function of the sink failed{_place(transform, error)}: {failure}") from error
    if answer is None or isinstance(answer, pa.Table):
        return answer
    raise SinkError(f"the function of the sink returned {type(answer).__name__}: return a pyarrow.Table, or None")


def _place(transform: Transform, error: BaseException) -> str:
    """The innermost line of its file that the error came through."""
    code = getattr(inspect.unwrap(transform), "__code__", None)
    lines = [line for line in extract_tb(error.__traceback__) if code and line.filename == code.co_filename]
    return f" at {Path(lines[-1].filename).name}:{lines[-1].lineno}" if lines else ""
