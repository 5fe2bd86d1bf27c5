"""What Delta and Iceberg have in common: a library keeps versions of a table, and others make some of them.

A commit of a sink is one version. It holds for the very object of the library that has told where the sink stands: of
two owners the second one is refused. Who is refused because of somebody else looks again, and goes behind it.

A restore or rollback takes back versions and their rows, and not the number of the newest commit. So that number and
the newest commit in the living history have to agree.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from rocketapp_lake.columns import COORDINATES
from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.records import Commit, Head
from rocketapp_lake.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
"""The table as the library has it."""
MOST_CONFLICTS = 100
"""Commits of others, of a kind that the library does not go behind, that one commit gives way to."""
RECORD = "rocketapp"
"""In what a version says of itself: the commit of a sink."""
MEND = "go on with `rocketapp sink rebase`, from where the rows in the table end"
KEPT_FOR = 32
"""Commits that one object of the library makes: with each of them it takes longer, by what it remembers of them."""


class Versions(Store, Generic[T]):
    """One sink in one table with versions."""

    def __init__(self, place: str, sink: str, *, is_set_back: bool) -> None:
        """`is_set_back`: a table that was taken back to an older version stands where its rows end."""
        self.place, self.sink, self._is_set_back = place, sink, is_set_back
        self._last: deque[tuple[T, int]] = deque(maxlen=1)
        """The table as it was seen or left last, and how many commits that object has made. One call takes it out: an
        object that another thread brings up to date meanwhile is a fence no more."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.place} of {self.sink}>"

    def load(self) -> Head:
        if (table := self._open()) is None:
            return Head()
        head = self._head(table)
        self._last.append((table, 0))
        return head

    def commit(self, commit: Commit, rows: pa.Table | None) -> None:
        for _ in range(MOST_CONFLICTS):
            table, made = self._now()
            table = table or self._create(COORDINATES if rows is None else rows.schema)
            head = self._head(table)
            if head.sequence != commit.sequence - 1:
                winner = self._batch_at(table, commit.sequence)
                if winner != commit.batch:
                    if winner:
                        self._lost(table, commit)
                    raise FencedError(f"{self.place}: sink {self.sink} is at commit {head.sequence}")
                # A store or catalog may say that a commit failed which it has made.
            elif not self._write_version(table, commit, rows):
                continue
            self._sync(table)
            self._last.append((table, made + 1))
            return
        raise self._too_many()

    def who_committed(self, sequence: int) -> str | None:
        with suppress(IndexError):
            last = self._last.pop()
            found = self._batch_at(last[0], sequence)
            self._last.append(last)
            if found is not None:
                return found
        table = self._open()
        return None if table is None else self._batch_at(table, sequence)

    def commits(self) -> Iterator[Commit]:
        table = self._open()
        return iter(()) if table is None else self._history(table)

    # What each library does its own way.

    @abstractmethod
    def _open(self) -> T | None:
        """As it is now."""

    @abstractmethod
    def _create(self, schema: pa.Schema) -> T:
        """A new table, unless another owner is faster."""

    @abstractmethod
    def _is_newest(self, table: T) -> bool:
        """Whether nobody has written since this was read, as far as that is known without reading it anew."""

    @abstractmethod
    def _stands(self, table: T) -> tuple[int, Commit]:
        """The number of the sink's newest commit; and the newest one whose rows are there, with number 0 for none."""

    @abstractmethod
    def _history(self, table: T) -> Iterator[Commit]:
        """Commits of all sinks, those of each with the newest first, as far as the table keeps them."""

    @abstractmethod
    def _write_version(self, table: T, commit: Commit, rows: pa.Table | None) -> bool:
        """False if somebody else was faster. Raises SinkError for rows that the table refuses."""

    def _lost(self, table: T, commit: Commit) -> None:
        """Another owner was faster: what was written for it goes."""

    @abstractmethod
    def _sync(self, table: T) -> None:
        """Its version survives the machine, with its files: libraries leave that to the system."""

    # Inside.

    def _now(self) -> tuple[T | None, int]:
        with suppress(IndexError):
            table, made = self._last.pop()
            if made < KEPT_FOR and self._is_newest(table):
                return table, made
        return self._open(), 0

    def _head(self, table: T) -> Head:
        """Raises SinkError when the table was taken back to an older version."""
        sequence, newest = self._stands(table)
        is_whole = newest.sequence == sequence
        if not is_whole and not self._is_set_back:
            back = f"{self.place} was set back to commit {newest.sequence} of sink {self.sink}"
            raise SinkError(f"{back}, which has made {sequence}: bring the newer version back, or {MEND}")
        return replace(Head.of(newest), sequence=sequence, batch=newest.batch if is_whole else "")

    def _batch_at(self, table: T, sequence: int) -> str | None:
        """Raises SinkError when the table was taken back to an older version."""
        head = self._head(table)
        if head.sequence <= sequence:
            return head.batch if head.sequence == sequence else None
        found = (one.batch for one in self._history(table) if (one.sink, one.sequence) == (self.sink, sequence))
        return next(found, None)

    def _too_many(self) -> SinkError:
        return SinkError(f"{self.place}: others have changed it {MOST_CONFLICTS} times in a row just before this sink")
