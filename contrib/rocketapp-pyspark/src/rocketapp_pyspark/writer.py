"""One sink while its app runs: gathers messages of all its queues, and writes one batch at a time.

Runs on the event loop; what blocks is done by worker threads. A message is acknowledged when the store has published
its batch, and the store says where each queue begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from rocketapp.plugin import Message, QueueSession, QueueStart, Tasks
from rocketapp_pyspark.aside import Aside
from rocketapp_pyspark.batches import Batch, Filling, Limits, Reason
from rocketapp_pyspark.committer import Attempt, Done
from rocketapp_pyspark.compaction import Compaction
from rocketapp_pyspark.errors import GapError, SinkError, TooManyBadRowsError
from rocketapp_pyspark.evolution import Evolution
from rocketapp_pyspark.lanes import Lane, lane_of, lost
from rocketapp_pyspark.rebasing import rebase
from rocketapp_pyspark.records import Head
from rocketapp_pyspark.store import Store
from rocketapp_pyspark.worker import Worker

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("rocketapp.spark")

OnOffsetReset = Literal["fail", "new_epoch"]
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between attempts to write the same batch."""
SWEEP_AFTER = 86_400.0
"""Seconds after which what was staged and never published is removed."""


class Writer:
    """Of one sink."""

    def __init__(
        self,
        name: str,
        store: Store,
        *,
        to_table: Callable[[Batch[Message]], pa.Table | None],
        aside: Callable[[Worker], Aside] | None = None,
        evolution: Evolution = "fail",
        compaction: Compaction | None = None,
        limits: Limits,
        on_offset_reset: OnOffsetReset = "fail",
        drain_seconds: float,
        tasks: Tasks,
        wall_clock: Callable[[], float],
    ) -> None:
        """Needs a running loop. `drain_seconds`: how long a queue that is given back may wait for its batch.

        `aside`: makes what puts bad rows in another place, in this writer's worker.
        `compaction`: is told of new files.
        """
        self.name, self.limits, self.drain_seconds = name, limits, drain_seconds
        self._store, self._to_table, self._evolution = store, to_table, evolution
        self._on_offset_reset = on_offset_reset
        self._tasks, self._wall_clock, self._compaction = tasks, wall_clock, compaction
        self._loop = asyncio.get_running_loop()
        self._worker, self._reader = Worker(f"sink {name}"), Worker(f"sink {name} reads")
        self._aside = None if aside is None else aside(self._worker)
        self._filling: Filling[Message] = Filling()
        self._intakes: dict[Lane, SinkIntake] = {}
        self._starts: dict[Lane, int] = {}
        self._draining: set[Lane] = set()
        self._writing: Mapping[Lane, SinkIntake] | None = None
        """The lanes of the batch that is being written."""
        self._head: Head | None = None
        self._is_stuck = False
        """The batch that is being written has failed for a reason that does not pass by itself."""
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._has_swept = False

    def __repr__(self) -> str:
        return f"<Writer {self.name}: {self._filling!r}, {'writing' if self._writing else 'idle'}>"

    async def begin(self, start: QueueStart) -> int | None:
        """Where the table stands. Raises SinkError when that does not go with what the broker has."""
        lane = lane_of(start.queue)
        head = await self._reader.run(self._store.load)
        position = head.vector.get(lane)
        if position is None:
            self._starts[lane] = start.offset
            return None
        problem = lost(lane, position, start)
        if problem and self._on_offset_reset == "fail":
            raise SinkError(f"{problem} To go on with what the broker has: on_offset_reset='new_epoch'")
        if problem:
            position = start.min_offset
            await self._reader.run(partial(self._new_epoch, {lane: position}))
            log.warning("sink %s: %s It begins anew at #%d", self.name, problem, position)
        self._starts[lane] = position
        return position

    def new_intake(self, session: QueueSession) -> SinkIntake:
        lane = lane_of(session.queue)
        intake = self._intakes[lane] = SinkIntake(self, lane, session, self._starts[lane])
        return intake

    def take(self, intake: SinkIntake, messages: Sequence[Message]) -> None:
        """Messages of a queue, in offset order."""
        if intake.is_stopped:
            return
        self._filling.add(intake.lane, intake.next, messages, self._loop.time())
        intake.next = messages[-1].offset + 1
        self._look()

    async def drained(self, intake: SinkIntake) -> None:
        """Returns when the table has everything that was taken of this queue, or waiting will not help."""
        while intake.is_alive and (intake.lane in self._filling or self._is_writing(intake)):
            if self._is_stuck:
                raise TimeoutError
            self._draining.add(intake.lane)
            self._look()
            self._changed.clear()
            await self._changed.wait()

    def forget(self, intake: SinkIntake) -> None:
        """Its session is over: what is not being written is read again by the next owner."""
        if self._intakes.get(intake.lane) is intake:
            del self._intakes[intake.lane]
            self._draining.discard(intake.lane)
            self._filling.drop(intake.lane)
        self._changed.set()

    def close(self) -> None:
        """Every session is over."""
        self._disarm()
        if self._compaction is not None:
            self._compaction.close()
        self._worker.stop()
        self._reader.stop()

    # Inside.

    def _new_epoch(self, to: Mapping[Lane, int]) -> None:
        """In the reader thread. The table of bad rows first: it would take new ones for old ones."""
        if self._aside is not None:
            self._aside.began_anew(to)
        rebase(self._store, self.name, to, made_at=self._wall_clock(), kind="epoch")

    def _is_writing(self, intake: SinkIntake) -> bool:
        return self._writing is not None and self._writing.get(intake.lane) is intake

    def _look(self) -> None:
        """Cut a batch if that is due, and nothing is being written."""
        if self._writing is not None:
            return
        self._disarm()
        reason: Reason | None = "drain" if any(lane in self._filling for lane in self._draining) else None
        reason = reason or self._filling.reason(self.limits, self._loop.time())
        if reason is not None:
            batch = self._filling.cut(reason)
            self._writing = {lane: self._intakes[lane] for lane in batch.spans}
            self._tasks.start(self._write(batch, self._writing), f"sink {self.name} writes")
        elif (due := self._filling.due_at(self.limits)) is not None:
            self._timer = self._loop.call_at(due, self._look)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _write(self, batch: Batch[Message], intakes: Mapping[Lane, SinkIntake]) -> None:
        began = self._loop.time()
        try:
            done = await self._until_published(batch, intakes)
            if done is None:
                return
            if self._aside is not None:
                self._aside.published()
            for lane, intake in intakes.items():
                if not intake.is_stopped:
                    intake.session.moving()
                    intake.session.done(batch.rows[lane])
            if done.rows and self._compaction is not None:
                self._compaction.rows_came()
            _tell(self.name, batch, done, self._loop.time() - began)
        finally:
            self._writing, self._is_stuck = None, False
            if self._aside is not None:
                self._aside.forget()
            self._changed.set()
            self._look()
        if not self._has_swept:
            self._has_swept = True
            await self._sweep()

    async def _until_published(self, batch: Batch[Message], intakes: Mapping[Lane, SinkIntake]) -> Done | None:
        """Try until the table has it; None when every queue of it was given back before."""
        attempt = Attempt(
            self._store, self.name, batch, to_table=self._to_table, now=self._wall_clock, evolution=self._evolution
        )
        pause = FIRST_PAUSE
        while True:
            over = [lane for lane, intake in intakes.items() if not intake.is_alive]
            if len(over) == len(intakes):
                return None
            attempt.drop(attempt.batch.without(over))
            try:
                if self._aside is not None:
                    await self._aside.put(attempt.batch)
                done = await self._worker.run(partial(attempt.run, self._head))
            except TooManyBadRowsError as error:
                self._stop_lanes(intakes, error)
                continue
            except GapError as error:
                self._head = None
                self._break_off(intakes, error)
                continue
            except Exception as error:
                self._head = None
                self._is_stuck = isinstance(error, SinkError)
                self._changed.set()
                text = f"sink {self.name} cannot write its batch: {type(error).__name__}: {error}"
                for intake in intakes.values():
                    intake.session.still(text)
                log.debug("sink %s: batch of %d messages failed", self.name, len(batch), exc_info=error)
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
                continue
            self._head = done.head
            return done

    def _stop_lanes(self, intakes: Mapping[Lane, SinkIntake], error: TooManyBadRowsError) -> None:
        """These queues are held where they stand, for as long as they are ours."""
        for lane, reason in error.lanes.items():
            intakes[lane].is_stopped = True
            intakes[lane].session.still(f"sink {self.name}: {reason}")
            self._filling.drop(lane)
            log.error("sink %s: %s", self.name, reason)
        self._changed.set()

    def _break_off(self, intakes: Mapping[Lane, SinkIntake], error: GapError) -> None:
        for lane, intake in intakes.items():
            if str(lane) == error.lane:
                intake.is_over = True
                intake.session.broken(error)

    async def _sweep(self) -> None:
        try:
            swept = await self._reader.run(partial(self._store.sweep, SWEEP_AFTER))
        except Exception as error:
            log.warning("sink %s: what was never published cannot be removed: %s", self.name, error)
        else:
            if swept:
                log.info("sink %s: removed %d batches that were never published", self.name, swept)


class SinkIntake:
    """One session of one queue (rocketapp.plugin.Intake)."""

    def __init__(self, writer: Writer, lane: Lane, session: QueueSession, start: int) -> None:
        self._writer, self.lane, self.session = writer, lane, session
        self.next = start
        """Everything below was taken, or is in the table."""
        self.is_over = False
        self.is_stopped = False
        """Too much of it is bad: nothing of it is taken, and its messages stay unacknowledged."""
        self._drain_until: float | None = None

    @property
    def is_alive(self) -> bool:
        """Whether its rows are still to be written."""
        return not self.is_over and not self.is_stopped

    def take(self, messages: Sequence[Message]) -> None:
        self._writer.take(self, messages)

    async def drain(self) -> None:
        """May be cancelled and called again: the time limit counts from the first call."""
        loop = asyncio.get_running_loop()
        if self._drain_until is None:
            self._drain_until = loop.time() + self._writer.drain_seconds
        try:
            async with asyncio.timeout_at(self._drain_until):
                await self._writer.drained(self)
        except TimeoutError:
            log.warning(
                "sink %s: %s is given back before its batch is written: it comes again", self._writer.name, self.lane
            )

    def discard(self) -> None:
        self.is_over = True
        self._writer.forget(self)


def _tell(name: str, batch: Batch[Message], done: Done, seconds: float) -> None:
    log.info(
        "sink %s: commit %d of %d rows, %d bytes, %.2f s, cut by %s, batch %s%s",
        name,
        done.head.sequence,
        done.rows,
        done.bytes,
        seconds,
        batch.reason,
        done.batch or "(none)",
        f"; {done.trimmed} messages were there before, {done.fenced} races lost" if done.trimmed or done.fenced else "",
        extra={
            "sink": name,
            "sequence": done.head.sequence,
            "batch": done.batch,
            "rows": done.rows,
            "bytes": done.bytes,
            "seconds": seconds,
            "reason": batch.reason,
            "trimmed": done.trimmed,
            "fenced": done.fenced,
            "spans": {str(lane): list(span) for lane, span in batch.spans.items()},
        },
    )
