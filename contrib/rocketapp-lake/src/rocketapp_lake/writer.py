"""One sink while its app runs: gathers messages of all its queues, and writes one batch at a time.

Runs on the event loop; what blocks is done by worker threads. A message is acknowledged when the store has published
its batch, and the store says where each queue begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rocketapp import MessageQueue
from rocketapp.plugin import QueueSession, QueueStart, StoredRecords, Tasks
from rocketapp.state.queue_identity import Identity, Landmark
from rocketapp_lake.bad_rows import BadTable, Guard
from rocketapp_lake.batches import Batch, Buffer, Filling, Limits, Reason
from rocketapp_lake.committer import Attempt, Done, rebase
from rocketapp_lake.counts import Counts
from rocketapp_lake.errors import GapError, RefusedRowsError, SinkError, TooManyBadRowsError
from rocketapp_lake.options import OnOffsetReset
from rocketapp_lake.positions import Marks, Span, identified, last_of, lost
from rocketapp_lake.records import Head
from rocketapp_lake.store import Store
from rocketapp_lake.worker import Worker

log = logging.getLogger("rocketapp.lake")

MOST_ATTEMPTS = 10
"""To commit one batch; then its queues are given up, and read again from where the table stands."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds from one attempt to the next one: they double each time."""
SWEEP_AFTER = 86_400.0
"""Seconds after which what was staged and never published is removed."""
IDLE = 3600.0
"""Seconds after which queues that have no rows, but other messages, are moved on in the table."""


class Writer:
    """Of one sink."""

    def __init__(
        self,
        name: str,
        store: Store,
        *,
        attempt: Callable[[Batch], Attempt],
        worker: Worker,
        bad_table: BadTable,
        guard: Guard | None = None,
        rows_came: asyncio.Event | None = None,
        limits: Limits,
        buffer: Buffer,
        counts: Counts,
        on_offset_reset: OnOffsetReset = "fail",
        until_now: bool = False,
        drain_seconds: float,
        tasks: Tasks,
        wall_clock: Callable[[], float],
    ) -> None:
        """Needs a running loop. `drain_seconds`: how long a queue that is given back may wait for its batch.

        `attempt`: what brings a batch into the table, in the thread of `worker`, which ends with this writer. `guard`:
        what bad rows pass on that way, to another place. `bad_table`: where an owner may have left some of them behind.
        `rows_came`: set for each commit with rows.
        """
        self.name: str = name
        self.buffer: Buffer = buffer
        self.counts: Counts = counts
        self.drain_seconds = drain_seconds
        self._limits, self._store, self._attempt = limits, store, attempt
        self._on_offset_reset, self._until_now = on_offset_reset, until_now
        self._ends: dict[MessageQueue, int] = {}
        """Of a bounded sink: what is taken of a queue ends here, or a pull behind it."""
        self._tasks, self._wall_clock, self._rows_came = tasks, wall_clock, rows_came
        self._loop = asyncio.get_running_loop()
        self._worker, self._reader = worker, Worker(f"sink {name} reads")
        self._guard, self._bad_table = guard, bad_table
        self._filling: Filling = Filling()
        self._sessions: dict[MessageQueue, SinkQueue] = {}
        self._starts: dict[MessageQueue, int] = {}
        self._owing: set[MessageQueue] = set()
        """Those whose last owner has left bad rows behind: the table gets nothing more before they are put aside."""
        self._draining: set[MessageQueue] = set()
        self._writing: Mapping[MessageQueue, SinkQueue] | None = None
        """The queues of the batch that is being written."""
        self._writing_bytes = 0
        self._head: Head | None = None
        self._look_at_table: asyncio.Future[Head] | None = None
        """Queues that begin together share it: what the table gets meanwhile is read again, and trimmed."""
        self._is_stuck = False
        """The batch that is being written has failed for a reason that does not pass by itself."""
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Writer {self.name}: {self._filling!r}, {'writing' if self._writing else 'idle'}>"

    async def begin(self, start: QueueStart) -> int | None:
        """Where the table stands. Raises SinkError when that does not go with what the broker has."""
        queue = start.queue
        if self._until_now:
            self._ends[queue] = min(start.max_offset, self._ends.get(queue, start.max_offset))
        if self._look_at_table is None or self._look_at_table.done():
            self._look_at_table = self._reader.run(self._store.load)
        head = await asyncio.shield(self._look_at_table)
        position = head.vector.get(queue)
        if position is None:
            self._starts[queue] = self.counts.positions[queue] = start.offset
            if start.offset > start.min_offset:
                # A new name or a new table may be meant to have everything.
                log.warning(
                    "sink %s: the table has no position of %s: it begins at #%d, where the group or start= says; "
                    "the broker has it from #%d on",
                    self.name,
                    queue,
                    start.offset,
                    start.min_offset,
                )
            return None
        problem = await self._problem(queue, position, head.marks.get(queue), start)
        if problem and self._on_offset_reset == "fail":
            raise SinkError(f"{problem} To go on with what the broker has: on_offset_reset='new_epoch'")
        if problem:
            position = start.min_offset
            await self._reader.run(partial(self._new_epoch, {queue: position}))
            log.warning("sink %s: %s It begins anew at #%d", self.name, problem, position)
        owed = await self._reader.run(partial(self._bad_table.owed, queue, head))
        self.counts.positions[queue] = position
        self._owing = self._owing | {queue} if owed else self._owing - {queue}
        self._starts[queue] = max(start.min_offset, min([position, *owed]))
        return self._starts[queue]

    async def _problem(self, queue: MessageQueue, position: int, known: Landmark | None, start: QueueStart) -> str:
        """Why the queue cannot go on where the table ends; empty when it can."""
        if known is None:
            return lost(queue, position, start)
        found = await identified(known, start)
        if found is Identity.SAME and known.offset == position - 1:
            return ""  # also above the end that the broker had when it was asked: another owner has stored more since
        if problem := lost(queue, position, start):
            return problem
        if found is Identity.OTHER:
            passed = max(0, min(known.offset + 1, start.max_offset) - start.min_offset)
            return (
                f"{queue} is another queue than the one that was read up to #{known.offset}: the broker has another "
                f"message there, and {passed} messages below that were never stored. The topic was created anew, or "
                f"its broker was replaced."
            )
        if found is Identity.GONE:
            log.warning(
                "sink %s: %s: #%d, the last message that was read, has expired; what follows was stored later",
                self.name,
                queue,
                known.offset,
            )
        return ""

    def new_queue(self, owner: QueueSession) -> SinkQueue:
        queue = owner.queue
        session = self._sessions[queue] = SinkQueue(self, queue, owner, self._starts[queue])
        self._look()
        return session

    def take(self, session: SinkQueue, records: Sequence[StoredRecords]) -> None:
        """Records of a queue, in offset order."""
        if session.is_stopped or session.next >= self._ends.get(session.queue, session.next + 1):
            return
        self._filling.add(session.queue, session.next, records, self._loop.time())
        session.next = records[-1].end
        self._look()
        self._weigh()

    async def drained(self, session: SinkQueue) -> None:
        """Returns when the table has everything that was taken of this queue, or waiting will not help."""
        while session.is_alive and (session.queue in self._filling or self._is_writing(session)):
            if self._is_stuck:
                raise TimeoutError
            self._draining.add(session.queue)
            self._look()
            self._changed.clear()
            await self._changed.wait()

    def forget(self, session: SinkQueue) -> None:
        """Its session is over: what is not being written is read again by the next owner."""
        if self._sessions.get(session.queue) is session:
            del self._sessions[session.queue]
            self._draining.discard(session.queue)
            self._filling.drop(session.queue)
            self.counts.positions.pop(session.queue, None)
            self._weigh()
        self._changed.set()

    def close(self) -> None:
        """Every session is over."""
        if self._until_now:
            log.info("sink %s: ends with %d rows of %d commits", self.name, self.counts.rows, self.counts.commits)
        self._disarm()
        self._worker.stop()
        self._reader.stop()

    # Inside.

    def _new_epoch(self, to: Mapping[MessageQueue, int]) -> None:
        """In the reader thread. The table of bad rows first: it would take new ones for old ones."""
        bad = self._bad_table
        if bad.store.load().sequence:
            rebase(bad.store, bad.sink, to, made_at=self._wall_clock(), kind="epoch")
        rebase(self._store, self.name, to, made_at=self._wall_clock(), kind="epoch")

    def _weigh(self) -> None:
        self.buffer.holds(self._filling.bytes + self._writing_bytes)

    def _is_writing(self, session: SinkQueue) -> bool:
        return self._writing is not None and self._writing.get(session.queue) is session

    def _look(self) -> None:
        """Cut a batch if that is due, and nothing is being written."""
        if self._writing is not None:
            return
        reason: Reason | None = "drain" if any(queue in self._filling for queue in self._draining) else None
        reason = reason or self._filling.reason(self._limits, self._loop.time())
        if reason is not None:
            self._disarm()
            self._begin_to_write(reason)
        elif (due := self._filling.due_at(self._limits)) is not None:
            if self._timer is None or self._timer.when() != due:
                self._disarm()
                self._timer = self._loop.call_at(due, self._came_due)
        else:
            self._disarm()
            if self._sessions:
                self._timer = self._loop.call_later(IDLE, self._move_on)

    def _came_due(self) -> None:
        # The loop may be early by what its clock cannot tell apart: then it is set again.
        self._timer = None
        self._look()

    def _begin_to_write(self, reason: Reason) -> None:
        passed = self._passed()
        self._writing_bytes = self._filling.bytes
        batch = self._filling.cut(reason).beside(passed)
        for queue, span in passed.items():
            self._sessions[queue].next = span.end
        self._writing = {queue: self._sessions[queue] for queue in batch.spans}
        self._tasks.start(self._write(batch, self._writing), f"sink {self.name} writes")

    def _passed(self) -> dict[MessageQueue, Span]:
        """What was read of queues without a row: of other tags, so that the table stands where the queue does."""
        return {
            queue: Span(session.next, session.owner.position)
            for queue, session in self._sessions.items()
            if session.is_alive and queue not in self._filling and session.owner.position > session.next
        }

    def _move_on(self) -> None:
        """No row has come for a long time."""
        self._timer = None
        if self._passed():
            self._begin_to_write("idle")
        else:
            self._look()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _write(self, batch: Batch, sessions: Mapping[MessageQueue, SinkQueue]) -> None:
        try:
            batch = replace(batch, marks=await self._marks(batch, sessions))
            found = await self._until_published(batch, sessions)
            if found is None:
                return
            done, seconds = found
            for queue, session in sessions.items():
                if session.is_alive:
                    session.owner.moving()
                    session.owner.done(batch.pieces[queue])
            if done.rows and self._rows_came is not None:
                self._rows_came.set()
            self.counts.committed(self.name, batch, done, seconds)
        finally:
            self._writing, self._writing_bytes, self._is_stuck = None, 0, False
            self._changed.set()
            self._look()
            self._weigh()
        del batch  # it is large, and a sweep may take a while
        await self._sweep()

    async def _sweep(self) -> None:
        try:
            swept = await self._reader.run(partial(self._store.sweep, SWEEP_AFTER))
        except Exception as error:
            log.warning("sink %s: what was never published cannot be removed: %s", self.name, error)
            return
        self.counts.swept += swept
        if swept:
            log.info("sink %s: removed %d batches that were never published", self.name, swept)

    async def _marks(self, batch: Batch, sessions: Mapping[MessageQueue, SinkQueue]) -> Marks:
        """Of queues that have no row in the batch, what was read last is asked for: it was left out by a filter."""
        asked = {
            queue: sessions[queue].owner.record_at(batch.spans[queue].end - 1)
            for queue, pieces in batch.pieces.items()
            if not pieces
        }
        found = {queue: last_of(pieces[-1]) for queue, pieces in batch.pieces.items() if pieces}
        for queue, mark in zip(asked, await asyncio.gather(*asked.values(), return_exceptions=True), strict=True):
            if isinstance(mark, BaseException):
                log.debug("sink %s: %s: its last message cannot be read: %s", self.name, queue, mark)
            elif mark is not None:  # otherwise an older one will do
                found[queue] = Landmark(*mark)
        return found

    async def _until_published(
        self, batch: Batch, sessions: Mapping[MessageQueue, SinkQueue]
    ) -> tuple[Done, float] | None:
        """Try until the table has it, and how long that attempt took; None when its queues were given up before."""
        attempt, pause, failures = self._attempt(batch), FIRST_PAUSE, 0
        while True:
            over = [queue for queue, session in sessions.items() if not session.is_alive]
            if len(over) == len(sessions):
                return None
            if over:
                attempt.drop(attempt.batch.without(over))
            began = self._loop.time()
            try:
                if self._owing & batch.spans.keys():
                    self._head = await self._worker.run(self._store.load)
                    await self._worker.run(partial(self._bad_table.follow, batch, self._head, ()))
                    self._owing -= batch.spans.keys()
                done = await self._worker.run(partial(attempt.run, self._head))
                if not done.head.aside.keys().isdisjoint(batch.spans):
                    await self._worker.run(partial(self._bad_table.follow, batch, done.head, done.bad))
            except TooManyBadRowsError as error:
                self._stop_queues(sessions, error)
                continue
            except GapError as error:
                self._head = None
                sessions[error.queue].is_over = True
                sessions[error.queue].owner.broken(error)
                continue
            except Exception as error:
                self._head = None
                if isinstance(error, RefusedRowsError) and attempt.refuses(error):
                    continue
                self._is_stuck = isinstance(error, SinkError)
                self._changed.set()
                text = f"sink {self.name} cannot write its batch: {type(error).__name__}: {error}"
                for session in sessions.values():
                    session.owner.blocked(text)
                log.debug("sink %s: batch of %d messages failed", self.name, len(batch), exc_info=error)
                self.counts.failures += 1
                failures += 1
                if failures >= MOST_ATTEMPTS:
                    self._give_up(sessions, failures, text)
                    return None
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
                continue
            self._head = done.head
            if self._guard is not None:
                self._guard.published(attempt.batch, done.bad)
            return done, self._loop.time() - began

    def _give_up(self, sessions: Mapping[MessageQueue, SinkQueue], failures: int, text: str) -> None:
        """Its queues are read again from where the table stands, and what was staged is not used."""
        text = f"{text}; after {failures} attempts its queues are read again from the table"
        log.error("%s", text)
        for session in sessions.values():
            if session.is_alive:
                session.is_over = True
                session.owner.broken(SinkError(text))

    def _stop_queues(self, sessions: Mapping[MessageQueue, SinkQueue], error: TooManyBadRowsError) -> None:
        """These queues are held where they stand, for as long as they are ours."""
        for queue, reason in error.queues.items():
            sessions[queue].is_stopped = True
            sessions[queue].owner.blocked(f"sink {self.name}: {reason}")
            self._filling.drop(queue)
            log.error("sink %s: %s", self.name, reason)
        self._changed.set()


class SinkQueue:
    """One session of one queue (rocketapp.plugin.QueueWriter)."""

    def __init__(self, writer: Writer, queue: MessageQueue, owner: QueueSession, start: int) -> None:
        self._writer, self.queue, self.owner = writer, queue, owner
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

    def take(self, records: Sequence[StoredRecords]) -> None:
        self._writer.take(self, records)

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
                "sink %s: %s is given back before its batch is written: it comes again", self._writer.name, self.queue
            )

    def discard(self) -> None:
        self.is_over = True
        self._writer.forget(self)
