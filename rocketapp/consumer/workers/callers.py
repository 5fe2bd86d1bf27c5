"""The callers of all handlers of a group: created once, stopped together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.member import Member
from rocketapp.consumer.workers.caller import Caller, Workers
from rocketapp.consumer.workers.in_threads import MakeThreads, ThreadWorkers
from rocketapp.consumer.workers.on_loop import LoopWorkers
from rocketapp.consumer.workers.run import Run
from rocketapp.model.subscription import CONCURRENT, kind_of
from rocketapp.tasks import Tasks


class Callers:
    """The callers of a group, one for each handler, and their workers."""

    def __init__(self, member: Member, threads: MakeThreads, journal: Journal | None = None) -> None:
        """`threads` makes those of sync handlers. `journal`: where workers note down what they have in flight."""
        self._member = member
        self.tasks: Tasks = Tasks(member.observe)
        self._on_loop = LoopWorkers(self.tasks, journal)
        self._in_threads = ThreadWorkers(threads(), member.observe, journal)
        self._of: dict[int, Caller] = {}
        """By the identity of handlers."""
        self.is_halted: bool = False
        """This is a forked child, which starts nothing more."""
        self.times: int = 1
        """How many times their concurrency they run at once, up to the most of each."""

    def __repr__(self) -> str:
        return f"<Callers: {list(self._of.values())}>"

    def one(self, handler: Handler) -> Caller:
        """The caller of this handler."""
        known = self._of.get(id(handler))
        if known is None:
            workers: Workers = self._on_loop if handler.subscription.is_async else self._in_threads
            known = self._of[id(handler)] = Caller(handler, self._member, workers)
        return known

    def waiting(self) -> list[Caller]:
        """Those that have messages and lack a call, or a token of their rate."""
        return [caller for caller in self._of.values() if (caller.runs or caller.mixed) and caller.lacks]

    def in_flight(self) -> list[tuple[Handler, Any]]:
        """Every running call: its handler and its item; without polled calls that have pulled nothing."""
        return self._on_loop.in_flight() + self._in_threads.in_flight()

    def grow(self, times: int) -> None:
        """Multiply the declared concurrency of concurrent handlers, up to their maximum. Not after `app.adjust`."""
        self.times = times
        for caller in self._of.values():
            self._resize(caller)

    def pace(self, handler: Handler, concurrency: int | None, rate: float | None, batch: int | None) -> None:
        """Set concurrency (None: as declared), rate and batch size of a handler."""
        caller = self.one(handler)
        caller.concurrency = concurrency
        self._resize(caller)
        if batch is not None:
            caller.batch = batch
        if rate is not None:
            caller.change_rate(rate)

    def _resize(self, caller: Caller) -> None:
        about = caller.handler.subscription
        most = about.concurrency
        if kind_of(about) is CONCURRENT:
            most = max(most, min(most * self.times, about.concurrency_most))
        caller.resize(caller.concurrency or most)  # what an operator has said holds as it is

    def collect(self) -> None:
        """Process what threads have finished."""
        self._in_threads.collect()

    async def cancel(self, is_mine: Callable[[Run], bool]) -> None:
        """Cancel the running calls of these runs as far as possible."""
        await self._on_loop.cancel(is_mine)

    async def stop(self) -> None:
        """Start nothing more, and cancel what can be cancelled."""
        for caller in self._of.values():
            caller.close()
        self._in_threads.stop()
        await self._on_loop.stop()
        await self.tasks.close()

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        self.is_halted = True
        self._on_loop.halt()
        self._in_threads.halt()
