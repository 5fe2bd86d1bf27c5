"""Workers of one async handler: a set of coroutines that drain the same work.

A worker awaits the handler itself. As long as no call suspends, one worker runs through
everything and nothing is scheduled. When a call suspends, the loop goes on with `_spread`,
which wakes as many other workers as there are items left: so 64 slow calls overlap, and a
fast handler costs no task, future or lock per message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.journal import Journal, Note
from rocketapp.consumer.pausing import PausesOfHandler
from rocketapp.consumer.workers.work import Work, left_of
from rocketapp.state.pauses import Pauses
from rocketapp.tasks import Tasks

CHUNK = 32
"""Items that a worker takes before it looks at the clock."""

TURN = 0.005
"""Seconds that workers may keep the loop before they let other tasks run."""


class Hand:
    """What one worker works on."""

    __slots__ = ("item", "note", "task", "workers")

    def __init__(self, note: Note | None) -> None:
        self.item: Any = None
        self.task: asyncio.Task[None] | None = None
        self.note: Note | None = note
        self.workers: AsyncWorkers | None = None
        """Those that it is one of; None: it walks through mixed runs."""


class AsyncWorkers:
    """Up to `concurrency` calls of one async handler at once."""

    def __init__(self, handler: Handler, tasks: Tasks, pauses: Pauses, journal: Journal | None = None) -> None:
        """`journal`: where workers note down what they have in flight."""
        self._journal = journal
        self.pauses: PausesOfHandler = PausesOfHandler(handler, pauses, self._pauses_changed)
        subscription = handler.subscription
        self.handler = handler
        self._tasks = tasks
        self.call: Callable[[Any], Awaitable[object]] = handler.call
        self.batch: tuple[int, float] | None = (
            None if subscription.batch is None else (subscription.batch, subscription.batch_wait)
        )
        """Most messages of a batch and seconds to wait for them; None for a handler of single messages."""
        self._single = self.batch is None
        self._most, self._name = subscription.concurrency, handler.name
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Work] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._workers: list[Hand] = []
        self._spreading = False
        self._yielding = False
        self._turn_end = 0.0
        self._cancelled = False
        self._can_probe = False
        """Its topic is paused, and one message may start."""
        self._running: dict[asyncio.Task[None], None] = {}
        self.is_quick: bool = self._single
        """Nothing waits, and no call has suspended for long: its messages may be walked through beside others."""

    def __repr__(self) -> str:
        return f"<AsyncWorkers {self._name}: {len(self._workers)} workers, {len(self._idle)} idle>"

    @property
    def is_paused(self) -> bool:
        """Its topic is paused: what is handed over waits."""
        return self.pauses.is_paused

    def submit(self, work: Work) -> None:
        """Hand over work; it starts at the loop's next turn. An endless one may be handed over again at any time."""
        self.is_quick = False
        while self._ready and not self._ready[-1].left:
            self._ready.pop().is_queued = False  # withdrawn, perhaps while all workers are busy
        if not work.is_queued:
            work.is_queued = True
            self._ready.append(work)
        # One worker is enough as long as no call suspends; it is awake already when others are to be looked for.
        if not (self._spreading or self._yielding or self.pauses.is_paused):
            self._wake(1)
        self._ask_to_spread()

    def in_flight(self) -> list[Any]:
        """Per worker what it works on, or None."""
        return [hand.item for hand in self._workers]

    def resize(self, most: int) -> None:
        """At most this number of calls at once from now on; what runs beyond that ends, with what it has taken."""
        self._most = most
        self._end_idle()
        self._ask_to_spread()

    def _end_idle(self) -> None:
        surplus = len(self._workers) - self._most
        while self._idle and surplus > 0:
            waiter = self._idle.pop()
            if not waiter.done():
                waiter.set_result(None)  # it sees that it is one too many
                surplus -= 1

    def change_batch(self, most: int) -> None:
        """Another most of messages in a batch holds from now on."""
        self.batch = most, self.handler.subscription.batch_wait

    async def stop(self) -> None:
        """Cancel the running calls. A cancelled call is not a failed one: its message is not acknowledged."""
        self._cancelled = True
        self.pauses.close()
        for work in self._ready:
            work.withdraw()
        self._ready.clear()
        await self._tasks.end(list(self._running))

    async def cancel(self, is_mine: Callable[[Any], bool]) -> None:
        """Cancel the running calls for these items. They are judged as cancelled; another worker takes their place."""
        hands = [hand for hand in self._workers if hand.item is not None and is_mine(hand.item)]
        await self._tasks.end([hand.task for hand in hands if hand.task is not None], f"handler {self._name}")

    def halt(self) -> None:
        """In a forked child: start nothing more. The loop ends the child when the handler suspends or returns."""
        self._cancelled = True
        for work in self._ready:
            work.withdraw()

    def _wake(self, count: int) -> None:
        idle, workers = self._idle, self._workers
        while count > 0:
            if idle:
                waiter = idle.pop()
                if waiter.done():
                    continue
                waiter.set_result(None)
            elif len(workers) < self._most and not self._cancelled:
                hand = Hand(None if self._journal is None else self._journal.note())
                hand.task = self._tasks.start(self.go_on(hand), f"handler {self._name}")
                self._add(hand)
            else:
                return
            count -= 1

    def _add(self, hand: Hand) -> None:
        assert hand.task is not None
        hand.workers = self
        self._workers.append(hand)
        self._running[hand.task] = None
        hand.task.add_done_callback(self._running.pop)

    def adopt(self, hand: Hand) -> None:
        """The call of this handler that a walk through mixed runs has begun is one of ours: it has suspended."""
        self.is_quick = False
        self._add(hand)
        self._end_idle()

    def leave(self, hand: Hand) -> None:
        """This worker ends. Another one takes its place when there is work."""
        hand.workers = None
        self._workers.remove(hand)
        if hand.note is not None:
            hand.note.close()
        if self._ready and not self._cancelled:
            self._ask_to_spread()

    def _ask_to_spread(self) -> None:
        # A callback behind those of the workers just woken: it sees what they left because a call suspended.
        if not self._spreading:
            self._spreading = True
            self._loop.call_soon(self._spread)

    def _spread(self) -> None:
        self._spreading = False
        if self.pauses.is_paused:
            if left_of(self._ready, 1) and (self._can_probe or self.pauses.may_probe()):
                self._can_probe = True
                self._wake(1)
        elif self._ready and not self._yielding:
            free = len(self._idle) + self._most - len(self._workers)
            self._wake(left_of(self._ready, free))
        self.is_quick = self._single and not self._ready and all(hand.item is None for hand in self._workers)

    async def go_on(self, hand: Hand) -> None:
        """What one worker does, until there are too many of them."""
        try:
            while True:
                if not self._yielding:  # otherwise another worker lets the loop run, and goes on after that
                    await self._drain(hand)
                if hand.note is not None:
                    hand.note.clear()
                if len(self._workers) > self._most:
                    return
                if self._cancelled:
                    return  # the handler has swallowed the cancellation by which `stop` ends its worker
                waiter = self._loop.create_future()
                self._idle.append(waiter)
                await waiter
        finally:
            # A cancellation ends this worker: by its own handler, or by a loop that is being closed.
            self.leave(hand)

    async def _drain(self, hand: Hand) -> None:
        """Work until nothing is left to start."""
        ready, call, single, note, pauses = self._ready, self.call, self._single, hand.note, self.pauses
        now = self._loop.time
        self._turn_end = now() + TURN
        while ready and len(self._workers) <= self._most:
            work = ready[0]
            if pauses.is_paused and work.startable and not self._takes_probe():
                return
            done, judge = work.completion.done, work.completion.judge
            for item in islice(work.items if note is None else work.noted(note), 1 if pauses.is_paused else CHUNK):
                hand.item = item
                try:
                    result = await call(item)
                except BaseException as error:
                    failed(judge, item, error, self._loop, is_ours=self._cancelled)
                else:
                    if result is None and single:
                        done(item)
                    else:
                        judge(item, result, False)
                if pauses.is_paused:
                    break
            hand.item = None
            if ready and ready[0] is work:
                if not work.startable:
                    ready.popleft().is_queued = False
                elif work.is_endless:
                    ready.rotate(-1)
            if now() >= self._turn_end:
                await self._let_others_run()

    def _pauses_changed(self) -> None:
        self._can_probe = False
        self._ask_to_spread()

    def _takes_probe(self) -> bool:
        taken, self._can_probe = self._can_probe, False
        return taken

    async def _let_others_run(self) -> None:
        self._yielding = True
        try:
            await asyncio.sleep(0)
        finally:
            self._yielding = False
        self._turn_end = self._loop.time() + TURN
        # This worker may suspend next, so others are asked again behind it.
        self._ask_to_spread()


def failed(
    judge: Callable[[Any, object, bool], None],
    item: Any,
    error: BaseException,
    loop: asyncio.AbstractEventLoop,
    *,
    is_ours: bool,
) -> None:
    """See to what a call has raised; raises it again when it ends the worker. `is_ours`: we cancel what runs."""
    if isinstance(error, GeneratorExit) and not loop.is_running():
        raise error  # not the handler's: this coroutine is being closed
    is_cancelled = isinstance(error, asyncio.CancelledError)
    if is_cancelled and is_ours:
        raise error
    # We did not cancel it, so it is a failure: a handler may let a cancellation of its own escape.
    judge(item, error, True)
    task = asyncio.current_task() if is_cancelled else None
    if task is not None and task.cancelling():
        raise error
