"""Where a queue begins: at the table, and not at all when the broker has lost what the table has not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sink_shop import by_arrow
from store_suite import commit_of, put, rows_of

from rocketapp import MessageQueue
from rocketapp.plugin import QueueStart, Tasks
from rocketapp.state.queue_identity import Landmark
from rocketapp_lake.bad_rows import BadTable, Guard
from rocketapp_lake.batches import Buffer, Limits, Made
from rocketapp_lake.committer import Attempt
from rocketapp_lake.counts import Counts
from rocketapp_lake.errors import SinkError
from rocketapp_lake.options import OnOffsetReset
from rocketapp_lake.parquet import ParquetStore
from rocketapp_lake.positions import Span
from rocketapp_lake.rows import Rows
from rocketapp_lake.worker import Worker
from rocketapp_lake.writer import Writer

QUEUE = MessageQueue("orders", "broker-a", 0)
ROWS = Rows(None, None, "table", lambda: None)


async def nothing_at(offset: int) -> None:
    """No record is there."""


def stores(directory: Path) -> tuple[ParquetStore, ParquetStore]:
    return (
        ParquetStore(directory / "one", "one", write=by_arrow),
        ParquetStore(directory / "one_bad", "one/bad", write=by_arrow),
    )


@pytest.fixture
def on_offset_reset() -> OnOffsetReset:
    return "fail"


@pytest.fixture
async def writer(tmp_path: Path, on_offset_reset: OnOffsetReset) -> AsyncIterator[Writer]:
    """Its table has the first ten messages of the queue, and that of bad rows the first five."""
    store, bad = stores(tmp_path)
    put(store, "a", *range(10))
    put(bad, "a", *range(5), sink="one/bad")
    guard, no_rows = Guard(1.0), Made(None)
    made = Writer(
        "one",
        store,
        attempt=partial(Attempt, store, "one", make=lambda _: no_rows, now=lambda: 1.0, put_aside=guard.put),
        worker=Worker("one"),
        guard=guard,
        bad_table=BadTable(lambda: bad, "one/bad", ROWS, lambda: 1.0),
        limits=Limits(),
        buffer=Buffer(1000, lambda: 0.0),
        counts=Counts(),
        on_offset_reset=on_offset_reset,
        drain_seconds=1.0,
        tasks=Tasks(),
        wall_clock=lambda: 1.0,
    )
    yield made
    made.close()


async def test_a_queue_that_is_new_to_the_table_says_what_it_passes_over(
    writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    other = MessageQueue("orders", "broker-a", 1)
    assert await writer.begin(QueueStart(other, 7, 7, 30, nothing_at)) is None
    assert not caplog.messages
    assert await writer.begin(QueueStart(other, 7, 2, 30, nothing_at)) is None
    (told,) = caplog.messages
    assert "no position of orders@broker-a:1: it begins at #7" in told
    assert told.endswith("the broker has it from #2 on")


@pytest.mark.parametrize("committed", [0, 10, 25])
async def test_a_queue_begins_at_the_table_whatever_was_committed(writer: Writer, committed: int) -> None:
    assert await writer.begin(QueueStart(QUEUE, committed, 0, 30, nothing_at)) == 10


async def test_queues_that_begin_together_look_at_the_table_once(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, looks = ParquetStore.load, list[ParquetStore]()
    monkeypatch.setattr(ParquetStore, "load", lambda store: looks.append(store) or load(store))
    others = [MessageQueue("orders", "broker-a", number) for number in range(1, 16)]
    begun = [writer.begin(QueueStart(queue, 0, 0, 30, nothing_at)) for queue in (QUEUE, *others)]
    assert await asyncio.gather(*begun) == [10, *[None] * 15]
    assert len(looks) == 1
    assert await writer.begin(QueueStart(QUEUE, 0, 0, 30, nothing_at)) == 10
    assert len(looks) == 2


async def test_a_queue_that_the_table_has_never_seen_begins_where_the_group_does(writer: Writer) -> None:
    assert await writer.begin(QueueStart(QUEUE._replace(queue_id=5), 7, 0, 30, nothing_at)) is None


@pytest.mark.parametrize(
    ("min_offset", "max_offset", "problem"),
    [
        (0, 4, "the table has it up to #9, and the broker only up to #3, 6 fewer: the topic was created anew"),
        (15, 30, "the table has it up to #9, and the broker from #15 on: the 5 messages between have expired"),
    ],
)
async def test_a_queue_whose_broker_has_lost_messages_does_not_begin(
    writer: Writer, min_offset: int, max_offset: int, problem: str
) -> None:
    with pytest.raises(SinkError, match=problem + r".*on_offset_reset='new_epoch'"):
        await writer.begin(QueueStart(QUEUE, 0, min_offset, max_offset, nothing_at))


@pytest.mark.parametrize("on_offset_reset", ["new_epoch"])
@pytest.mark.parametrize(("min_offset", "max_offset"), [(0, 4), (2, 4), (15, 30)])
async def test_a_queue_that_began_anew_is_read_from_its_first_message_where_that_is_wanted(
    writer: Writer, tmp_path: Path, min_offset: int, max_offset: int
) -> None:
    assert await writer.begin(QueueStart(QUEUE, 25, min_offset, max_offset, nothing_at)) == min_offset
    for store in stores(tmp_path):
        assert dict(store.load().vector) == {QUEUE: min_offset}
    newest = next(ParquetStore(tmp_path / "one", "").commits())
    assert (newest.sequence, newest.kind, newest.rows) == (2, "epoch", 0)
    # It is one epoch until the table has rows of it.
    assert await writer.begin(QueueStart(QUEUE, 25, min_offset, max_offset, nothing_at)) == min_offset
    assert stores(tmp_path)[0].load().sequence == 2


@pytest.mark.parametrize("on_offset_reset", ["new_epoch"])
async def test_a_queue_whose_broker_has_lost_nothing_goes_on_at_the_table(writer: Writer, tmp_path: Path) -> None:
    assert await writer.begin(QueueStart(QUEUE, 0, 0, 10, nothing_at)) == 10
    assert stores(tmp_path)[0].load().sequence == 1


@pytest.mark.parametrize("on_offset_reset", ["fail", "new_epoch"])
async def test_a_queue_of_which_another_owner_stores_more_meanwhile_goes_on_behind_it(
    writer: Writer, tmp_path: Path
) -> None:
    newest = Landmark(11, 1_700_000_000_000, "0A")

    async def record_at(offset: int) -> tuple[int, int, str] | None:
        return newest if offset == 11 else None

    store, _ = stores(tmp_path)
    commit = commit_of(store.load(), "b", {QUEUE: Span(10, 12)}, rows=2)
    store.commit(replace(commit, marks={QUEUE: newest}), rows_of(10, 11))
    # The broker was asked for its end before.
    assert await writer.begin(QueueStart(QUEUE, 0, 0, 10, record_at)) == 12
    assert store.load().sequence == 2
