"""The workers of all handlers that one consume mode calls: made once per group, stopped together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.member import Member
from rocketapp.consumer.workers.async_workers import AsyncWorkers
from rocketapp.consumer.workers.mixed import MixedWorker
from rocketapp.consumer.workers.thread_workers import ThreadWorkers
from rocketapp.consumer.workers.threads import MakeThreads
from rocketapp.consumer.workers.work import Workers
from rocketapp.state.tag_table import TagTable
from rocketapp.tasks import Tasks

if TYPE_CHECKING:
    from rocketapp.consumer.workers.rated import RatedWorkers


class WorkersOfHandlers:
    """Makes the workers of handlers, and owns them."""

    def __init__(self, member: Member, threads: MakeThreads, journal: Journal | None = None) -> None:
        """`threads(name, most)` makes threads. `journal`: where workers note down what they have in flight."""
        self._observe, self._pauses = member.observe, member.pauses
        self._threads, self._journal = threads, journal
        self.tasks: Tasks = Tasks(member.observe)
        self.mixed: MixedWorker = MixedWorker(self.tasks, journal)
        """Walks through messages of many of them."""
        self._all: list[Workers] = []
        self._rated: list[RatedWorkers] = []
        """Those among them that have a rate."""
        self._times = 1
        """How many times their concurrency they run at once, up to the most of each."""
        self._paces: dict[int, int] = {}
        """Concurrency that is not the declared one, by the identity of the workers."""

    def __repr__(self) -> str:
        return f"<WorkersOfHandlers: {self._all}>"

    def tables(self, topics: Iterable[ConsumedTopic]) -> dict[str, TagTable[Workers]]:
        """By topic: which workers take which message."""
        return {
            topic.topic: TagTable((self._of(each), each.subscription.tags) for each in topic.handlers)
            for topic in topics
        }

    def in_flight(self) -> list[tuple[Handler, Any]]:
        """Every running call: its handler, and the message or batch that it works on."""
        return [(each.handler, item) for each in self._all for item in each.in_flight() if item is not None]

    def grow(self, times: int) -> None:
        """Run that many times as many calls at once as declared, up to the most of each handler."""
        self._times = times
        for workers in self._all:
            self._resize(workers)

    def pace(self, handler: Handler, concurrency: int, rate: float | None, batch: int | None) -> None:
        """Run this many calls of a handler at once, start this many messages a second, at most `batch` in one call."""
        for workers in self._all:
            if workers.handler is handler:
                self._paces[id(workers)] = concurrency
                self._resize(workers)
                if batch is not None:
                    workers.change_batch(batch)
        for rated in self._rated:
            if rated.handler is handler and rate is not None:
                rated.change_rate(rate)

    def _resize(self, workers: Workers) -> None:
        about = workers.handler.subscription
        concurrency = self._paces.get(id(workers), about.concurrency)
        workers.resize(max(concurrency, min(concurrency * self._times, about.concurrency_most)))

    async def stop(self) -> None:
        """Start nothing more, and cancel what can be cancelled."""
        self.mixed.halt()
        await asyncio.gather(*(workers.stop() for workers in self._all))
        await self.mixed.stop()
        await self.tasks.close()

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        self.mixed.halt()
        for workers in self._all:
            workers.halt()

    def one(self, handler: Handler) -> Workers:
        """Workers of one more async handler, which runs no code of the user: what it has in flight ends no process."""
        self._all.append(AsyncWorkers(handler, self.tasks, self._pauses))
        return self._all[-1]

    def _of(self, handler: Handler) -> Workers:
        workers: Workers
        if handler.subscription.is_async:
            workers = AsyncWorkers(handler, self.tasks, self._pauses, self._journal)
        else:
            workers = ThreadWorkers(handler, self._observe, self._pauses, self._threads, self._journal)
        if (tokens := handler.tokens) is not None:
            from rocketapp.consumer.workers.rated import RatedWorkers

            workers = rated = RatedWorkers(workers, tokens)
            self._rated.append(rated)
        self._all.append(workers)
        return workers
