"""Sessions of random handlers, messages, pauses and leases in virtual time: nothing is lost, out of order or left over.

A failure names its seed: `one_session(seed)` or `many_sessions(seed)` repeats it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from rocketapp.consumer.handler import Handler, messages_of
from rocketapp.consumer.journal import Journal
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import Park, Retry
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import subscription
from tests.unit.consumer.modes.contexts import ScriptedLock, under
from tests.unit.consumer.modes.test_ends import mode_of
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.consumer.test_quarantine import journal_with
from tests.virtual import run_virtual

KEYS = 5
"""Messages whose offsets differ by a multiple of it have the same key."""
LENGTH = 60
"""Messages of a queue that has many sessions."""
ORDERS: dict[str, dict[str, Any]] = {
    "concurrent": {},
    "keyed": {"order_by": lambda message: message.offset % KEYS},
    "orderly": {"orderly": True},
}


class Calls:
    """The handlers of one seed: what they were called for, and what was wrong with that."""

    def __init__(self, random: Random, order: str, directory: Path, *, every_retry: bool) -> None:
        """`every_retry`: what fails is tried again until it is done."""
        self.random, self.order, self.every_retry = random, order, every_retry
        self.problems: list[str] = []
        self.count = 0
        self.running: set[tuple[MessageQueue, int]] = set()
        self.done: defaultdict[MessageQueue, set[int]] = defaultdict(set)
        self.tags: defaultdict[MessageQueue, list[str]] = defaultdict(list)
        """The name of the handler of each offset; no handler has the name "d"."""
        self.starts_no_more = False
        self.names = "abc"[: random.randint(1, 3)]
        self.journal: Journal | None = None
        parts = {}
        if random.random() < 0.4:
            keys = [f"group {QUEUE._replace(queue_id=number)}" for number in range(3)]
            self.journal = parts["journal"] = journal_with(
                directory,
                {
                    key: {random.randrange(LENGTH): [1, 0, 1000.0, random.random() < 0.5] for _ in range(4)}
                    for key in keys
                },
            )
        self.mode = mode_of(order, *(self._handler(name) for name in self.names), **parts)

    def share(self, queue: MessageQueue, first: int, count: int) -> list[Message]:
        """Messages as a pull brings them; what comes a second time is for the same handler."""
        tags = self.tags[queue]
        while len(tags) < first + count:
            tags.append(self.random.choice(self.names + "d"))
        return [message(at, tags[at], queue) for at in range(first, first + count)]

    def open(self, process_queue: ProcessQueue[Message], lock: ScriptedLock) -> Any:
        return (
            self.mode.open(process_queue) if self.order == "concurrent" else self.mode.open(under(lock, process_queue))
        )

    async def stop(self) -> None:
        await self.mode.callers.stop()
        if self.journal is not None:
            self.journal.close()

    def _handler(self, name: str) -> Handler:
        random = self.random
        options: dict[str, Any] = {
            "concurrency": random.choice([1, 2, 64]),
            "batch": None if self.order == "keyed" else random.choice([None, None, 3, 10]),
            "batch_wait": random.choice([0.0, 0.1, 1.0]),
            "rate": random.choice([None, None, 100.0]),
            "retries": 1000 if self.every_retry else 16,
        }
        call = partial(self._call, name, random.choice([0, 0, 0.01, 0.3, 1.0]), random.choice([0, 0, 0.1, 0.3]))
        return Handler(subscription(name, tags=name, is_async=True, **options, **ORDERS[self.order]), call)

    async def _call(self, name: str, seconds: float, failing: float, item: Any) -> None:
        random, messages = self.random, messages_of(item)
        queue, offsets = messages[0].queue, {each.offset for each in messages}
        self.count += 1
        if self.starts_no_more:
            self.problems.append(f"{offsets} start when nothing may")
        for offset in offsets:
            self._look_at_others(queue, offset, offsets)
        places = {(queue, offset) for offset in offsets}
        self.running |= places
        try:
            if seconds or random.random() < 0.3:
                await asyncio.sleep(seconds * random.random())
        finally:
            self.running -= places
        if random.random() < failing:
            again = [Park(random.random()), Retry(after=0.1)]
            if self.every_retry:
                raise again[0] if self.order == "concurrent" else random.choice(again)
            raise random.choice([*again, ValueError("x")])
        self.done[queue] |= offsets

    def _look_at_others(self, queue: MessageQueue, offset: int, own: set[int]) -> None:
        """In order, no other message of the line runs, and none before it is to be done yet."""
        if self.order == "concurrent":
            return
        is_in_line = self._line(queue, offset)
        beside = [at for where, at in self.running if where == queue and at not in own and is_in_line(at)]
        if beside:
            self.problems.append(f"{offset} of {queue} starts beside {beside}")
        if self.every_retry:
            before = [at for at in range(offset) if at not in self.done[queue] | own and is_in_line(at)]
            if before:
                self.problems.append(f"{offset} of {queue} starts before {before}")

    def _line(self, queue: MessageQueue, offset: int) -> Callable[[int], bool]:
        tags = self.tags[queue]
        step = KEYS if self.order == "keyed" else 1
        return lambda at: tags[at] in self.names and at % step == offset % step


async def one_session(seed: int, directory: Path) -> list[str]:
    """One session that ends at any moment; what was wrong."""
    random = Random(seed)
    loop = asyncio.get_running_loop()
    calls = Calls(random, random.choice(["concurrent", "concurrent", "keyed", "orderly"]), directory, every_retry=False)
    process_queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    delivery = calls.open(process_queue, ScriptedLock())
    pulled = 0
    for _ in range(random.randint(1, 6)):
        share = calls.share(QUEUE, pulled, random.randint(1, 20))
        pulled += len(share)
        process_queue.put(share)
        delivery.deliver(share)
        await asyncio.sleep(random.choice([0, 0, 0.001, 0.05, 0.5]))
    pauses = calls.mode.context.member.pauses
    if random.random() < 0.3:
        pauses.pause("topic", "x")
    await asyncio.sleep(random.choice([0, 0.01, 0.5, 3]))
    delivery.end()

    def start_no_more() -> None:
        delivery.end(start_no_more=True)
        calls.starts_no_more = True

    if random.random() < 0.5:
        loop.call_later(random.choice([0, 0.1, 1]), start_no_more)
    if random.random() < 0.2:
        loop.call_later(0.2, pauses.resume, "topic")
    await asyncio.wait_for(delivery.drained(), 200)
    problems, commit, count = calls.problems, process_queue.commit_offset, calls.count
    if calls.running:
        problems.append(f"{calls.running} run when it is drained")
    if passed := [at for at in range(min(commit, pulled)) if process_queue.is_unfinished(at)]:
        problems.append(f"the commit {commit} passes {passed}")
    left = min((one.offset for one in process_queue.unfinished()), default=pulled)
    if below := [at for at in calls.done[QUEUE] if commit <= at < left]:
        problems.append(f"{below} are done and not below the commit {commit}")
    delivery.discard()
    await asyncio.sleep(100)
    if calls.count != count:
        problems.append("calls after it was discarded")
    await calls.stop()
    return problems


async def sessions_of(calls: Calls, queue: MessageQueue) -> None:
    """Sessions one after the other, each from the commit of the one before, until the last one has done all."""
    offset, problems = 0, calls.problems
    for number in range(12):
        if offset < LENGTH:
            process_queue: ProcessQueue[Message] = ProcessQueue(queue, offset, number)
            await some_time_of(calls, process_queue, is_last=number == 11)
            if process_queue.commit_offset < offset:
                problems.append(f"{queue} began at {offset} and ends at {process_queue.commit_offset}")
            offset = process_queue.commit_offset
    if lost := [at for at in range(offset) if calls.tags[queue][at] in calls.names and at not in calls.done[queue]]:
        problems.append(f"{lost} of {queue} are lost")
    if offset < LENGTH:
        problems.append(f"{queue} stands still at {offset}")


async def some_time_of(calls: Calls, process_queue: ProcessQueue[Message], *, is_last: bool) -> None:
    """One session, which is drained or abandoned at any moment."""
    random, loop, lock = calls.random, asyncio.get_running_loop(), ScriptedLock()
    delivery = calls.open(process_queue, lock)
    at, may_lose = process_queue.commit_offset, calls.order != "concurrent" and not is_last
    until = loop.time() + (4000 if is_last else random.random() * 3)
    while loop.time() < until and not delivery.over.done() and (at < LENGTH or len(process_queue)):
        if at < LENGTH:
            share = calls.share(process_queue.message_queue, at, min(LENGTH - at, random.randint(1, 20)))
            at += len(share)
            process_queue.put(share)
            delivery.deliver(share)
        await asyncio.sleep(1.0 if is_last else random.choice([0, 0.01, 0.2]))
        if may_lose and random.random() < 0.1:
            may_lose = False
            lock.run_out()
            loop.call_later(random.random(), lock.decide, random.random() < 0.6)
    if delivery.over.done() and (error := delivery.over.exception()):
        calls.problems.append(repr(error))
    delivery.end()
    if random.random() < 0.3:
        loop.call_later(random.random(), lambda: delivery.end(start_no_more=True))
    drained = asyncio.ensure_future(delivery.drained())
    is_cut = random.random() < 0.2
    await asyncio.wait([drained], timeout=0.05 if is_cut else 300)
    if not drained.done():
        drained.cancel()
        if is_cut:
            await delivery.abandon()
        else:
            calls.problems.append(f"{delivery} is not drained")
    process_queue.close()
    delivery.discard()
    await asyncio.sleep(0)


async def many_sessions(seed: int, directory: Path) -> list[str]:
    """Three queues whose sessions follow one another, perhaps with pauses; what was wrong."""
    random = Random(seed)
    calls = Calls(random, random.choice(list(ORDERS)), directory, every_retry=True)
    pauses = calls.mode.context.member.pauses

    async def pause_now_and_then() -> None:
        while True:
            await asyncio.sleep(random.random() * 3)
            pauses.pause("topic", "x")
            await asyncio.sleep(random.random())
            pauses.resume("topic")

    pausing = [asyncio.ensure_future(pause_now_and_then())] if random.random() < 0.4 else []
    await asyncio.gather(*(sessions_of(calls, QUEUE._replace(queue_id=number)) for number in range(3)))
    for each in pausing:
        each.cancel()
    await calls.stop()
    return calls.problems


def problems_of(run: Callable[..., Any], seed: int, directory: Path) -> list[str]:
    directory.mkdir()
    try:
        return run_virtual(lambda: run(seed, directory))
    except Exception as error:
        return [repr(error)]


def test_a_session_that_ends_at_any_moment_commits_what_is_done_and_starts_nothing_afterwards(tmp_path: Path) -> None:
    for seed in range(150):
        problems = problems_of(one_session, seed, tmp_path / str(seed))
        assert not problems, f"seed {seed}: {problems[:3]}"


def test_sessions_that_follow_one_another_do_everything_in_order(tmp_path: Path) -> None:
    for seed in range(60):
        problems = problems_of(many_sessions, seed, tmp_path / str(seed))
        assert not problems, f"seed {seed}: {problems[:3]}"
