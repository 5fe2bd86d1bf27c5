"""Executors of one orderly or polled handler: on the loop, or in threads a run of items at a time.

Both call the handler for one item after the other, and acknowledge every message whose
call returned None. They stop at the first item that needs a judgement, and as soon as
their permit is withheld or its lease is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.workers.async_workers import limited
from rocketapp.consumer.workers.free_calls import FreeCalls
from rocketapp.consumer.workers.threads import MakeThreads, Threads
from rocketapp.consumer.workers.work import Acknowledge
from rocketapp.state.lease import Lease
from rocketapp.tasks import forget_cancellation

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


class Permit:
    """What one delivery allows its executor, and what the executor works on."""

    __slots__ = ("abandoned", "item", "lease", "withheld")

    def __init__(self, lease: Lease) -> None:
        self.lease: Lease = lease
        """No item starts after it is over."""
        self.withheld: bool = False
        """No further item may start."""
        self.abandoned: bool = False
        """The running call was cancelled by us."""
        self.item: Any = None
        """What the handler works on."""


class Stopped(NamedTuple):
    """Why an executor stopped before the last item."""

    item: Any
    """The item that needs a judgement; None when no item was started."""
    result: object = None
    """What the handler returned or raised."""
    raised: bool = False


NOT_STARTED = Stopped(None)
"""The executor stopped between two items."""


def _is_plain(handler: Handler) -> bool:
    """Whether a call that returned None is done, without a judgement."""
    return handler.subscription.batch is None and handler.decisions is None


class SerialExecutor(Protocol):
    """Calls one handler for one item after the other."""

    handler: Handler
    free_calls: FreeCalls
    """Limits how many queues call the handler at once."""
    most: int
    """Most items of one run."""

    @property
    def batch(self) -> int | None:
        """Most messages of a batch; None for a handler of single messages."""
        ...

    async def run(self, items: Iterator[Any], permit: Permit, completion: Acknowledge) -> Stopped | None:
        """Call for every item; None after the last. Items that were not started stay in the iterator.

        NOT_STARTED asks for another run: the permit was withheld, its lease was over, or others shall have their turn.
        The lease is compared with the clock after a call: an item that ends when the lease is over needs a judgement.
        """
        ...

    def resize(self, most: int) -> None:
        """At most this number of queues call it at once from now on; what runs beyond that ends first."""
        ...

    def change_batch(self, most: int) -> None:
        """Another most of messages in a batch holds from now on; only for a handler that takes batches."""
        ...

    def stop(self) -> None:
        """No call will follow."""
        ...

    def halt(self) -> None:
        """In a forked child: no call will follow; a thread that forked ends the child."""
        ...


class SerialOnLoop:
    """Calls an async handler."""

    def __init__(self, handler: Handler) -> None:
        self.handler: Handler = handler
        self.batch: int | None = handler.subscription.batch
        self.most: int = RUN
        self.free_calls: FreeCalls = FreeCalls(handler.subscription.concurrency)
        self._single = _is_plain(handler)
        self._call = limited(handler)
        self._loop = asyncio.get_running_loop()

    async def run(self, items: Iterator[Any], permit: Permit, completion: Acknowledge) -> Stopped | None:
        """See SerialExecutor."""
        call, now, single, lease, done = self._call, self._loop.time, self._single, permit.lease, completion.done
        if permit.withheld or (at := now()) >= lease.certain_until:
            return NOT_STARTED
        until = at + _LONGEST_TURN
        for item in items:
            permit.item = item
            raised = False
            try:
                result = await call(item)
            except BaseException as error:
                result, raised = self._failure(permit, error), True
            permit.item = None
            # One look at the clock says whether this item may be acknowledged and whether the next one may start.
            at = now()
            if result is not None or not single or permit.withheld or at >= lease.certain_until:
                return Stopped(item, result, raised)
            done(item)
            if at >= until:
                return NOT_STARTED
        return None

    def _failure(self, permit: Permit, error: BaseException) -> BaseException:
        """The handler's own failure; raises when we ended the call."""
        if isinstance(error, GeneratorExit) and not self._loop.is_running():
            raise error  # this coroutine is being closed
        if isinstance(error, asyncio.CancelledError):
            if permit.abandoned:
                permit.item = None
                raise error
            forget_cancellation()
        return error

    def resize(self, most: int) -> None:
        """See SerialExecutor."""
        self.free_calls.resize(most)

    def change_batch(self, most: int) -> None:
        """See SerialExecutor."""
        self.batch = most

    def stop(self) -> None:
        """See SerialExecutor."""

    def halt(self) -> None:
        """See SerialExecutor."""


class SerialInThreads:
    """Calls a sync handler. A thread takes a whole run of items, so that going there costs little per item."""

    def __init__(self, handler: Handler, threads: MakeThreads = Threads) -> None:
        """`threads(name, most)` makes the threads."""
        self.handler: Handler = handler
        self.batch: int | None = handler.subscription.batch
        self.most: int = THREAD_RUN
        self.free_calls: FreeCalls = FreeCalls(handler.subscription.concurrency)
        self._threads = threads(f"orderly handler {handler.name}", handler.subscription.concurrency)

    async def run(self, items: Iterator[Any], permit: Permit, completion: Acknowledge) -> Stopped | None:
        """See SerialExecutor."""
        run = _ThreadRun(self.handler, items, permit, completion)
        try:
            self._threads.run(run.work)
            await run.over
        finally:
            # Also when this run is cancelled: what was finished before is acknowledged.
            run.close()
        return run.stopped

    def resize(self, most: int) -> None:
        """See SerialExecutor."""
        self._threads.resize(most)
        self.free_calls.resize(most)

    def change_batch(self, most: int) -> None:
        """See SerialExecutor."""
        self.batch = most

    def stop(self) -> None:
        """See SerialExecutor."""
        self._threads.stop()

    def halt(self) -> None:
        """See SerialExecutor."""
        self._threads.halt()


class _ThreadRun:
    """Items that one thread works on, one after the other."""

    def __init__(self, handler: Handler, items: Iterator[Any], permit: Permit, completion: Acknowledge) -> None:
        self._call, self._single = handler.call, _is_plain(handler)
        self._items, self._permit, self._completion = items, permit, completion
        self._loop = asyncio.get_running_loop()
        self._finished: list[Any] = []
        self.over: asyncio.Future[None] = self._loop.create_future()
        self.stopped: Stopped | None = None
        """Valid once `over` is done."""
        self._is_waking = self._is_closed = False
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
        permit, call, now, single = self._permit, self._call, self._loop.time, self._single
        lease, append, items = permit.lease, self._finished.append, self._items
        if permit.withheld or now() >= lease.certain_until:
            return NOT_STARTED
        began, left = now(), RUN
        until, latest = began + _TURN, began + _LONGEST_TURN
        for item in items:
            permit.item = item
            try:
                result = call(item)
            except BaseException as error:
                return Stopped(item, error, True)
            at = now()
            if result is not None or not single or permit.withheld or at >= lease.certain_until:
                return Stopped(item, result)
            append(item)
            if at >= latest:
                return NOT_STARTED
            left -= 1
            if not left:
                if now() >= until:
                    return NOT_STARTED
                left = RUN
                self._wake()
        return None

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
        if count := len(self._finished):
            self._completion.done_all(self._finished[:count])
            del self._finished[:count]

    def _end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)
