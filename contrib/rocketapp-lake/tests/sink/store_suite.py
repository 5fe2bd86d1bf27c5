"""What every store has to show: the tests of a format inherit from the suite, and have a fixture `table`.

`table.store(sink)` opens a store on the same table, as another process would; `table.rows()` reads, without it, what a
reader of the table sees, as dictionaries: None for a column that a row does not have. Rows have the columns `id`
(int64) and `text` (string).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
import pytest

from rocketapp import MessageQueue
from rocketapp.state.queue_identity import Landmark
from rocketapp_lake.committer import fingerprint
from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.positions import Span, advanced
from rocketapp_lake.records import Commit, Head, Kind
from rocketapp_lake.store import Store

QUEUE, OTHER = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


class Table(Protocol):
    """One table under test."""

    def store(self, sink: str) -> Store: ...

    def rows(self) -> Sequence[Mapping[str, Any]]: ...


def rows_of(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "text": pa.array([f"row {number}" for number in numbers])})


def commit_of(
    head: Head, batch: str, spans: Mapping[MessageQueue, Span], *, sink: str = "one", rows: int = 0
) -> Commit:
    return Commit(
        sink=sink,
        sequence=head.sequence + 1,
        batch=batch,
        spans=spans,
        vector=advanced(head.vector, spans),
        schema='{"id": "int64", "text": "string"}',
        rows=rows,
        made_at=1.0,
    )


def put(store: Store, batch: str, *numbers: int, queue: MessageQueue = QUEUE, sink: str = "one") -> Commit:
    """Rows whose offsets are their numbers, in one commit on top of what is there."""
    span = Span(min(numbers), max(numbers) + 1) if numbers else Span(0, 1)
    commit = commit_of(store.load(), batch, {queue: span}, sink=sink, rows=len(numbers))
    store.commit(commit, rows_of(*numbers) if numbers else None)
    return commit


class StoreSuite:
    """A table that several owners write, one call after the other or at once."""

    def seen(self, table: Table) -> list[int]:
        """The ids that a reader sees, in order, each as often as it is there."""
        return sorted(row["id"] for row in table.rows())

    def test_a_new_table_stands_at_nothing(self, table: Table) -> None:
        assert table.store("one").load() == Head()
        assert table.store("one").who_committed(1) is None

    def test_rows_and_positions_are_there_together(self, table: Table) -> None:
        store, marks = table.store("one"), {QUEUE: Landmark(1, 1_700_000_000_000, "0A")}
        commit = replace(commit_of(store.load(), "a", {QUEUE: Span(0, 3)}, rows=2), marks=marks, aside={QUEUE: (2,)})
        store.commit(commit, rows_of(0, 1))
        assert self.seen(table) == [0, 1]
        assert table.store("one").load() == Head.of(commit)
        assert table.store("one").who_committed(1) == "a"

    def test_looking_at_rows_writes_nothing(self, table: Table) -> None:
        table.store("one").check(rows_of(0))
        assert self.seen(table) == []
        assert table.store("one").load() == Head()

    def test_commits_add_up(self, table: Table) -> None:
        store = table.store("one")
        put(store, "a", 0, 1)
        put(store, "b", 5, queue=OTHER)
        put(table.store("one"), "c", 2)
        assert self.seen(table) == [0, 1, 2, 5]
        assert dict(table.store("one").load().vector) == {QUEUE: 3, OTHER: 6}

    @pytest.mark.parametrize("has_rows", [True, False])
    @pytest.mark.parametrize("first_has_rows", [True, False])
    def test_the_second_of_two_owners_is_fenced_and_leaves_nothing(
        self, table: Table, has_rows: bool, first_has_rows: bool
    ) -> None:
        put(table.store("one"), "z", 0)
        first, second = table.store("one"), table.store("one")
        head = second.load()
        spans = {QUEUE: Span(1, 2)}
        first.commit(commit_of(head, "a", spans), rows_of(1) if first_has_rows else None)
        with pytest.raises(FencedError):
            second.commit(commit_of(head, "b", spans), rows_of(2) if has_rows else None)
        assert self.seen(table) == ([0, 1] if first_has_rows else [0])
        assert table.store("one").who_committed(2) == "a"

    def test_a_fenced_owner_commits_behind_the_other(self, table: Table) -> None:
        first, second = table.store("one"), table.store("one")
        head = second.load()
        put(first, "a", 0)
        with pytest.raises(FencedError):
            second.commit(commit_of(head, "b", {OTHER: Span(7, 8)}, rows=1), rows_of(7))
        second.commit(commit_of(second.load(), "b", {OTHER: Span(7, 8)}, rows=1), rows_of(7))
        assert self.seen(table) == [0, 7]

    def test_a_number_above_the_next_one_is_refused(self, table: Table) -> None:
        store = table.store("one")
        put(store, "a", 0)
        with pytest.raises(FencedError):
            store.commit(commit_of(Head(sequence=5), "b", {QUEUE: Span(1, 2)}, rows=1), rows_of(1))
        assert self.seen(table) == [0]

    def test_of_many_owners_at_once_one_wins_each_number(self, table: Table) -> None:
        stores = [table.store("one") for _ in range(4)]
        with ThreadPoolExecutor(len(stores)) as pool:
            wins = list(pool.map(self._commit_first, stores, range(len(stores))))
        (winner,) = [number for number, won in enumerate(wins) if won]
        assert self.seen(table) == [winner]
        assert table.store("one").who_committed(1) == f"batch{winner}"

    def _commit_first(self, store: Store, number: int) -> bool:
        try:
            store.commit(commit_of(Head(), f"batch{number}", {QUEUE: Span(0, 9)}, rows=1), rows_of(number))
        except FencedError:
            return False
        return True

    def test_sinks_of_one_table_do_not_know_each_other(self, table: Table) -> None:
        put(table.store("one"), "a", 0)
        put(table.store("two/with: odd name"), "b", 1, sink="two/with: odd name")
        assert self.seen(table) == [0, 1]
        assert table.store("two/with: odd name").load().sequence == table.store("one").load().sequence == 1

    @pytest.mark.parametrize("kind", ["rebase", "epoch"])
    def test_positions_can_be_set_back_by_a_commit_without_rows(self, table: Table, kind: Kind) -> None:
        put(table.store("one"), "a", 0, 1)
        put(table.store("one"), "b", 5, queue=OTHER)
        head = table.store("one").load()
        commit = replace(commit_of(head, "c", {}), vector={QUEUE: 0, OTHER: 9}, kind=kind)
        table.store("one").commit(commit, None)
        assert dict(table.store("one").load().vector) == {QUEUE: 0, OTHER: 9}
        assert table.store("one").who_committed(3) == "c"
        put(table.store("one"), "d", 0, 1)
        assert self.seen(table) == [0, 0, 1, 1, 5]
        assert dict(table.store("one").load().vector) == {QUEUE: 2, OTHER: 9}

    def test_rows_behind_a_commit_without_any_that_was_the_first(self, table: Table) -> None:
        put(table.store("one"), "a")
        assert self.seen(table) == []
        assert dict(table.store("one").load().vector) == {QUEUE: 1}
        put(table.store("one"), "b", 1)
        assert self.seen(table) == [1]

    def test_a_column_is_added_once_by_any_process_and_moves_no_position(self, table: Table) -> None:
        store = table.store("one")
        put(store, "a", 0)
        head = store.load()
        for adding in (store, table.store("one")):
            self.add(adding)
            assert table.store("one").load() == head
        self.put_more(store, "b", 1)
        put(table.store("one"), "c", 2)
        assert {row["id"]: row.get("note") for row in table.rows()} == {0: None, 1: "note 1", 2: None}

    def test_columns_for_a_table_that_does_not_exist_yet_do_no_harm(self, table: Table) -> None:
        self.add(table.store("one"))
        self.put_more(table.store("one"), "a", 1)
        assert [row["note"] for row in table.rows()] == ["note 1"]

    def test_a_column_that_is_there_with_another_type_is_refused(self, table: Table) -> None:
        store = table.store("two")
        rows = rows_of(0).append_column("note", pa.array([5], pa.int64()))
        commit = commit_of(store.load(), "a", {QUEUE: Span(0, 1)}, sink="two", rows=1)
        store.commit(replace(commit, schema=fingerprint(rows.schema)), rows)
        with pytest.raises(SinkError):
            self.add(table.store("one"))
        assert table.store("two").load().sequence == 1

    def add(self, store: Store) -> None:
        store.add_columns(pa.schema([pa.field("note", pa.string())]))

    def put_more(self, store: Store, batch: str, number: int) -> None:
        rows = rows_of(number).append_column("note", pa.array([f"note {number}"]))
        commit = commit_of(store.load(), batch, {QUEUE: Span(number, number + 1)}, rows=1)
        store.commit(commit, rows)
