"""Runs of messages that belong to many async handlers: one worker walks through them as long as no call suspends.

A pull whose tags are mixed would otherwise be cut into one work for each handler, and each would wake workers of its
own. Only handlers take part that have nothing waiting and nothing running. A call that suspends is from then on one of
its handler's own calls, and what is left of the run goes to the workers of the handlers: so a handler that hangs uses
up its own concurrency, and no other one waits for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import length_hint
from typing import Any, Protocol

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.journal import Journal, Note
from rocketapp.consumer.workers.async_workers import CHUNK, TURN, AsyncWorkers, Hand, failed
from rocketapp.consumer.workers.work import Completion, Workers
from rocketapp.model.snapshot import HandlerStats
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message


class Taker:
    """One handler as the messages of one session meet it."""

    __slots__ = ("call", "completion", "judge", "stats", "workers")

    def __init__(self, workers: Workers, completion: Completion) -> None:
        self.workers: Workers = workers
        self.completion: Completion = completion
        self.call: Callable[[Message], Any] = workers.call
        self.stats: HandlerStats = workers.handler.stats
        self.judge: Callable[[Any, object, bool], None] = completion.judge

    @property
    def handler(self) -> Handler:
        return self.workers.handler


class Run(Protocol):
    """Messages of one queue, each with its taker."""

    items: Iterator[tuple[Taker, Message]]
    """Taking a message starts it."""
    finish: Callable[[list[Message]], None] | None
    """Takes messages that are done and counted; None: each taker acknowledges its own at once."""
    record_of: Callable[[int, int], bytes] | None
    """Makes what is noted down of the offsets in flight."""

    @property
    def may_go_on(self) -> bool:
        """Its topic is not paused, and its handlers have begun no calls of their own since it was handed over."""
        ...

    @property
    def left(self) -> int:
        """How many messages are not started."""
        ...

    def noted(self, note: Note) -> Iterator[tuple[Taker, Message]]:
        """The messages, noted down as they start."""
        ...

    def give_back(self) -> None:
        """The walk is over: what was not started goes to the workers of its handlers."""
        ...


class MixedRun:
    """Messages of one queue in offset order, each with its taker."""

    __slots__ = (
        "_count",
        "_give",
        "_source",
        "_workers",
        "finish",
        "first_offset",
        "items",
        "last_offset",
        "record_of",
    )

    def __init__(
        self,
        takers: Sequence[Taker],
        messages: Sequence[Message],
        finish: Callable[[list[Message]], None],
        give: Callable[[list[tuple[Taker, Message]]], None],
    ) -> None:
        """`finish` takes messages that are done and counted, `give` what the walk has left."""
        self._source, self._count = iter(takers), len(takers)
        self._workers = list({id(taker): taker.workers for taker in takers}.values())
        self.items: Iterator[tuple[Taker, Message]] = zip(self._source, messages, strict=True)
        """Taking a message starts it."""
        self.first_offset: int = messages[0].offset
        self.last_offset: int = messages[-1].offset
        """No message above it was started from here."""
        self.record_of: Callable[[int, int], bytes] | None = None
        """Makes what is noted down of the offsets in flight."""
        self.finish: Callable[[list[Message]], None] | None = finish
        self._give = give

    @property
    def may_go_on(self) -> bool:
        """Their topic is not paused, they are of one topic; and no handler has begun calls of its own meanwhile."""
        return not self._workers[0].is_paused and all(each.is_quick for each in self._workers)

    @property
    def left(self) -> int:
        """How many messages are not started."""
        return length_hint(self._source)

    def noted(self, note: Note) -> Iterator[tuple[Taker, Message]]:
        """The messages, noted down."""
        if self.record_of is not None:
            note.write(self.record_of(self.first_offset, self.last_offset))
        return self.items

    def withdraw(self) -> tuple[list[tuple[Taker, Message]], int]:
        """Take back what is not started: that, and an offset that no started one lies above (-1)."""
        left = list(self.items)
        if not left:
            return left, self.last_offset
        return left, (left[0][1].offset - 1 if len(left) < self._count else -1)

    def give_back(self) -> None:
        """What was not started goes to the workers of its handlers."""
        if left := list(self.items):
            self.last_offset = left[0][1].offset - 1
            self._give(left)


class MixedWorker:
    """The one worker of a group that walks through mixed runs; it is replaced when a call has suspended."""

    def __init__(self, tasks: Tasks, journal: Journal | None) -> None:
        self._tasks, self._journal = tasks, journal
        self._loop = asyncio.get_running_loop()
        self._runs: deque[Run] = deque()
        self._hand: Hand | None = None
        """Of the worker; None: there is none."""
        self._taker: Taker | None = None
        self._finished: list[Message] = []
        """Of the first run: one step for many of them costs a third of many steps."""
        self._idle: asyncio.Future[None] | None = None
        self._looks = False
        self._is_halted = False

    def submit(self, run: Run) -> None:
        """Walk through this run at the loop's next turn."""
        self._runs.append(run)
        if self._idle is not None:
            if not self._idle.done():
                self._idle.set_result(None)
            self._idle = None
        elif self._hand is None:
            hand = self._hand = Hand(None if self._journal is None else self._journal.note())
            hand.task = self._tasks.start(self._work(hand), "handlers")
        self._look_soon()

    async def stop(self) -> None:
        """Start nothing more."""
        self.halt()
        if self._hand is not None and self._hand.task is not None:
            await self._tasks.end([self._hand.task])

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        self._is_halted = True
        for run in self._runs:
            list(run.items)

    def _look_soon(self) -> None:
        # A callback behind the worker: it sees whether a call has suspended.
        if not self._looks:
            self._looks = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looks = False
        hand, taker = self._hand, self._taker
        if hand is None or taker is None or hand.item is None or self._is_halted:
            return
        self._hand = self._taker = None
        if hand.note is not None and (record_of := self._runs[0].record_of) is not None:
            hand.note.write(record_of(hand.item.offset, hand.item.offset))
        taker.workers.adopt(hand)
        self._give_back()

    def _acknowledge(self) -> None:
        if (finished := self._finished) and (finish := self._runs[0].finish) is not None:
            finish(finished)
            finished.clear()

    def _give_back(self) -> None:
        self._acknowledge()
        runs = list(self._runs)
        self._runs.clear()
        for run in runs:
            run.give_back()

    async def _work(self, hand: Hand) -> None:
        try:
            while (workers := await self._walk(hand)) is None:
                if hand.note is not None:
                    hand.note.clear()
                if self._is_halted:
                    return
                if self._runs:
                    await asyncio.sleep(0)
                    self._look_soon()
                else:
                    self._idle = self._loop.create_future()
                    await self._idle
            await workers.go_on(hand)
        finally:
            # A handler may have cancelled the task in which it ran.
            if hand.workers is not None:
                hand.workers.leave(hand)
            elif self._hand is hand:
                self._hand = self._taker = self._idle = None
                if hand.note is not None:
                    hand.note.close()
                self._give_back()

    async def _walk(self, hand: Hand) -> AsyncWorkers | None:
        """Call for one message after the other. When a call has suspended: the workers that the hand belongs to now."""
        now, runs, append = self._loop.time, self._runs, self._finished.append
        assert hand.task is not None
        is_cancelling = hand.task.cancelling
        turn_end = now() + TURN
        while runs and now() < turn_end:
            run = runs[0]
            finish, items = run.finish, run.items if hand.note is None else run.noted(hand.note)
            # A run that has waited for its turn must not exceed the concurrency of a handler that was called meanwhile.
            for taker, item in islice(items, CHUNK if (may_go_on := run.may_go_on) else 0):
                hand.item = item
                self._taker = taker
                try:
                    result = await taker.call(item)
                except BaseException as error:
                    failed(taker.judge, item, error, self._loop, is_ours=self._is_halted)
                else:
                    if result is not None:
                        taker.judge(item, result, False)
                    elif finish is None or hand.workers is not None:
                        taker.completion.done(item)
                    else:
                        taker.stats.handled += 1
                        append(item)
                if hand.workers is not None:
                    hand.item = None
                    return hand.workers
                if is_cancelling():
                    # The handler has cancelled the task in which it ran: that must end no call of another one.
                    raise asyncio.CancelledError
                if taker.workers.is_paused:
                    break
            hand.item = None
            self._acknowledge()
            if not may_go_on or not run.left or not run.may_go_on:
                runs.popleft()
                run.give_back()
        return None
