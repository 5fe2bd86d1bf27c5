"""Workers of one sync handler: threads that drain the same work.

One thread is woken for new work, and drains it alone as long as its calls are quick: then
more threads would only fight for the interpreter. When a thread has been inside one call
for a millisecond, as many threads as there are items left join it: so a handler that waits
for a database has all of its threads busy within a few milliseconds.

Threads put what they finished beside the work and wake the loop once per burst. The loop
alone touches process queues.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any

from rocketapp.consumer.stats import HandlerStats
from rocketapp.consumer.workers.threads import Threads
from rocketapp.consumer.workers.work import Settle, Work
from rocketapp.model.event import LoopFailed, Observe

_LOOK = 0.001
"""Seconds between two looks at what the threads do, while some work is not started."""
_NO_THREAD = 0.1
"""Seconds until the system, which had no thread for us, is asked again."""


class _Slot:
    """What one thread has in hand."""

    __slots__ = ("active", "item", "seen")

    def __init__(self) -> None:
        self.active = False
        self.item: Any = None
        self.seen: Any = None
        """What it had in hand at the last look."""


class ThreadWorkers:
    """Up to `concurrency` calls of one sync handler at once."""

    def __init__(self, stats: HandlerStats, settle: Settle, observe: Observe) -> None:
        subscription = stats.handler.subscription
        self.stats = stats
        self._settle, self._call, self._observe = settle, stats.handler.call, observe
        self.batch = None if subscription.batch is None else (subscription.batch, subscription.batch_wait)
        """Most messages of a batch and seconds to wait for them; None for a handler of single messages."""
        self._single = self.batch is None
        self._most = subscription.concurrency
        self._loop = asyncio.get_running_loop()
        self._threads = Threads(f"handler {stats.name}", self._most)
        self._lock = threading.Lock()
        """Guards the list of open works, and who is active: taken once per work."""
        self._open: deque[Work] = deque()
        self._slots: list[_Slot] = []
        self._finished: deque[Work] = deque()
        self._special: deque[tuple[Work, Any, object, bool]] = deque()
        self._woken = False
        self._looking: asyncio.TimerHandle | None = None
        self._told = False
        """That the system has no thread for us."""

    def __repr__(self) -> str:
        return f"<ThreadWorkers {self.stats.name}: {self._active()} of {self._most} active>"

    def submit(self, work: Work) -> None:
        """Hand over work."""
        with self._lock:
            self._open.append(work)
            asleep = not self._active()
        has_thread = not asleep or self._wake(1)
        if self._looking is None:
            self._looking = self._loop.call_later(_LOOK if has_thread else _NO_THREAD, self._look)

    def in_hand(self) -> list[Any]:
        """Per thread what it works on, or None."""
        return [slot.item if slot.active else None for slot in self._slots]

    async def stop(self) -> None:
        """Start nothing more. Calls that still run are left to themselves, and count for nothing."""
        if self._looking is not None:
            self._looking.cancel()
        with self._lock:
            for work in self._open:
                work.withdraw()
        self._threads.stop()

    def _active(self) -> int:
        return sum(slot.active for slot in self._slots)

    def _wake(self, count: int) -> bool:
        """Have so many more threads help; False when not even one can be started."""
        try:
            self._activate_some(count)
        except RuntimeError as error:
            # What is not started waits for the next look.
            if not self._told:
                self._observe(LoopFailed(f"handler {self.stats.name}", str(error)))
            self._told = True
            return False
        self._told = False
        return True

    def _activate_some(self, count: int) -> None:
        for slot in self._slots:
            if count <= 0:
                return
            if not slot.active:
                self._activate(slot)
                count -= 1
        while count > 0 and len(self._slots) < self._most:
            slot = _Slot()
            self._slots.append(slot)
            self._activate(slot)
            count -= 1

    def _activate(self, slot: _Slot) -> None:
        slot.active, slot.item, slot.seen = True, None, None
        try:
            self._threads.run(lambda: self._drain(slot))
        except RuntimeError:
            slot.active = False
            raise

    def _look(self) -> None:
        """Let others help when a call takes its time."""
        self._looking = None
        with self._lock:
            left = sum(work.left for work in self._open)
        if not left:
            return
        active = stuck = 0
        for slot in self._slots:
            if slot.active:
                active += 1
                stuck += slot.item is not None and slot.item is slot.seen
                slot.seen = slot.item
        has_thread = self._wake(min(left, self._most - active)) if stuck or not active else True
        # When all are active there is nothing to decide: each goes on until no work is open.
        if self._active() < self._most:
            self._looking = self._loop.call_later(_LOOK if has_thread else _NO_THREAD, self._look)

    def _drain(self, slot: _Slot) -> None:
        """In a thread: until no work is open."""
        works = self._open
        while True:
            with self._lock:
                if not works:
                    slot.item, slot.active = None, False
                    return
                work = works[0]
            if not self._run(slot, work):
                return
            with self._lock:
                if works and works[0] is work:
                    works.popleft()

    def _run(self, slot: _Slot, work: Work) -> bool:
        """In a thread: call the handler for every item that no other thread takes."""
        call, single, append = self._call, self._single, work.finished.append
        try:
            for item in work.items:
                slot.item = item
                try:
                    result = call(item)
                except BaseException as error:
                    self._special.append((work, item, error, True))
                    self._tell()
                    continue
                if result is None and single:
                    append(item)
                    if not work.told:
                        work.told = True
                        self._finished.append(work)
                        self._tell()
                else:
                    self._special.append((work, item, result, False))
                    self._tell()
        except RuntimeError:
            return False  # the loop is closed: nobody is left to tell
        slot.item = None
        return True

    def _tell(self) -> None:
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        """On the loop: what the threads have done since the last time."""
        self._woken = False
        while self._finished:
            work = self._finished.popleft()
            work.told = False
            items = work.finished
            count = len(items)
            work.process_queue.finish_all(items[:count])
            del items[:count]
            self.stats.handled += count
        while self._special:
            work, item, result, raised = self._special.popleft()
            self._settle(self.stats, work.process_queue, item, result, raised)
