"""Workers of sync handlers: threads that walk through runs.

One thread is woken for new runs and walks through them alone as long as its calls are quick: more threads would only
compete for the interpreter. When a call takes longer than a millisecond, as many threads as messages are left join: so
a handler that waits for a database has all of its threads busy within a few milliseconds.

Threads only note what they finished; the loop acknowledges: at its next look, a millisecond later, or woken at once for
what waits for it: a failure, an answer, the next message in order. Waking the loop for each burst would cost a fifth of
the processor's time.

Threads are daemons, not those of an executor of the standard library: the interpreter joins those when it ends, so that
a handler that hangs would keep the process. A thread cannot be stopped: a drain that is cut leaves it behind.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.on_loop import LONGEST_ROUND
from rocketapp.consumer.workers.run import MESSAGES_PER_ROUND, Pair, Ready, Run, RunWorker, Taker, clock_of
from rocketapp.model.current_call import CURRENT_CALL
from rocketapp.model.event import LoopFailed, Observe

_LONG = 8
"""Times as many messages of a run as a worker of the loop takes: to give it back takes a turn of the loop."""
_TURN = 0.01
"""Seconds after which a thread gives a run back, so that other queues and handlers get its place."""
_STUCK_AFTER = 0.001
"""Seconds that a thread may be inside one call before other threads join it."""
_THREAD_RETRY = 0.1
"""Seconds until the system is asked again for a thread that it did not have."""


class Threads:
    """A pool of threads. Call `add` for each job that may run at the same time."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_halted = False
        self._threads: list[threading.Thread] = []

    def __repr__(self) -> str:
        return f"<Threads: {len(self._threads)}>"

    def add(self) -> None:
        """Allow one more job at the same time. Raises RuntimeError when the system has no thread for it."""
        thread = threading.Thread(target=self._main, name=f"handlers {len(self._threads)}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def run(self, job: Callable[[], None]) -> None:
        """Run a job in the next free thread. The job itself reports to the loop."""
        self._jobs.put(job)

    def stop(self) -> None:
        """Each thread ends after its present job."""
        for _ in self._threads:
            self._jobs.put(None)

    def halt(self) -> None:
        """In a forked child: the thread that forked is the only one, and ends the child when its job has ended."""
        self._is_halted = True

    def _main(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            finally:
                if self._is_halted:
                    os._exit(0)


MakeThreads = Callable[[], Threads]
"""Makes the threads of the sync handlers of one group."""


class _ThreadWorker(RunWorker):
    """A thread and its present run."""

    __slots__ = ("active", "finished", "seen")

    def __init__(self, journal: Journal | None) -> None:
        super().__init__(journal)
        self.active: bool = False
        self.seen: Any = None
        """What it worked on at the last look."""
        self.finished: deque[tuple[Run, list[Pair]]] = deque()
        """By run what the loop has not acknowledged; the thread adds to the last run's list."""


class ThreadWorkers:
    """The workers of all sync handlers of one group."""

    def __init__(self, threads: Threads, observe: Observe, journal: Journal | None) -> None:
        """`journal`: where threads note down what they have in flight."""
        self._threads, self._observe, self._journal = threads, observe, journal
        self._loop = asyncio.get_running_loop()
        self._now = clock_of(self._loop)
        self._lock = threading.Lock()
        """Guards the runs, who has their turn, and who is active: a thread takes it once per stint."""
        self._ready = Ready(self._leave, self._leave)
        self._workers: list[_ThreadWorker] = []
        self._reports: deque[tuple[Run, bool, Callable[[], None]]] = deque()
        """What the loop is to be told of runs, and whether a thread gives the run back with it."""
        self._is_woken = self._is_stopped = False
        self._will_collect = False
        """The loop collects what threads have finished, at once or at its next look."""
        self._looking: asyncio.TimerHandle | None = None
        self._reported = False
        """It was reported that the system has no thread for us."""

    def __repr__(self) -> str:
        active = sum(worker.active for worker in self._workers)
        return f"<ThreadWorkers: {active} of {len(self._workers)} active, {self._ready}>"

    def submit(self, caller: Caller, run: Run) -> None:
        """Process this run, whose first message is for this handler."""
        if self._is_stopped:
            return
        with self._lock:
            self._ready.add(caller, run)
            asleep = not any(worker.active for worker in self._workers)
        # Full pulls that come fast wait for the next look: the loop, and a thread that is woken for each of them,
        # take the interpreter from one another. A line does not: its next messages wait for those that it has here.
        is_full = (run.is_shared or run.is_of_many) and len(run.items) >= MESSAGES_PER_ROUND
        has_thread = not asleep or (is_full and self._looking is not None) or self._wake(1)
        self._look_in(_STUCK_AFTER if has_thread else _THREAD_RETRY)

    def enter(self, caller: Caller, *, by_worker: bool = False) -> None:
        """The handler may be called again. `by_worker`: called by a thread, which looks for the next run itself."""
        with self._lock:
            self._ready.enter(caller)
        if not by_worker and self._looking is None:  # otherwise the next look is soon enough
            self._on_loop(self._look_in, 0.0)

    def in_flight(self) -> list[tuple[Handler, Any]]:
        """Every running call: its handler and its item."""
        running = [(worker, worker.item) for worker in self._workers if worker.active]
        return [(worker.taker.handler, item) for worker, item in running if item]

    def stop(self) -> None:
        """Start nothing more. Calls that still run go on unwatched: their messages are not acknowledged."""
        self._is_stopped = True
        if self._looking is not None:
            self._looking.cancel()
        with self._lock:
            self._ready.clear(self._workers)
        self._threads.stop()

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        self._is_stopped = True
        self._lock = threading.Lock()  # a thread that is not there may have the old one
        self._ready.clear(self._workers)
        self._threads.halt()

    def _on_loop(self, call: Callable[..., object], *arguments: object) -> None:
        """On the loop, soon. Raises RuntimeError when that is closed, which ends the thread."""
        self._loop.call_soon_threadsafe(call, *arguments)

    # Who helps.

    def _look_in(self, seconds: float) -> None:
        if self._looking is None and not self._is_stopped:
            self._looking = self._loop.call_later(seconds, self._look)
            self._will_collect = True

    def _look(self) -> None:
        self._looking = None
        try:
            self.collect()
        finally:
            self._let_help()

    def _let_help(self) -> None:
        """Let more threads help when a call takes long."""
        active, stuck = 0, list[_ThreadWorker]()
        with self._lock:
            for worker in self._workers:
                if worker.active:
                    active += 1
                    if worker.item is not None and worker.item is worker.seen:
                        stuck.append(worker)
                    worker.seen = worker.item
            left = self._ready.startable()
        for worker in stuck:
            if (run := worker.run) is not None and run.is_of_many and not run.is_shared:
                run.split()
        if not active and left:
            self._look_in(_STUCK_AFTER if self._wake(1) else _THREAD_RETRY)
        elif len(stuck) == active and left:
            self._look_in(_STUCK_AFTER if self._wake(left) else _THREAD_RETRY)
        elif active and (
            left or any(each.run is not None and each.run.is_of_many and each.run.items for each in self._workers)
        ):
            self._look_in(_STUCK_AFTER)

    def _wake(self, count: int) -> bool:
        """Let up to `count` more threads help; False when the system does not have them."""
        for worker in [worker for worker in self._workers if not worker.active][:count]:
            self._activate(worker)
            count -= 1
        try:
            for _ in range(count):
                self._threads.add()
                self._workers.append(_ThreadWorker(self._journal))
                self._activate(self._workers[-1])
        except RuntimeError as error:
            # What is not started waits for the next look.
            if not self._reported:
                self._observe(LoopFailed("handlers", str(error)))
            self._reported = True
            return False
        self._reported = False
        return True

    def _activate(self, worker: _ThreadWorker) -> None:
        worker.active, worker.item, worker.seen = True, None, None
        self._threads.run(partial(self._walk, worker))

    # In a thread.

    def _walk(self, worker: _ThreadWorker) -> None:
        """Process runs until nothing is left to start."""
        CURRENT_CALL.set(worker.at_work)
        try:
            while (run := self._next_run(worker)) is not None:
                if run.is_shared and self._loop.time() >= run.lease.certain_until:
                    run.starts_nothing = True  # otherwise threads take it again and again, until the loop sees to it
                if not self._call_messages(worker, run):
                    self._reports.append((run, True, run.returned))
                worker.item = None
                # Nothing waits for what starts in any order, and has started.
                self._collect_soon(at_once=not (run.is_shared or (run.is_of_many and not run.items)))
        except RuntimeError:
            return  # the loop is closed

    def _next_run(self, worker: _ThreadWorker) -> Run | None:
        """Release the present call, and take a run with a free call; None when there is none."""
        with self._lock:
            if worker.run is not None:
                worker.taker.caller.give_back()
                self._ready.enter(worker.taker.caller)
            if (found := self._ready.next()) is not None:
                worker.run, worker.taker = found
                return found[0]
            if worker.note is not None:
                worker.note.clear()
            worker.run = worker.seen = None
            worker.active = False
        return None

    def _leave(self, run: Run) -> None:
        """In a thread or on the loop, with the lock: nothing of this run may start in a thread now."""
        if run.items or not run.is_shared:
            self._reports.append((run, False, partial(self._left, run)))
            self._collect_soon(at_once=True)

    def _ended(self, worker: _ThreadWorker, run: Run, item: Any, result: object, *, raised: bool) -> bool:
        """Report a call that did not just return None. Returns whether the run is given back with it."""
        if run.in_turn is not None and worker.note is not None:
            # The loop starts the next one when it hears of the end of this one, in another thread.
            worker.note.clear()
        self._reports.append((run, not run.is_shared, partial(run.ended, worker.taker, item, result, raised)))
        self._collect_soon(at_once=result is not None or not run.is_shared)
        return not run.is_shared

    def _call_messages(self, worker: _ThreadWorker, run: Run) -> bool:  # noqa: PLR0912 - a function for each takes longer
        """Call the handler for some messages of the run. True: the run is given back with the end of the last call."""
        items, check, lease, now, note = run.items, run.check, run.lease, self._now, worker.note
        popleft, each = items.popleft, run.record_of if run.notes_each and note is not None else None
        is_watched, is_of_one, goes_on, raised = run.is_watched, run.is_shared, True, False
        most = run.most * _LONG if run.most > 1 and (is_watched or not is_of_one) else run.most
        most = most if note is None else run.note(note, most)
        append, at, taker = self._finished(worker, run).append, now(), worker.taker
        turn_end, until = at + _TURN, at + LONGEST_ROUND
        caller, call, _, is_plain = taker.parts
        if at >= lease.certain_until or run.starts_nothing:
            return False
        with suppress(IndexError):  # nothing is left: other threads take from it too, and the loop may give it up
            for left in range(most - 1, -1, -1):
                if not is_of_one and (one := items[0][0]) is not taker:
                    if not one.caller.take_after(caller):
                        return False
                    worker.taker = taker = one
                    caller, call, _, is_plain = taker.parts
                pair = popleft() if caller.is_open else _next(items, taker)
                item = pair[1]
                if is_watched:
                    if check is not None and (item := caller.checked(check, item)) is None:
                        continue
                    run.item = item
                    if each is not None and note is not None:
                        note.write_next(each(item.offset, item.offset))
                worker.item = item
                try:
                    result = call(item)
                except BaseException as error:
                    result, raised = error, True
                if is_watched:
                    at = now()
                    is_late = (
                        at >= until or at >= lease.certain_until or (not left % MESSAGES_PER_ROUND and at >= turn_end)
                    )
                    if is_late or run.starts_nothing or run.in_turn is not None:
                        goes_on = is_plain = False  # it is up to the run what becomes of it
                if result is None and is_plain:
                    append(pair)
                    if not self._will_collect:
                        self._collect_soon()
                elif self._ended(worker, run, item, result, raised=raised) or not goes_on:
                    return not run.is_shared
                else:
                    raised = False
        return False

    def _finished(self, worker: _ThreadWorker, run: Run) -> list[Pair]:
        """The list in which this worker notes finished messages of this run."""
        finished = worker.finished
        if not finished or finished[-1][0] is not run:
            finished.append((run, []))
        return finished[-1][1]

    def _collect_soon(self, *, at_once: bool = False) -> None:
        """Wake the loop, unless it looks soon anyway or was woken already."""
        if not (self._is_woken if at_once else self._will_collect):
            self._is_woken = self._will_collect = True
            self._on_loop(self.collect)

    # On the loop.

    def collect(self) -> None:
        """Process what threads have finished since the last time."""
        self._is_woken, self._will_collect = False, self._looking is not None
        count = len(self._reports)  # before: what threads put down from now on is not acknowledged yet
        for worker in self._workers:
            if worker.finished:
                self._acknowledge(worker)
        for _ in range(count):
            run, is_back, report = self._reports.popleft()
            if is_back:
                with self._lock:
                    run.walkers -= 1
            try:
                report()
            except Exception as error:
                run.failed(error)
                raise

    def _left(self, run: Run) -> None:
        """Nothing of this run may start in a thread now."""
        if not run.items or run.starts_nothing:
            run.returned()
        elif run.items[0][0].caller.workers is not self or not run.is_of_many:
            run.submit()
        else:
            run.split()

    def _acknowledge(self, worker: _ThreadWorker) -> None:
        finished = worker.finished
        while finished:
            is_last = len(finished) == 1  # the thread may add to it
            run, pairs = finished[0]
            if count := len(pairs):
                run.acknowledge(pairs[:count])
                del pairs[:count]
            if is_last and worker.active:
                return
            if not pairs:
                finished.popleft()


def _next(items: deque[Pair], taker: Taker) -> Pair:
    """Take the first message. Raises IndexError when it may not start now, or another thread took it."""
    caller, first = taker.caller, items[0][1]
    if not caller.may_start(first):
        raise IndexError
    try:
        return items.popleft()
    except IndexError:
        caller.not_started(first)
        raise
