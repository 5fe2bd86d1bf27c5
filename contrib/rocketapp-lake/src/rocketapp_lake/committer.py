"""One batch into the table, exactly once: commit under a fence, and read back. Or positions that are set by hand.

Any error leaves open whether the batch is in the table, and the next attempt finds out. It blocks, and belongs into a
worker thread.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING

from rocketapp import MessageQueue
from rocketapp_lake.batches import Batch
from rocketapp_lake.errors import FencedError, GapError, RefusedRowsError, SinkError
from rocketapp_lake.evolution import grown
from rocketapp_lake.options import Evolution
from rocketapp_lake.positions import advanced, differing
from rocketapp_lake.records import Commit, Head, Kind
from rocketapp_lake.store import Growing, Store

if TYPE_CHECKING:
    import pyarrow as pa

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


class Attempt:
    """One batch on its way. `run` is called again after a failure."""

    def __init__(
        self,
        store: Store,
        sink: str,
        batch: Batch,
        *,
        to_table: Callable[[Batch], pa.Table | None],
        now: Callable[[], float],
        is_sparse: bool = False,
        evolution: Evolution = "fail",
    ) -> None:
        """`to_table`: the rows of a batch as a table; None, or one without rows, when none is to be stored.

        `is_sparse`: the table has only some of the batches, so that what lies below this one need not be there.
        """
        self._is_sparse, self._evolution = is_sparse, evolution
        self._store, self._sink, self.batch = store, sink, batch
        self._to_table, self._now = to_table, now
        self._made: tuple[str, pa.Table | None] | None = None
        """Name and rows of the batch as it is now."""
        self._grown: tuple[str, pa.Schema, str] | None = None
        """The columns of the table and those of the rows, and all of them together, as the table has them now."""
        self._committed: tuple[int, str, pa.Table | None] | None = None
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
            name, rows = self._rows()
            commit = Commit(
                sink=self._sink,
                sequence=head.sequence + 1,
                batch=name,
                spans=self.batch.spans,
                vector=advanced(head.vector, self.batch.spans),
                marks={**head.marks, **self.batch.marks},
                schema=head.schema if rows is None else self._grow(head, rows.schema),
                rows=0 if rows is None else rows.num_rows,
                made_at=self._now(),
            )
            self._committed, began = (commit.sequence, name, rows), perf_counter()
            try:
                self._store.commit(commit, rows)
            except FencedError:
                self._committed = None
            if self._is_ours():
                return self._done(Head.of(commit), lost, perf_counter() - began)
            head, is_old = self._store.load(), False
        raise SinkError(f"sink {self._sink}: {MOST_FENCES} races lost in a row: too many publish to it")

    def prepare(self, head: Head | None = None) -> None:
        """Trim, and look at the rows as `run` would: raises what is wrong with them before anything is committed.

        Without `head` the table is asked where the sink stands now.
        """
        if self._is_ours():
            return
        if head is None or differing(self.batch.spans, head.vector):
            head = self._store.load()
        self._trim(head)
        rows = self._rows()[1] if self.batch.spans else None
        if rows is not None:
            self._grow(head, rows.schema)
            self._store.check(rows)

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
            if has < self.batch.spans[queue].start and not self._is_sparse:
                raise GapError(queue, has, self.batch.spans[queue].start)
        if found:
            self.batch, self._made = self.batch.trimmed(head.vector), None

    def _rows(self) -> tuple[str, pa.Table | None]:
        if self._made is None:
            began = perf_counter()
            table = self._to_table(self.batch) if len(self.batch) else None
            self._made = uuid.uuid4().hex, table if table is not None and table.num_rows else None
            self._seconds = perf_counter() - began
        return self._made

    def _grow(self, head: Head, schema: pa.Schema) -> str:
        """Give the table the columns that it lacks, if it may have them; all columns of it."""
        if self._grown is None or self._grown[:2] != (head.schema, schema):
            now, added = grown(self._sink, head.schema, schema, self._evolution)
            if added is not None and self._evolution == "add" and isinstance(self._store, Growing):
                self._store.add_columns(added)
            self._grown = head.schema, schema, now
        return self._grown[2]

    def _done(self, head: Head, fenced: int, seconds: float = 0.0) -> Done:
        assert self._committed is not None
        _, name, rows = self._committed
        count, size = (0, 0) if rows is None else (rows.num_rows, rows.nbytes)
        return Done(head, name, count, size, self._size - len(self.batch), fenced, (self._seconds, seconds))


def rebase(store: Store, sink: str, to: Mapping[MessageQueue, int], *, made_at: float, kind: Kind = "rebase") -> Head:
    """Set where these queues stand, by a commit without rows; the others stay. It blocks. Where the sink stands then.

    What was last read of them is forgotten: the queue that they have now is the right one, whatever its records are.
    Owners that publish meanwhile lose the race, and read where the table stands. Positions that are there already need
    no commit, unless the newest commit is not in the table any more. Raises what the store raises.
    """
    head = store.load()
    for _ in range(MOST_FENCES):
        vector = {**head.vector, **to}
        marks = {queue: mark for queue, mark in head.marks.items() if queue not in to}
        if head.batch and vector == dict(head.vector) and marks == dict(head.marks):
            return head
        commit = Commit(
            sink=sink,
            sequence=head.sequence + 1,
            batch=uuid.uuid4().hex,
            spans={},
            vector=vector,
            marks=marks,
            schema=head.schema,
            made_at=made_at,
            kind=kind,
        )
        try:
            store.commit(commit, None)
        except FencedError:
            head = store.load()
            continue
        head = store.load()
    raise SinkError(f"sink {sink}: {MOST_FENCES} races lost in a row: too many publish to it")
