"""Workers of async handlers: coroutines that walk through runs.

A worker awaits handlers itself. As long as no call suspends, one worker does everything and nothing is scheduled. When
a call suspends, the loop runs `_spread`, which wakes as many workers as messages may start: so 64 slow calls overlap,
and a fast handler costs no task, future or lock per message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import repeat
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.run import Ready, Run, RunWorker, clock_of
from rocketapp.model.current_call import CURRENT_CALL
from rocketapp.tasks import Tasks

_TURN = 0.005
"""Seconds that workers may keep the loop before they let other tasks run."""
LONGEST_ROUND = 1.0
"""Seconds after which a worker gives a run in order back, so that other queues have its call: of slow calls, 32 would
keep them waiting for minutes. Java's client lets a queue run on for 60 s."""


class _LoopWorker(RunWorker):
    """A coroutine and its present run."""

    __slots__ = ("is_left", "task")

    def __init__(self, journal: Journal | None) -> None:
        super().__init__(journal)
        self.task: asyncio.Task[None]
        self.is_left: bool = False
        """It was cancelled; what its handler does after that is not waited for."""


class LoopWorkers:
    """The workers of all async handlers of one group."""

    def __init__(self, tasks: Tasks, journal: Journal | None) -> None:
        """`journal`: where workers note down what they have in flight."""
        self._tasks, self._journal = tasks, journal
        self._loop = asyncio.get_running_loop()
        self._now = clock_of(self._loop)
        self._ready = Ready(self._leave, lambda run: run.split())
        self._idle: list[asyncio.Future[None]] = []
        self._workers: dict[_LoopWorker, None] = {}
        self._spreading = self._yielding = self._is_stopped = False
        self._turn_end = 0.0

    def __repr__(self) -> str:
        return f"<LoopWorkers: {len(self._workers)} workers, {len(self._idle)} idle, {self._ready}>"

    def submit(self, caller: Caller, run: Run) -> None:
        """Process this run from the loop's next turn on; its first message is for this handler."""
        if self._is_stopped:
            return
        self._ready.add(caller, run)
        # One worker is enough as long as no call suspends; it is awake already when others are to be looked for.
        if not (self._spreading or self._yielding):
            self._wake(1)
        self._ask_to_spread()

    def enter(self, caller: Caller, *, by_worker: bool = False) -> None:
        """The handler may be called again. `by_worker`: called by a worker, which looks for the next run itself."""
        self._ready.enter(caller)
        if not by_worker:
            self._ask_to_spread()

    def _leave(self, run: Run) -> None:
        """Nothing of this run may start here now."""
        if run.items and not run.starts_nothing:
            run.submit()
        elif run.items or not run.is_shared:  # otherwise who took the last one gives it back
            run.returned()

    def in_flight(self) -> list[tuple[Handler, Any]]:
        """Every running call: its handler and its item."""
        return [(worker.taker.handler, worker.item) for worker in self._workers if worker.item]

    async def cancel(self, is_mine: Callable[[Run], bool]) -> None:
        """Cancel the running calls of these runs; their workers are replaced."""
        by_handler: dict[str, list[asyncio.Task[None]]] = {}
        for worker in self._workers:
            if worker.item is not None and worker.run is not None and not worker.is_left and is_mine(worker.run):
                worker.is_left = True
                by_handler.setdefault(worker.taker.handler.name, []).append(worker.task)
        ends = [self._tasks.end(tasks, f"handler {name}") for name, tasks in by_handler.items()]
        await asyncio.gather(*ends)

    async def stop(self) -> None:
        """Cancel the running calls. A cancelled call is not a failed one: its message is not acknowledged."""
        self.halt()
        await self.cancel(lambda _: True)

    def halt(self) -> None:
        """In a forked child: start nothing more. The loop ends the child when the handler suspends or returns."""
        self._is_stopped = True
        self._ready.clear(self._workers)

    def _wake(self, count: int) -> None:
        while count > 0 and not self._is_stopped:
            if self._idle:
                waiter = self._idle.pop()
                if waiter.done():
                    continue
                waiter.set_result(None)
            else:
                worker = _LoopWorker(self._journal)
                self._workers[worker] = None
                worker.task = self._tasks.start(self._work(worker), "handlers")
            count -= 1

    def _ask_to_spread(self) -> None:
        # A callback behind those of the workers just woken: it sees what they left because a call suspended.
        if not self._spreading:
            self._spreading = True
            self._loop.call_soon(self._spread)

    def _spread(self) -> None:
        self._spreading = False
        if self._ready and not self._yielding:
            self._wake(self._ready.startable())

    async def _work(self, worker: _LoopWorker) -> None:
        CURRENT_CALL.set(worker.at_work)
        try:
            while True:
                if not self._yielding:  # otherwise another worker lets the loop run, and goes on after that
                    await self._walk(worker)
                if worker.note is not None:
                    worker.note.clear()
                if self._is_stopped:
                    return  # the handler has swallowed the cancellation by which `stop` ends its worker
                waiter = self._loop.create_future()
                self._idle.append(waiter)
                await waiter
        except Exception as error:
            if (run := worker.run) is not None:
                run.walkers = run.walkers - 1 if run.is_shared else 0  # it may have been given back before
                run.failed(error)
            raise
        finally:
            # A cancellation ends this worker: by its own handler, or by a loop that is being closed.
            del self._workers[worker]
            if worker.note is not None:
                worker.note.close()
            if self._ready and not self._is_stopped:
                self._ask_to_spread()

    async def _walk(self, worker: _LoopWorker) -> None:
        """Process runs until nothing is left to start."""
        is_cancelling, now = worker.task.cancelling, self._now
        self._turn_end = now() + _TURN
        while (found := self._ready.next()) is not None:
            run, _ = worker.run, worker.taker = found
            try:
                is_back = await self._call_messages(worker, run)
            finally:
                worker.item = None
                worker.taker.caller.release()
            worker.run = None
            if not is_back:
                run.walkers -= 1
                run.returned()
            if is_cancelling():
                # A handler has cancelled the task in which it ran: that must end no call of another one.
                raise asyncio.CancelledError
            if now() >= self._turn_end:
                await self._let_others_run()

    async def _call_messages(self, worker: _LoopWorker, run: Run) -> bool:  # noqa: PLR0912 - a function for each message takes longer
        """Call the handler for some messages of the run, as long as the lease is certain.

        True: the run is given back with the end of the last call.
        """
        now, note, taker, lease, is_back = self._now, worker.note, worker.taker, run.lease, not run.is_shared
        caller, call, done, is_plain = taker.parts
        items, popleft, check = run.items, run.items.popleft, run.check
        each = run.record_of if run.notes_each and taker.handler.runs_here else None
        most, at = run.most if note is None else run.note(note, run.most), now()
        until, is_watched, goes_on, raised = at + LONGEST_ROUND, run.is_watched, at < lease.certain_until, False
        for _ in repeat(None, most if goes_on else 0):
            try:
                one, item = popleft()
            except IndexError:
                break
            if one is not taker:
                if worker.task.cancelling() or not one.caller.take_after(caller):
                    items.appendleft((one, item))
                    break
                worker.taker = taker = one
                caller, call, done, is_plain = taker.parts
            if not caller.is_open and not caller.may_start(item):
                items.appendleft((taker, item))
                break
            if is_watched:
                if check is not None and (item := caller.checked(check, item)) is None:
                    continue
                run.item = item
                if each is not None and note is not None:
                    note.write_next(each(item.offset, item.offset))
            worker.item = item
            try:
                result = await call(item)
            except BaseException as error:
                self._raise_if_ours(worker, error)
                result, raised = error, True
            if is_watched:
                # One look at the clock says whether this one may be acknowledged and whether the next one may start.
                at = now()
                if at >= until or at >= lease.certain_until or run.starts_nothing:
                    goes_on = is_plain = False  # it is up to the run what becomes of it
            if result is None and is_plain:
                done(item)
                continue
            run.walkers -= is_back
            run.ended(taker, item, result, raised)
            result, raised = None, False  # an exception knows this frame by its traceback
            if is_back or not goes_on or worker.task.cancelling():
                return is_back
        return False

    def _raise_if_ours(self, worker: _LoopWorker, error: BaseException) -> None:
        """Raise a cancellation again that was not the handler's: it ends the worker."""
        if isinstance(error, GeneratorExit) and asyncio.current_task(self._loop) is not worker.task:
            raise error  # not the handler's: this coroutine is being closed
        # Otherwise it is a failure: a handler may let a cancellation of its own escape.
        if isinstance(error, asyncio.CancelledError) and self._is_stopped:
            raise error

    async def _let_others_run(self) -> None:
        self._yielding = True
        try:
            await asyncio.sleep(0)
        finally:
            self._yielding = False
        self._turn_end = self._loop.time() + _TURN
        # This worker may suspend next, so others are asked again behind it.
        self._ask_to_spread()
