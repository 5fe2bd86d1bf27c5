"""Calls of orderly and polled handlers: one item of a queue after the other, on the loop or in a thread.

A run goes through the items of one queue, each with its taker, and acknowledges every message whose call returned None.
It may pass from handler to handler: each call needs a free call of its own handler. A run stops at the first item that
needs a judgement, and as soon as its permit is withheld or its lease is over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from rocketapp.consumer.handler import Handler, Tokens
from rocketapp.consumer.workers.free_calls import FreeCalls
from rocketapp.consumer.workers.threads import ThreadPool
from rocketapp.consumer.workers.work import Acknowledge
from rocketapp.state.lease import Lease
from rocketapp.tasks import forget_cancellation
from rocketapp.wire.record import Message

RUN = 32
"""Most single items of one run on the loop, and finished items after which a thread wakes the loop."""
THREAD_RUN = 256
"""Most single items of one run in a thread: going there and back costs as much as many calls of a quick handler."""
_TURN = 0.01
"""Seconds after which a run in a thread ends early, so that other queues get its place."""
_LONGEST_TURN = 1.0
"""Seconds after which any run ends early: of slow calls, 32 would keep other queues waiting for minutes. Java's client
lets a queue run on for 60 s."""
_FIRST_COLLECT, _LONGEST_COLLECT = 0.002, 0.25
"""Seconds until the loop first collects what a thread has finished, and the longest time between later collections."""
_SHORTEST_WAIT, _LONGEST_SLEEP = 0.02, 0.1
"""Seconds that tokens gather before messages start again, and after which a queue without a token looks whether it is
to end."""


class Permit:
    """What one delivery allows its runs, and what they work on."""

    __slots__ = ("abandoned", "item", "lease", "taker", "withheld")

    def __init__(self, lease: Lease) -> None:
        self.lease: Lease = lease
        """No item starts after it is over."""
        self.withheld: bool = False
        """No further item may start."""
        self.abandoned: bool = False
        """The running call was cancelled by us."""
        self.taker: SerialTaker | None = None
        """Whose free call the run has: that of the first item is taken before the run, and the last is given back
        after it."""
        self.item: Any = None
        """What the handler works on."""


class Stopped(NamedTuple):
    """Why a run stopped before the last item."""

    item: Any
    """The item that needs a judgement; None when no item was started."""
    result: object = None
    """What the handler returned or raised."""
    raised: bool = False


NOT_STARTED = Stopped(None)
"""The run stopped between two items: the permit was withheld, its lease was over, there was no free call or no token,
or others shall have their turn."""
_DRY = Stopped(None)
"""There was no token."""


class SerialExecutor:
    """How one orderly or polled handler is called, and by how many queues at once."""

    def __init__(self, handler: Handler, threads: ThreadPool | None) -> None:
        """`threads`: those of sync handlers; None: it is called on the loop."""
        self.handler: Handler = handler
        self.batch: int | None = handler.subscription.batch
        """Most messages of a batch; None for a handler of single messages."""
        self.threads: ThreadPool | None = threads
        self.most: int = RUN if threads is None else THREAD_RUN
        """Most single items of one run."""
        self.free_calls: FreeCalls = FreeCalls(handler.subscription.concurrency)
        """Limits how many queues call the handler at once."""
        self.call: Callable[[Any], Any] = handler.call
        self.tokens: Tokens | None = handler.tokens
        self._now = asyncio.get_running_loop().time

    def __repr__(self) -> str:
        return f"<SerialExecutor {self.handler.name}: {self.free_calls!r}>"

    def change_rate(self, rate: float) -> None:
        """Start this many messages a second from now on."""
        if self.tokens is not None:
            self.tokens.change(rate, self._now())

    def has_token(self, item: Any) -> bool:
        """Take a token for each message, if there is one for the first."""
        if self.tokens is None:
            return True
        if not self.tokens.take(self, self._now()):
            return False
        if not isinstance(item, Message):
            self.tokens.spend(len(item) - 1)
        return True

    async def token(self) -> None:
        """Wait until a message may start, but no longer than a moment."""
        if self.tokens is not None:
            await asyncio.sleep(min(max(self.tokens.wait(self._now()), _SHORTEST_WAIT), _LONGEST_SLEEP))


class SerialTaker:
    """One handler as the items of one queue meet it."""

    __slots__ = (
        "call",
        "done",
        "done_all",
        "executor",
        "free_calls",
        "give_back",
        "handler",
        "is_plain",
        "is_rated",
        "runs_with",
        "take",
    )

    def __init__(self, executor: SerialExecutor, completion: Acknowledge) -> None:
        self.executor: SerialExecutor = executor
        self.handler: Handler = executor.handler
        self.free_calls: FreeCalls = executor.free_calls
        self.call: Callable[[Any], Any] = executor.call
        self.done: Callable[[Any], None] = completion.done
        self.done_all: Callable[[Any], None] = completion.done_all
        self.is_plain: bool = self.handler.subscription.batch is None and self.handler.decisions is None
        """A call that returned None is done, without a judgement."""
        self.is_rated: bool = executor.tokens is not None

        self.take: Callable[[], bool] = executor.free_calls.take
        self.give_back: Callable[[], None] = executor.free_calls.release
        goes_along = executor.batch is None and self.handler.runs_here
        self.runs_with: object = (executor.threads or _ON_LOOP) if goes_along else self
        """A run passes only between takers for which it is the same."""


_ON_LOOP = "on the loop"
Items = deque[tuple[SerialTaker, Any]]
"""Items of one queue in their order."""


async def run(items: Items, most: int, permit: Permit) -> Stopped | None:
    """Call for at most `most` items from the front; None after the last.

    NOT_STARTED asks for another run. The lease is compared with the clock after each call: an item that ends when the
    lease is over needs a judgement.
    """
    taker = permit.taker
    assert taker is not None, "its free call is taken"
    if taker.executor.threads is None:
        stopped = await _on_loop(items, most, permit)
    else:
        in_thread = _ThreadRun(items, most, permit)
        try:
            taker.executor.threads.run(in_thread.work)
            await in_thread.over
        except asyncio.CancelledError:
            in_thread.leave()
            raise
        finally:
            # Also when this run is cancelled: what was finished before is acknowledged.
            in_thread.close()
        stopped = in_thread.stopped
    if stopped is not _DRY:
        return stopped
    await items[0][0].executor.token()
    return NOT_STARTED


async def _on_loop(items: Items, most: int, permit: Permit) -> Stopped | None:
    loop, lease, current = asyncio.get_running_loop(), permit.lease, items[0][0]
    now, kind = loop.time, current.runs_with
    if permit.withheld or (at := now()) >= lease.certain_until:
        return NOT_STARTED
    until, popleft = at + _LONGEST_TURN, items.popleft
    call, done, is_plain, is_rated = current.call, current.done, current.is_plain, current.is_rated
    while items and most:
        if items[0][0] is not current:
            taker = items[0][0]
            if taker.runs_with is not kind or not taker.take():
                return NOT_STARTED
            current.give_back()
            permit.taker = current = taker
            call, done, is_plain, is_rated = taker.call, taker.done, taker.is_plain, taker.is_rated
        if is_rated and not current.executor.has_token(items[0][1]):
            return _DRY
        item = permit.item = popleft()[1]
        most -= 1
        raised = False
        try:
            result = await call(item)
        except BaseException as error:
            result, raised = _failure(permit, error, loop), True
        permit.item = None
        # One look at the clock says whether this item may be acknowledged and whether the next one may start.
        at = now()
        if result is not None or not is_plain or permit.withheld or at >= lease.certain_until:
            return Stopped(item, result, raised)
        done(item)
        if at >= until:
            return NOT_STARTED
    return None


def _failure(permit: Permit, error: BaseException, loop: asyncio.AbstractEventLoop) -> BaseException:
    """The handler's own failure; raises when we ended the call."""
    if isinstance(error, GeneratorExit) and not loop.is_running():
        raise error  # this coroutine is being closed
    if isinstance(error, asyncio.CancelledError):
        if permit.abandoned:
            permit.item = None
            raise error
        forget_cancellation()
    return error


class _ThreadRun:
    """Items that one thread works on, one after the other."""

    def __init__(self, items: Items, most: int, permit: Permit) -> None:
        self._items, self._most, self._permit = items, most, permit
        self._loop = asyncio.get_running_loop()
        self._finished: deque[tuple[SerialTaker, list[Any]]] = deque()
        """Messages that the loop has not acknowledged, by their taker where that changes."""
        self.over: asyncio.Future[None] = self._loop.create_future()
        self.stopped: Stopped | None = None
        """Valid once `over` is done."""
        self._is_waking = self._is_closed = False
        self._current: SerialTaker = items[0][0]
        """Whose free call the thread has."""
        self._is_left = False
        self._timer = self._loop.call_later(_FIRST_COLLECT, self._collect, 2 * _FIRST_COLLECT)

    def work(self) -> None:
        """In a thread."""
        try:
            self.stopped = self._call_all()
            self._permit.item = None
            self._loop.call_soon_threadsafe(self._end)
        except RuntimeError:
            return  # the loop is closed

    def _call_all(self) -> Stopped | None:
        permit, items, now, current = self._permit, self._items, self._loop.time, self._current
        lease, append = permit.lease, self._part(current)
        if permit.withheld or (began := now()) >= lease.certain_until:
            return NOT_STARTED
        until, latest = began + _TURN, began + _LONGEST_TURN
        for number in range(1, self._most + 1):
            if not items:
                break
            taker, item = items[0]
            if taker is not current:
                if not self._passes_to(taker):
                    return NOT_STARTED
                current, append = taker, self._part(taker)
            if taker.is_rated and not taker.executor.has_token(item):
                return _DRY
            items.popleft()
            permit.item = item
            raised = False
            try:
                result = taker.call(item)
            except BaseException as error:
                result, raised = error, True
            at = now()
            if result is not None or not taker.is_plain or permit.withheld or at >= lease.certain_until:
                return Stopped(item, result, raised)
            append(item)
            is_round = not number % RUN
            if at >= latest or (is_round and at >= until):
                return NOT_STARTED
            if is_round:
                self._wake()
        return None

    def _passes_to(self, taker: SerialTaker) -> bool:
        """In the thread: whether the next item, which is of this handler, may start in the same run."""
        current = self._current
        if taker.runs_with is not current.runs_with or not taker.take():
            return False
        current.give_back()
        self._current = self._permit.taker = taker
        return not self._permit.withheld  # otherwise it was abandoned meanwhile

    def _part(self, taker: SerialTaker) -> Callable[[Any], None]:
        part: list[Any] = []
        self._finished.append((taker, part))
        return part.append

    def _wake(self) -> None:
        """In the thread: have acknowledged what is finished; a wake that is pending is enough."""
        if not self._is_waking:
            self._is_waking = True
            self._loop.call_soon_threadsafe(self._woken)

    def _woken(self) -> None:
        # Reset before anything is acknowledged: what the thread finishes from now on wakes the loop again.
        self._is_waking = False
        if not self._is_closed:
            self._acknowledge()

    def close(self) -> None:
        """On the loop: acknowledge what is finished, and nothing afterwards."""
        self._is_closed = True
        self._timer.cancel()
        self._acknowledge()

    def _collect(self, wait: float) -> None:
        """On the loop: acknowledge what is finished so far, and look again after `wait` seconds."""
        self._acknowledge()
        self._timer = self._loop.call_later(wait, self._collect, min(2 * wait, _LONGEST_COLLECT))

    def _acknowledge(self) -> None:
        finished = self._finished
        while finished:
            is_last = len(finished) == 1  # the thread may add to it
            taker, part = finished[0]
            if count := len(part):
                taker.done_all(part[:count])
                del part[:count]
            if is_last:
                return
            if not part:
                finished.popleft()

    def leave(self) -> None:
        """The run is cancelled, and its thread is not: its call is free when it has ended."""
        self._is_left, self._permit.taker = True, None

    def _end(self) -> None:
        if self._is_left:
            self._current.free_calls.release()
        elif not self.over.done():
            self.over.set_result(None)
