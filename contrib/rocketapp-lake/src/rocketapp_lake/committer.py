"""One batch into the table, exactly once: stage, publish under a fence, read back.

Any error leaves open whether the batch is in the table, and the next attempt finds out. It blocks, and belongs into a
worker thread.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Generic

from rocketapp_lake.batches import Batch, P
from rocketapp_lake.errors import FencedError, GapError, SinkError
from rocketapp_lake.evolution import Evolution, grown
from rocketapp_lake.lanes import Fit, advanced, fit
from rocketapp_lake.records import Commit, Head
from rocketapp_lake.store import Growing, Staged, Store

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
    trimmed: int = 0
    """Messages that were in the table before."""
    fenced: int = 0
    """Races that were lost on the way."""
    seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """That its rows took to make, its files to write, and the commit to be made and read back."""


class Attempt(Generic[P]):
    """One batch on its way. `run` is called again after a failure."""

    def __init__(
        self,
        store: Store,
        sink: str,
        batch: Batch[P],
        *,
        to_table: Callable[[Batch[P]], pa.Table | None],
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
        self._staged: tuple[str, Staged | None, pa.Schema | None] | None = None
        """Name, rows and schema of what was staged last."""
        self._grown: tuple[str, pa.Schema, str] | None = None
        """The columns of the table and those of the rows, and all of them together, as the table has them now."""
        self._published: tuple[int, str, Staged | None] | None = None
        """Sequence, name and rows of a commit whose outcome is not known."""
        self._size = len(batch)
        self._made = self._wrote = 0.0
        """Seconds for the rows and the files of what was staged last."""

    def run(self, head: Head | None = None) -> Done:
        """Returns when the batch is in the table. `head`: where the sink stood when that was last known.

        What is known may be old, and positions may have been set back since: rows are trimmed by what the table says.

        Raises GapError when the table ends below these rows, SinkError for what waiting does not mend, and whatever
        the store raises.
        """
        is_old = head is not None and self._published is None
        if head is None or not is_old:
            head = self._store.load()
        for lost in range(MOST_FENCES):
            if self._is_published():
                return self._done(self._store.load(), lost)
            if is_old and fit(self.batch.spans, head.vector) != Fit():
                head, is_old = self._store.load(), False
            self._trim(head)
            if not self.batch.spans:
                return Done(head, "", trimmed=self._size, fenced=lost)
            name, staged, schema = self._stage(head)
            columns = head.schema if schema is None else self._grow(head, schema)
            commit = Commit(
                sink=self._sink,
                sequence=head.sequence + 1,
                batch=name,
                spans=self.batch.spans,
                vector=advanced(head.vector, self.batch.spans),
                schema=columns,
                rows=0 if staged is None else staged.rows,
                made_at=self._now(),
            )
            self._published, began = (commit.sequence, name, staged), perf_counter()
            try:
                self._store.publish(commit, staged)
            except FencedError:
                self._published = None
            except SinkError:
                # What was staged is gone or spoilt: the next attempt writes it again.
                self._staged = None
                raise
            if self._is_published():
                head = Head(sequence=commit.sequence, batch=name, vector=commit.vector, schema=commit.schema)
                return self._done(head, lost, perf_counter() - began)
            head, is_old = self._store.load(), False
        raise SinkError(f"sink {self._sink}: {MOST_FENCES} races lost in a row: too many publish to it")

    def prepare(self, head: Head | None = None) -> None:
        """Trim and stage, as `run` would do it: raises what is wrong with the rows before anything is published."""
        if self._published is not None:
            return
        if head is None or fit(self.batch.spans, head.vector) != Fit():
            head = self._store.load()
        self._trim(head)
        if self.batch.spans:
            _, _, schema = self._stage(head)
            if schema is not None:
                grown(self._sink, head.schema, schema, self._evolution)

    def drop(self, batch: Batch[P]) -> None:
        """Go on with this part of it."""
        if batch.spans.keys() != self.batch.spans.keys():
            self.batch, self._staged = batch, None

    def _is_published(self) -> bool:
        """Whether the last publication was ours: a store may pass over a repeated one without a word."""
        if self._published is None:
            return False
        sequence, name, _ = self._published
        if self._store.who_committed(sequence) == name:
            return True
        self._published = None
        return False

    def _trim(self, head: Head) -> None:
        found = fit(self.batch.spans, head.vector)
        for lane, has in found.gaps.items() if not self._is_sparse else ():
            raise GapError(str(lane), has, self.batch.spans[lane].start)
        if found.trims:
            self.batch, self._staged = self.batch.trimmed(head.vector), None

    def _stage(self, head: Head) -> tuple[str, Staged | None, pa.Schema | None]:
        if self._staged is None:
            began = perf_counter()
            name, table = uuid.uuid4().hex, self._to_table(self.batch) if len(self.batch) else None
            made = perf_counter()
            if table is None or not table.num_rows:
                self._staged = name, None, None
            else:
                if self._evolution == "add":
                    self._grown = None
                    self._grow(head, table.schema)  # a store may refuse to stage columns that its table lacks
                self._staged = name, self._store.stage(name, table), table.schema
            self._made, self._wrote = made - began, perf_counter() - made
        return self._staged

    def _grow(self, head: Head, schema: pa.Schema) -> str:
        """Give the table the columns that it lacks, if it may have them; all columns of it."""
        if self._grown is None or self._grown[:2] != (head.schema, schema):
            found = grown(self._sink, head.schema, schema, self._evolution)
            if found.added is not None and self._evolution == "add" and isinstance(self._store, Growing):
                self._store.add_columns(found.added)
            self._grown = head.schema, schema, found.schema
        return self._grown[2]

    def _done(self, head: Head, fenced: int, published: float = 0.0) -> Done:
        assert self._published is not None
        _, name, staged = self._published
        rows, size = (0, 0) if staged is None else (staged.rows, staged.bytes)
        seconds = self._made, self._wrote, published
        return Done(head, name, rows, size, self._size - len(self.batch), fenced, seconds)
