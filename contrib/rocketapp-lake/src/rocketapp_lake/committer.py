"""One batch into the table, exactly once: commit under a fence, and read back. Or positions that are set by hand.

Any error leaves open whether the batch is in the table, and the next attempt finds out. It blocks, and belongs into a
worker thread.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter

import pyarrow as pa

from rocketapp_lake.batches import BadRow, Batch, Made
from rocketapp_lake.errors import FencedError, GapError, RefusedRowsError, SinkError
from rocketapp_lake.options import Evolution
from rocketapp_lake.positions import Offsets, Vector, advanced, differing
from rocketapp_lake.records import Commit, Head, Kind
from rocketapp_lake.store import Store

MOST_FENCES = 100
"""Lost races in one attempt. Each means that another owner has published; more than a few are a fault."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a batch that is in the table now."""

    head: Head
    batch: str
    """Its name; empty when everything was in the table before."""
    rows: int = 0
    """Rows that it added."""
    bytes: int = 0
    """Of these rows, in memory."""
    trimmed: int = 0
    """Messages that were in the table before."""
    fenced: int = 0
    """Races that were lost on the way."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """That its rows took to make, and the commit to be written and read back."""
    bad: Sequence[BadRow] = ()
    """Its messages that are no rows."""


class Attempt:
    """One batch on its way. `run` is called again after a failure."""

    def __init__(
        self,
        store: Store,
        sink: str,
        batch: Batch,
        *,
        make: Callable[[Batch], Made],
        now: Callable[[], float],
        evolution: Evolution = "fail",
        put_aside: Callable[[Batch, Sequence[BadRow]], None] | None = None,
        names_bad: bool = False,
    ) -> None:
        """`make`: what makes rows of a batch.

        `put_aside`: is given the bad rows before the batch is committed, again in each attempt; what it raises ends it.
        `names_bad`: the commit says which they are, for what puts them aside behind it.
        """
        self._evolution, self._put_aside, self._names_bad = evolution, put_aside, names_bad
        self._store, self._sink, self.batch = store, sink, batch
        self._make, self._now = make, now
        self._first = {queue: span.start for queue, span in batch.spans.items()}
        """What lies below was put aside before, as far as it is bad."""
        self._made: tuple[str, Made] | None = None
        """Name of the batch as it is now, and what was made of it."""
        self._grown: tuple[str, pa.Schema, str] | None = None
        """The columns of the table and those of the rows, and all of them together, as the table has them now."""
        self._committed: tuple[int, str, Made] | None = None
        """Sequence, name and rows of a commit whose outcome is not known."""
        self._size = len(batch)
        self._seconds = 0.0
        """That the rows took to make."""

    def run(self, head: Head | None = None) -> Done:
        """Returns when the batch is in the table. `head`: where the sink stood when that was last known.

        What is known may be old, and positions may have been set back since: rows are trimmed by what the table says.

        Raises GapError when the table ends below these rows, SinkError for what waiting does not mend, and whatever
        the store raises.
        """
        is_old = head is not None and self._committed is None
        if head is None or not is_old:
            head = self._store.load()
        for lost in range(MOST_FENCES):
            if self._is_ours():
                return self._done(self._store.load(), lost)
            if is_old and differing(self.batch.spans, head.vector):
                head, is_old = self._store.load(), False
            self._trim(head)
            if not self.batch.spans:
                return Done(head, "", trimmed=self._size, fenced=lost)
            name, made = self._named()
            rows = made.table
            schema = head.schema if rows is None else self._grow(head, rows.schema)
            if self._put_aside is not None:
                if rows is not None and made.bad:
                    self._store.check(rows)  # a type that the table does not take puts nothing aside
                self._put_aside(self.batch, made.bad)
            commit = replace(
                behind(head, self._sink, advanced(head.vector, self.batch.spans), self._now()),
                batch=name,
                spans=self.batch.spans,
                marks={**head.marks, **self.batch.marks},
                aside=self._owed(head, made.bad),
                schema=schema,
                rows=0 if rows is None else rows.num_rows,
            )
            self._committed, began = (commit.sequence, name, made), perf_counter()
            try:
                self._store.commit(commit, rows)
            except FencedError:
                self._committed = None
            if self._is_ours():
                return self._done(Head.of(commit), lost, perf_counter() - began)
            head, is_old = self._store.load(), False
        raise SinkError(f"sink {self._sink}: {MOST_FENCES} races lost in a row: too many publish to it")

    def drop(self, batch: Batch) -> None:
        """Go on with this part of it."""
        if batch.spans.keys() != self.batch.spans.keys():
            self.batch, self._made = batch, None

    def refuses(self, error: RefusedRowsError) -> bool:
        """Note which rows the table refuses: the next attempt takes them for bad ones.

        False when all of them were noted before: then the table does not take what bad rows become either.
        """
        if error.places.keys() <= self.batch.refused.keys():
            return False
        self.batch, self._made = replace(self.batch, refused={**self.batch.refused, **error.places}), None
        self._committed = None  # nothing of it is in the table
        return True

    def _is_ours(self) -> bool:
        """Whether the last commit was ours: a store may pass over a repeated one without a word."""
        if self._committed is None:
            return False
        sequence, name, _ = self._committed
        if self._store.who_committed(sequence) == name:
            return True
        self._committed = None
        return False

    def _trim(self, head: Head) -> None:
        found = differing(self.batch.spans, head.vector)
        for queue, has in found.items():
            if has < self.batch.spans[queue].start:
                raise GapError(queue, has, self.batch.spans[queue].start)
        if found:
            self.batch, self._made = self.batch.trimmed(head.vector), None

    def _named(self) -> tuple[str, Made]:
        if self._made is None:
            began = perf_counter()
            made = self._make(self.batch) if len(self.batch) else Made(None)
            if made.table is not None and not made.table.num_rows:
                made = made._replace(table=None)
            self._made = uuid.uuid4().hex, made
            self._seconds = perf_counter() - began
        return self._made

    def _owed(self, head: Head, bad: Sequence[BadRow]) -> Offsets:
        """What is still to be put aside when this batch is in the table: by those before, as far as is known, too."""
        found = {queue: list(offsets) for queue, offsets in head.aside.items()}
        for queue in self.batch.spans:
            found[queue] = [offset for offset in found.get(queue, ()) if offset >= self._first[queue]]
        for one in bad if self._names_bad else ():
            found[one.queue].append(one.message.offset)
        return {queue: tuple(offsets) for queue, offsets in found.items() if offsets}

    def _grow(self, head: Head, schema: pa.Schema) -> str:
        """Give the table the columns that it lacks, if it may have them; all columns of it."""
        if self._grown is None or self._grown[:2] != (head.schema, schema):
            now, added = grown(self._sink, head.schema, schema, self._evolution)
            if added is not None and self._evolution == "add":
                self._store.add_columns(added)
            self._grown = head.schema, schema, now
        return self._grown[2]

    def _done(self, head: Head, fenced: int, seconds: float = 0.0) -> Done:
        assert self._committed is not None
        _, name, (rows, bad) = self._committed
        count, size = (0, 0) if rows is None else (rows.num_rows, rows.nbytes)
        return Done(head, name, count, size, self._size - len(self.batch), fenced, (self._seconds, seconds), bad)


def until_there(store: Store, sink: str, next_commit: Callable[[Head], tuple[Commit, pa.Table | None] | None]) -> Head:
    """Commit what `next_commit` makes of where the sink stands, until that is None: then it is there. It blocks.

    Owners that commit meanwhile are no harm: of two the second one looks again. Raises what the store raises.
    """
    for _ in range(MOST_FENCES):
        head = store.load()
        if (found := next_commit(head)) is None:
            return head
        with suppress(FencedError):
            store.commit(*found)
    raise SinkError(f"sink {sink}: {MOST_FENCES} races lost in a row: too many publish to it")


def behind(head: Head, sink: str, vector: Vector, made_at: float) -> Commit:
    """A commit without rows that follows this one, with these positions. What it does not say stays as it is."""
    return Commit(
        sink=sink,
        sequence=head.sequence + 1,
        batch=uuid.uuid4().hex,
        vector=vector,
        marks=head.marks,
        aside=head.aside,
        schema=head.schema,
        made_at=made_at,
    )


def rebase(store: Store, sink: str, to: Vector, *, made_at: float, kind: Kind = "rebase") -> Head:
    """Set where these queues stand, by a commit without rows; the others stay. It blocks. Where the sink stands then.

    What was last read of them is forgotten: the queue that they have now is the right one, whatever its records are.
    Positions that are there already need no commit, unless the newest commit is not in the table any more. What was to
    be put aside still is, unless it is read again, or a queue began anew.
    """
    below = to if kind == "rebase" else dict.fromkeys(to, 0)

    def moved(head: Head) -> tuple[Commit, None] | None:
        marks = {queue: mark for queue, mark in head.marks.items() if queue not in to}
        left = {
            queue: tuple(at for at in offsets if at < below.get(queue, at + 1)) for queue, offsets in head.aside.items()
        }
        aside = {queue: offsets for queue, offsets in left.items() if offsets}
        commit = replace(behind(head, sink, {**head.vector, **to}, made_at), marks=marks, aside=aside, kind=kind)
        is_there = head.batch and (commit.vector, marks, aside) == (head.vector, head.marks, head.aside)
        return None if is_there else (commit, None)

    return until_there(store, sink, moved)


# The columns of a table, as its commits keep them, and how they grow.


def fingerprint(schema: pa.Schema) -> str:
    """Names and types of the columns, as JSON."""
    return json.dumps({column.name: str(column.type) for column in schema})


def grown(sink: str, has: str, rows: pa.Schema, evolution: Evolution) -> tuple[str, pa.Schema | None]:
    """The fingerprint of the table with these rows, and the columns that it lacks so far; None without any.

    `has`: the fingerprint of its columns; empty before the first rows.

    Rows may lack columns of the table with "add": they are empty there. That is how an app that does not know a new
    column yet goes on beside one that does. Raises SinkError for rows that the table cannot take.
    """
    if not has:
        return fingerprint(rows), rows
    known: dict[str, str] = json.loads(has)
    own = {column.name: str(column.type) for column in rows}
    for name, kind in own.items():
        if known.get(name, kind) != kind:
            raise SinkError(
                f"sink {sink}: column {name} is {known[name]} in the table, and {kind} in these rows: "
                f"give the changed column another name, or the sink another table"
            )
    new = [column for column in rows if column.name not in known]
    if evolution == "fail":
        if new or len(own) < len(known):
            mend = 'evolution="add" lets a table grow by columns'
            raise SinkError(f"sink {sink}: its rows are ({_shown(own)}), and the table has ({_shown(known)}): {mend}")
        return has, None
    for column in new:
        if not column.nullable:
            raise SinkError(
                f"sink {sink}: column {column.name} is new, and may not be empty: the rows of the table do not have it"
            )
    if not new:
        return has, None
    return json.dumps({**known, **own}), pa.schema(new)


def _shown(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
