"""Workers of one sync handler: threads that drain the same work.

One thread is woken for new work, and drains it alone as long as its calls are quick: then
more threads would only fight for the interpreter. When a thread has been inside one call
for a millisecond, as many threads as there are items left join it: so a handler that waits
for a database has all of its threads busy within a few milliseconds.

Threads put what they finished beside the work and wake the loop once per burst. Only the
loop reports to completions.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.journal import Journal, Note
from rocketapp.consumer.pausing import PausesOfHandler
from rocketapp.consumer.workers.threads import MakeThreads, Threads
from rocketapp.consumer.workers.work import Work, left_of
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.state.pauses import Pauses

_CHUNK = 32
"""Items of an endless work that a thread takes before it looks at the other works."""
_STUCK_AFTER = 0.001
"""Seconds that a thread may be inside one call before other threads join it."""
_THREAD_RETRY = 0.1
"""Seconds until the system is asked again for a thread that it did not have."""


class _Worker:
    """What one thread works on."""

    __slots__ = ("active", "item", "note", "seen")

    def __init__(self, note: Note | None) -> None:
        self.note = note
        self.active = False
        self.item: Any = None
        self.seen: Any = None
        """What it worked on at the last look."""


class ThreadWorkers:
    """Up to `concurrency` calls of one sync handler at once."""

    is_quick = False

    def __init__(
        self,
        handler: Handler,
        observe: Observe,
        pauses: Pauses,
        threads: MakeThreads = Threads,
        journal: Journal | None = None,
    ) -> None:
        """`threads(name, most)` makes the threads; `journal`: where they note down what they have in flight."""
        self._journal = journal
        self._pauses = PausesOfHandler(handler, pauses, self._pauses_changed)
        self._can_probe = False
        """Its topic is paused, and one message may start."""
        subscription = handler.subscription
        self.handler = handler
        self.call: Callable[[Any], Any] = handler.call
        self._observe = observe
        self.batch: tuple[int, float] | None = (
            None if subscription.batch is None else (subscription.batch, subscription.batch_wait)
        )
        """Most messages of a batch and seconds to wait for them; None for a handler of single messages."""
        self._single = self.batch is None
        self._most = subscription.concurrency
        self._loop = asyncio.get_running_loop()
        self._threads = threads(f"handler {handler.name}", max(self._most, subscription.concurrency_most))
        self._lock = threading.Lock()
        """Guards the list of open works, and who is active: taken once per work."""
        self._open: deque[Work] = deque()
        self._workers: list[_Worker] = []
        self._finished: deque[Work] = deque()
        self._judged: deque[tuple[Work, Any, object, bool]] = deque()
        self._collecting = False
        self._looking: asyncio.TimerHandle | None = None
        self._reported = False
        """It was reported that the system has no thread for us."""

    def __repr__(self) -> str:
        return f"<ThreadWorkers {self.handler.name}: {self._active()} of {self._most} active>"

    @property
    def is_paused(self) -> bool:
        """Its topic is paused: what is handed over waits."""
        return self._pauses.is_paused

    def submit(self, work: Work) -> None:
        """Hand over work. An endless one may be handed over again at any time."""
        with self._lock:
            while self._open and not self._open[-1].left:
                self._open.pop().is_queued = False  # withdrawn, perhaps while all threads are busy
            if not work.is_queued:
                work.is_queued = True
                self._open.append(work)
            asleep = not self._active()
        if not self._may_start():
            return
        has_thread = not asleep or self._wake(1)
        if self._looking is None:
            self._looking = self._loop.call_later(_STUCK_AFTER if has_thread else _THREAD_RETRY, self._look)

    def _may_start(self) -> bool:
        """On the loop: whether a thread may take something."""
        if self._pauses.is_paused and not self._can_probe:
            with self._lock:
                is_any = left_of(self._open, 1) > 0
            self._can_probe = is_any and self._pauses.may_probe()
        return self._can_probe or not self._pauses.is_paused

    def _pauses_changed(self) -> None:
        self._can_probe = False
        self._look_soon()

    def _look_soon(self) -> None:
        if self._looking is None and self._open:
            self._looking = self._loop.call_later(0.0, self._look)

    def in_flight(self) -> list[Any]:
        """Per thread what it works on, or None."""
        return [worker.item if worker.active else None for worker in self._workers]

    async def cancel(self, is_mine: Callable[[Any], bool]) -> None:
        """Nothing can stop a function in its thread."""

    def adopt(self, hand: Any) -> None:
        """No other worker begins calls of theirs."""

    def resize(self, most: int) -> None:
        """At most this number of calls at once from now on; what runs beyond that ends, with what it has taken."""
        self._most = most
        self._threads.resize(max(most, self.handler.subscription.concurrency_most))
        self._look_soon()

    def change_batch(self, most: int) -> None:
        """Another most of messages in a batch holds from now on."""
        self.batch = most, self.handler.subscription.batch_wait

    async def stop(self) -> None:
        """Start nothing more. Calls that still run go on unwatched: their messages are not acknowledged."""
        if self._looking is not None:
            self._looking.cancel()
        self._pauses.close()
        with self._lock:
            for work in self._open:
                work.withdraw()
        self._threads.stop()

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        self._lock = threading.Lock()  # a thread that is not there may hold the old one
        for work in self._open:
            work.withdraw()
        self._threads.halt()

    def _active(self) -> int:
        return sum(worker.active for worker in self._workers)

    def _wake(self, count: int) -> bool:
        """Let up to `count` more threads help; False when not even one can be started."""
        try:
            self._activate_some(count)
        except RuntimeError as error:
            # Work that is not started waits for the next look.
            if not self._reported:
                self._observe(LoopFailed(f"handler {self.handler.name}", str(error)))
            self._reported = True
            return False
        self._reported = False
        return True

    def _activate_some(self, count: int) -> None:
        for worker in self._workers:
            if count <= 0:
                return
            if not worker.active:
                self._activate(worker)
                count -= 1
        while count > 0 and len(self._workers) < self._most:
            worker = _Worker(None if self._journal is None else self._journal.note())
            self._workers.append(worker)
            self._activate(worker)
            count -= 1

    def _activate(self, worker: _Worker) -> None:
        worker.active, worker.item, worker.seen = True, None, None
        try:
            self._threads.run(lambda: self._drain(worker))
        except RuntimeError:
            worker.active = False
            raise

    def _look(self) -> None:
        """Let others help when a call takes its time."""
        self._looking = None
        if not self._may_start():
            for worker in self._workers:
                worker.seen = None
            return
        active = stuck = 0
        with self._lock:
            for worker in self._workers:
                if worker.active:
                    active += 1
                    stuck += worker.item is not None and worker.item is worker.seen
                    worker.seen = worker.item
            left = left_of(self._open, max(1, self._most - active))
        has_thread = self._wake(min(left, self._most - active)) if left and (stuck or not active) else True
        # When all are active there is nothing to decide: each goes on until no work is open.
        if not left or self._active() >= self._most:
            for worker in self._workers:
                worker.seen = None  # no look follows that would let go of a finished item
        else:
            self._looking = self._loop.call_later(_STUCK_AFTER if has_thread else _THREAD_RETRY, self._look)

    def _drain(self, worker: _Worker) -> None:
        """In a thread: until no work is open."""
        works = self._open
        while True:
            with self._lock:
                if not works or self._active() > self._most:
                    self._rests(worker)
                    return
                work, count = works[0], _CHUNK if works[0].is_endless else None
                if self._pauses.is_paused and work.startable:
                    if not self._can_probe:
                        self._rests(worker)
                        return
                    self._can_probe, count = False, 1
            if not self._run(worker, work, count):
                return
            with self._lock:
                if works and works[0] is work:
                    # The lock is ours: what becomes startable from now on hands an endless work over again.
                    if not work.startable:
                        works.popleft().is_queued = False
                    elif work.is_endless:
                        works.rotate(-1)

    def _rests(self, worker: _Worker) -> None:
        """In a thread, with the lock: it has nothing more to do."""
        if worker.note is not None:
            worker.note.clear()
        worker.item, worker.seen, worker.active = None, None, False

    def _run(self, worker: _Worker, work: Work, count: int | None) -> bool:
        """In a thread: call the handler for at most `count` items that no other thread takes; False: no loop."""
        pauses, call, single, append = self._pauses, self.call, self._single, work.finished.append
        items = work.items if worker.note is None else work.noted(worker.note)
        if work.is_alone and worker.note is not None:
            call = partial(self._call_alone, worker.note)
        try:
            for item in items if count is None else islice(items, count):
                worker.item = item
                try:
                    result = call(item)
                except BaseException as error:
                    self._judged.append((work, item, error, True))
                    self._collect_soon()
                    if pauses.is_paused:
                        break
                    continue
                if result is None and single:
                    append(item)
                    if not work.is_collected:
                        work.is_collected = True
                        self._finished.append(work)
                        self._collect_soon()
                else:
                    self._judged.append((work, item, result, False))
                    self._collect_soon()
                if pauses.is_paused:
                    break
        except RuntimeError:
            return False  # the loop is closed
        worker.item = None
        return True

    def _call_alone(self, note: Note, item: Any) -> object:
        """Nothing is noted down any more when the loop hears of it: it starts the next one, in another thread."""
        try:
            return self.call(item)
        finally:
            note.clear()

    def _collect_soon(self) -> None:
        if not self._collecting:
            self._collecting = True
            self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        """On the loop: what the threads have done since the last time."""
        self._collecting = False
        while self._finished:
            work = self._finished.popleft()
            work.is_collected = False
            items = work.finished
            count = len(items)
            work.completion.done_all(items[:count])
            del items[:count]
        while self._judged:
            work, item, result, raised = self._judged.popleft()
            work.completion.judge(item, result, raised)
