"""The writer of a sink alone, with queues that are given to it by hand."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sink_shop import by_arrow
from store_suite import commit_of

from rocketapp import MessageQueue
from rocketapp.plugin import QueueStart, Tasks
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.stored_records import StoredRecords, stored_records
from rocketapp_lake.bad_rows import EARLIER, BadTable
from rocketapp_lake.batches import Buffer, Limits
from rocketapp_lake.committer import Attempt
from rocketapp_lake.counts import Counts
from rocketapp_lake.parquet import ParquetStore
from rocketapp_lake.positions import Span
from rocketapp_lake.records import Commit, Head
from rocketapp_lake.rows import Rows
from rocketapp_lake.worker import Worker
from rocketapp_lake.writer import SinkQueue, Writer

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(2)]


class SteppedLoop(asyncio.SelectorEventLoop):
    """Its clock is set by hand, and tells apart whole seconds alone: timers are up to one second early by it."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self._clock_resolution = 1_000.0, 1.0

    def time(self) -> float:
        return self.now


class Session:
    """What a writer is given of one queue (rocketapp.plugin.QueueSession), which notes down what it is told."""

    subscription: Any = None
    call: Any = None
    position = 0

    def __init__(self, queue: MessageQueue, changed: Callable[[], None]) -> None:
        self.queue, self._changed = queue, changed
        self.acknowledged: list[int] = []
        self.error: BaseException | None = None
        self.reason = ""

    def done(self, messages: Sequence[Any]) -> None:
        self.acknowledged += [piece.offset for piece in messages]
        self._changed()

    def failed(self, message: Any, error: BaseException) -> None:
        raise AssertionError("not for records")

    def broken(self, error: BaseException) -> None:
        self.error = error

    def blocked(self, reason: str) -> None:
        self.reason = reason
        self._changed()

    def moving(self) -> None:
        pass


async def nothing_at(offset: int) -> None:
    """No record is there."""


class Bench:
    """A writer into a table of Parquet files, and its queues."""

    def __init__(self, directory: Path, limits: Limits) -> None:
        rows, self.worker = Rows(None, None, "fail", lambda: None), Worker("one")
        self.store = ParquetStore(directory / "one", "one", write=by_arrow)
        self.bad_store = ParquetStore(directory / "one_bad", "one/bad", write=by_arrow)
        self.writer = Writer(
            "one",
            self.store,
            attempt=partial(Attempt, self.store, "one", make=rows.made, now=lambda: 1.0),
            worker=self.worker,
            bad_table=BadTable(lambda: self.bad_store, "one/bad", rows, lambda: 1.0),
            limits=limits,
            buffer=Buffer(1_000_000, lambda: 0.0),
            counts=Counts(),
            drain_seconds=1.0,
            tasks=Tasks(),
            wall_clock=lambda: 1.0,
        )
        self._changed = asyncio.Event()

    async def open(self, queue: MessageQueue, kind: type[Session] = Session) -> tuple[SinkQueue, Session]:
        await self.writer.begin(QueueStart(queue, 0, 0, 99, nothing_at))
        session = kind(queue, self._changed.set)
        return self.writer.new_queue(session), session

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


def pull(queue: MessageQueue, offset: int) -> list[StoredRecords]:
    record = Record(topic=queue.topic, body=b"tea", queue_id=queue.queue_id, queue_offset=offset, stored_ms=1)
    found = stored_records(encode_record(record), queue)
    assert found is not None
    return [found]


def test_a_message_that_comes_alone_is_written_also_when_its_timer_is_a_hair_early(tmp_path: Path) -> None:
    async def main(loop: SteppedLoop) -> None:
        bench = Bench(tmp_path, Limits(seconds=30.0))
        try:
            intake, session = await bench.open(QUEUES[0])
            intake.take(pull(QUEUES[0], 0))
            for loop.now in (1_029.5, 1_030.0):
                assert "1 rows" in repr(bench.writer)
                for _ in range(3):
                    await asyncio.sleep(0)
            assert "writing" in repr(bench.writer)
            await bench.until(lambda: session.acknowledged == [0])
        finally:
            bench.writer.close()

    with asyncio.Runner(loop_factory=SteppedLoop) as run:
        loop = run.get_loop()
        assert isinstance(loop, SteppedLoop)
        run.run(main(loop))


async def test_a_queue_behind_a_gap_is_not_acknowledged_with_the_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Limits(rows=2))
    try:
        (one, first), (two, second) = [await bench.open(queue) for queue in QUEUES]
        one.take(pull(QUEUES[0], 0))
        two.take(pull(QUEUES[1], 0))
        await bench.until(lambda: first.acknowledged == second.acknowledged == [0])
        one.next = 15
        one.take(pull(QUEUES[0], 15))
        two.take(pull(QUEUES[1], 1))
        await bench.until(lambda: second.acknowledged == [0, 1])
        assert first.acknowledged == [0]
        assert "the table ends before #1, and these rows begin at #15" in str(first.error)
        assert dict(bench.store.load().vector) == {QUEUES[0]: 1, QUEUES[1]: 2}
    finally:
        bench.writer.close()


class Filtered(Session):
    """A queue of which five messages were left out by a filter. Its broker answers when it was asked about two."""

    position = 5
    asked = asyncio.Barrier(2)

    async def record_at(self, offset: int) -> tuple[int, int, str]:
        await self.asked.wait()
        return offset, 1, f"{self.queue} #{offset}"


async def test_a_batch_waits_for_the_slowest_broker_alone_and_not_for_each_queue_without_rows(tmp_path: Path) -> None:
    others, bench = [MessageQueue("orders", f"broker-{name}", 0) for name in "bc"], Bench(tmp_path, Limits(rows=1))
    try:
        intake, session = await bench.open(QUEUES[0])
        for queue in others:
            await bench.open(queue, Filtered)
        intake.take(pull(QUEUES[0], 0))
        await bench.until(lambda: session.acknowledged == [0])
        marks = bench.store.load().marks
        assert [marks[queue].key for queue in others] == [f"{queue} #4" for queue in others]
    finally:
        bench.writer.close()


async def test_a_batch_is_let_go_when_it_is_in_the_table_whatever_is_swept_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = MessageQueue("swept", "broker-a", 0)
    bench = Bench(tmp_path, Limits(rows=1))
    sweeps, may_end = threading.Event(), threading.Event()

    def sweep(older_than: float) -> int:
        sweeps.set()
        return int(not may_end.wait(10))

    monkeypatch.setattr(bench.store, "sweep", sweep)
    try:
        intake, session = await bench.open(queue)
        intake.take(pull(queue, 0))
        await bench.until(lambda: session.acknowledged == [0])
        await asyncio.to_thread(sweeps.wait, 10)
        await bench.worker.run(lambda: None)  # its thread has let the call before go, too
        gc.collect()
        assert not [one for one in gc.get_objects() if type(one) is StoredRecords and one.queue is queue]
    finally:
        may_end.set()
        bench.writer.close()


async def test_a_table_waits_for_the_bad_rows_that_its_last_owner_has_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (queue, _), bench = QUEUES, Bench(tmp_path, Limits(rows=2))
    left = replace(commit_of(Head(), "a", {queue: Span(0, 2)}), aside={queue: (1,)}, schema="")
    bench.store.commit(left, None)
    failing = pytest.MonkeyPatch()
    failing.setattr(bench.bad_store, "commit", commits_nothing)
    monkeypatch.setattr("rocketapp_lake.writer.FIRST_PAUSE", 0.01)
    try:
        intake, session = await bench.open(queue)
        for offset in (1, 2):
            intake.take(pull(queue, offset))
        await bench.until(lambda: "no space left" in session.reason)
        assert dict(bench.store.load().vector) == {queue: 2}
        failing.undo()
        await bench.until(lambda: session.acknowledged == [1, 2])
        assert dict(bench.store.load().vector) == {queue: 3}
        assert pq.read_table(tmp_path / "one_bad")["_rmq_problem"].to_pylist() == [EARLIER]
    finally:
        bench.writer.close()


def commits_nothing(commit: Commit, rows: pa.Table | None) -> None:
    raise OSError("no space left")
