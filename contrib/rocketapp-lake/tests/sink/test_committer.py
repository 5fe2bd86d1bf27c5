"""Whatever fails, and whatever other writer publishes: each row is in the table once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pieces import Item, halves, items

from rocketapp import MessageQueue
from rocketapp_lake.batches import Batch, Made
from rocketapp_lake.committer import Attempt, Done
from rocketapp_lake.errors import FencedError, GapError, SinkError
from rocketapp_lake.options import Evolution
from rocketapp_lake.positions import Span
from rocketapp_lake.records import Commit, Head
from rocketapp_lake.store import Store

A, B = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


@dataclass
class MemoryTable(Store):
    """A table that fails as it is told, before it publishes or after."""

    made: list[tuple[Commit, pa.Table | None]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Taken by each call: "" none, "before", "after", "silent" (says yes and does nothing)."""
    added: list[list[str]] = field(default_factory=list)

    def load(self) -> Head:
        if not self.made:
            return Head()
        commit, _ = self.made[-1]
        return Head(sequence=commit.sequence, batch=commit.batch, vector=commit.vector, schema=commit.schema)

    def check(self, rows: pa.Table) -> None:
        """It takes all rows."""

    def commit(self, commit: Commit, rows: pa.Table | None) -> None:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "before":
            raise ConnectionError("away")
        if commit.sequence != len(self.made) + 1:
            raise FencedError("another owner")
        if fault != "silent":
            self.made.append((commit, rows))
        if fault == "after":
            raise ConnectionError("no answer")

    def who_committed(self, sequence: int) -> str | None:
        return self.made[sequence - 1][0].batch if sequence <= len(self.made) else None

    def add_columns(self, columns: pa.Schema) -> None:
        self.added.append(columns.names)

    def commits(self) -> Iterator[Commit]:
        return (commit for commit, _ in reversed(self.made))

    def rows(self) -> list[tuple[int, int]]:
        return [(row["queue"], row["at"]) for _, rows in self.made if rows is not None for row in rows.to_pylist()]


def to_table(batch: Batch) -> pa.Table:
    rows = [
        (queue.queue_id, at)
        for queue, held in batch.pieces.items()
        for item in held
        if isinstance(item, Item)
        for at in item.offsets
    ]
    return pa.table({"queue": [queue for queue, _ in rows], "at": [at for _, at in rows]})


def batch_of(queue: MessageQueue, start: int, end: int) -> Batch:
    return Batch({queue: halves(*range(start, end))}, {queue: Span(start, end)})


@dataclass
class PickyTable(MemoryTable):
    """Takes no column that it lacks, as a database does."""

    def check(self, rows: pa.Table) -> None:
        if not {*rows.column_names} <= {name for names in self.added for name in names}:
            raise SinkError("the table lacks a column")


def attempt(
    table: MemoryTable,
    batch: Batch,
    as_table: Callable[[Batch], pa.Table | None] = to_table,
    evolution: Evolution = "fail",
) -> Attempt:
    return Attempt(table, "one", batch, make=lambda one: Made(as_table(one)), now=lambda: 1.0, evolution=evolution)


def through(table: MemoryTable, batch: Batch, tries: int = 5) -> Done:
    one = attempt(table, batch)
    for _ in range(tries):
        try:
            return one.run()
        except ConnectionError:
            continue
    raise AssertionError("it did not get through")


@pytest.mark.parametrize("fault", ["", "before", "after", "silent"])
def test_a_batch_is_in_the_table_once_whatever_its_publication_did(fault: str) -> None:
    table = MemoryTable(faults=[fault])
    done = through(table, batch_of(A, 0, 3))
    assert table.rows() == [(0, 0), (0, 1), (0, 2)]
    assert (done.head.sequence, done.rows) == (1, 3)


def test_rows_that_another_owner_has_published_are_trimmed() -> None:
    table = MemoryTable()
    through(table, batch_of(A, 0, 2))
    done = attempt(table, batch_of(A, 0, 4)).run(Head())
    assert sorted(table.rows()) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert (done.trimmed, done.fenced) == (2, 1)


def test_a_batch_that_is_there_already_adds_no_commit() -> None:
    table = MemoryTable()
    through(table, batch_of(A, 0, 2))
    done = through(table, batch_of(A, 0, 2))
    assert (done.batch, done.trimmed, len(table.made)) == ("", 2, 1)


def test_a_lost_race_about_other_queues_commits_the_same_rows() -> None:
    table = MemoryTable()
    late = attempt(table, batch_of(B, 0, 2))
    through(table, batch_of(A, 0, 1))
    assert late.run(Head()).fenced == 1
    assert len(table.rows()) == 3


@pytest.mark.parametrize("known", [Head(sequence=9, vector={A: 30}), Head(sequence=9, vector={A: 1})])
def test_rows_are_not_passed_over_by_what_was_known_before_positions_were_set(known: Head) -> None:
    table = MemoryTable()
    done = attempt(table, batch_of(A, 0, 3)).run(known)
    assert (done.trimmed, table.rows()) == (0, [(0, 0), (0, 1), (0, 2)])


def test_rows_above_the_end_of_the_table_are_refused() -> None:
    table = MemoryTable()
    through(table, batch_of(A, 0, 2))
    with pytest.raises(GapError, match="the table ends before #2, and these rows begin at #5"):
        attempt(table, batch_of(A, 5, 6)).run()
    assert len(table.made) == 1


def test_a_batch_of_which_nothing_is_to_be_stored_moves_the_positions() -> None:
    table = MemoryTable()
    done = attempt(table, batch_of(A, 0, 2), lambda batch: None).run()
    assert (done.rows, dict(table.load().vector)) == (0, {A: 2})
    assert [rows for _, rows in table.made] == [None]


def test_other_columns_than_those_of_the_table_are_refused_before_anything_is_published() -> None:
    table = MemoryTable()
    through(table, batch_of(A, 0, 1))
    with pytest.raises(SinkError, match=r"are \(text string\), and the table has \(queue int64, at int64\)"):
        attempt(table, batch_of(A, 1, 2), lambda batch: pa.table({"text": ["x"]})).run()
    assert len(table.made) == 1


def with_note(batch: Batch) -> pa.Table:
    """As a newer version of the app writes them."""
    rows = to_table(batch)
    return rows.append_column("note", pa.array([f"note {at}" for at in rows["at"].to_pylist()]))


def test_new_columns_are_added_before_their_rows_and_once() -> None:
    table = PickyTable()
    for number, rows in enumerate([to_table, with_note, with_note]):
        attempt(table, batch_of(A, number, number + 1), rows, evolution="add").run()
    assert table.added == [["queue", "at"], ["note"]]
    assert json.loads(table.load().schema) == {"queue": "int64", "at": "int64", "note": "string"}


def test_an_older_version_of_the_app_goes_on_beside_a_newer_one() -> None:
    table = MemoryTable()
    for number, rows in enumerate([to_table, with_note, to_table, with_note, to_table]):
        attempt(table, batch_of(A, number, number + 1), rows, evolution="add").run()
    assert table.rows() == [(0, at) for at in range(5)]
    assert list(json.loads(table.load().schema)) == ["queue", "at", "note"]


def test_a_race_with_a_newer_version_ends_with_the_columns_of_both() -> None:
    table = MemoryTable()
    late = attempt(table, batch_of(B, 0, 1), to_table, evolution="add")
    attempt(table, batch_of(A, 0, 1), with_note, evolution="add").run()
    assert late.run(Head()).fenced == 1
    assert list(json.loads(table.load().schema)) == ["queue", "at", "note"]


def as_text(batch: Batch) -> pa.Table:
    rows = to_table(batch)
    return rows.set_column(1, "at", rows["at"].cast(pa.string()))


def required(batch: Batch) -> pa.Table:
    rows = to_table(batch)
    return rows.append_column(pa.field("note", pa.string(), nullable=False), pa.array(["x"] * len(rows)))


@pytest.mark.parametrize(
    ("rows", "evolution", "problem"),
    [
        (as_text, "add", "column at is int64 in the table, and string in these rows"),
        (as_text, "fail", "column at is int64 in the table, and string in these rows"),
        (required, "add", "column note is new, and may not be empty"),
        (with_note, "fail", r"are \(queue int64, at int64, note string\), and the table has \(queue int64, at int64\)"),
        (lambda batch: to_table(batch).select(["at"]), "fail", r"its rows are \(at int64\)"),
    ],
)
def test_rows_that_the_table_cannot_take_stop_the_sink_before_anything_is_published(
    rows: Callable[[Batch], pa.Table], evolution: Evolution, problem: str
) -> None:
    table = MemoryTable()
    through(table, batch_of(A, 0, 1))
    one = attempt(table, batch_of(A, 1, 2), rows, evolution=evolution)
    with pytest.raises(SinkError, match=problem):
        one.run()
    assert (len(table.made), table.added) == (1, [])


def test_what_remains_after_a_queue_was_given_up_is_committed() -> None:
    table = MemoryTable(faults=["before"])
    both = Batch({A: items(0), B: items(0)}, {A: Span(0, 1), B: Span(0, 1)})
    one = attempt(table, both)
    with pytest.raises(ConnectionError):
        one.run()
    one.drop(both.without([A]))
    one.run()
    assert table.rows() == [(1, 0)]


class Owner:
    """Reads two queues from where the table stands, as a process does between two deaths."""

    def __init__(self, table: MemoryTable, ends: Sequence[int]) -> None:
        self.table, self.ends = table, ends
        self.begin()

    def begin(self) -> None:
        """Death, or a queue that comes back: everything but the table is forgotten."""
        self.head = self.table.load()
        self.next = {queue: self.head.vector.get(queue, 0) for queue in (A, B)}
        self.attempt: Attempt | None = None

    def step(self, random: Random) -> None:
        if random.random() < 0.2:
            self.begin()
        if self.attempt is None:
            spans = {}
            for queue in (A, B):
                end = min(self.ends[queue.queue_id], self.next[queue] + random.randint(0, 3))
                if end > self.next[queue]:
                    spans[queue] = Span(self.next[queue], end)
            if not spans:
                return
            pieces = {queue: halves(*range(*span)) for queue, span in spans.items()}
            self.attempt = attempt(self.table, Batch(pieces, spans))
            self.next |= {queue: span.end for queue, span in spans.items()}
        try:
            self.head = self.attempt.run(random.choice([self.head, None])).head
        except ConnectionError:
            return
        except GapError:
            self.begin()
            return
        self.attempt = None


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_many_owners_of_the_same_queues_that_fail_and_die_lose_and_double_nothing(seed: int, owners: int) -> None:
    random, table = Random(seed), MemoryTable()
    ends = [random.randint(1, 12), random.randint(0, 12)]
    alive = [Owner(table, ends) for _ in range(owners)]
    for _ in range(60):
        table.faults = [random.choice(["", "", "", "before", "after", "silent"])]
        random.choice(alive).step(random)
    table.faults = []
    last = Owner(table, ends)
    for _ in range(60):
        last.step(random)
    assert sorted(table.rows()) == [(queue, at) for queue, end in enumerate(ends) for at in range(end)]
