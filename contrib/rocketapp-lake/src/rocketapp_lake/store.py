"""What a table has to be able to do so that rows land in it exactly once.

A store is one object for one sink in one table. Its calls block and come from worker threads, several at a time:
`load` while another thread commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rocketapp_lake.records import Commit, Head

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did."""

    before: int = 0
    """Files that are gone."""
    after: int = 0
    """Files that hold their rows now."""
    bytes: int = 0
    """Of the new files."""


class Store(Protocol):
    """Rows and positions of one sink, committed together."""

    def load(self) -> Head:
        """Where the sink stands, for certain; what an owner that died has left half done is completed first."""
        ...

    def check(self, rows: pa.Table) -> None:
        """Raises SinkError for rows that the table would refuse, as far as that is known before. Nothing is written."""
        ...

    def commit(self, commit: Commit, rows: pa.Table | None) -> None:
        """Make rows and positions visible at once; `rows` is None for a commit without any.

        Afterwards the sink stands at `commit.vector`, all of it: commits of the kinds "rebase" and "epoch", which have
        no spans, may set positions back.

        Only if the sink stands at `commit.sequence - 1`: otherwise FencedError, and nothing is visible. Any other
        exception leaves open whether it is; `who_committed` tells.
        """
        ...

    def who_committed(self, sequence: int) -> str | None:
        """The batch that has this number, or None; True to what `load` would say."""
        ...

    def add_columns(self, columns: pa.Schema) -> None:
        """Give the table these columns, which may be empty; before rows with them are committed.

        Called with what the sink has not written yet: columns that are there already, as another owner has added them,
        stay. A table that does not exist yet needs nothing. Raises SinkError for one that is there with another type.
        Rows may lack columns of the table afterwards: they are empty there.
        """
        ...

    def commits(self) -> Iterator[Commit]:
        """Of all sinks of the table, those of each with the newest first, as far as it keeps them. It reads alone."""
        ...

    def sweep(self, older_than: float) -> int:
        """Remove what was begun more than this many seconds ago and never committed; how many batches that were.

        Nothing where dying owners leave nothing behind that a library would not remove.
        """
        return 0

    def compact(self, target_file_size: int) -> Compacted:
        """Put small files together into larger ones of at most that many bytes; rows and positions stay as they are.

        It may run while others commit, here and in other processes; of two that compact at once one changes nothing.
        Nothing for a format without compaction, which `formats.FORMATS` tells.
        """
        return Compacted()
