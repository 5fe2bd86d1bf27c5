"""The first messages of many keys start side by side, and each later message waits for the one before it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Hashable
from typing import Any
from weakref import WeakSet

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.model.outcome import Skip
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import consumed_by, subscription
from tests.unit.consumer.modes.contexts import DeadLetters, ScriptedLock, mode_context, under
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.scripted import HANGS, eventually, in_virtual_time


class Session:
    """One session of a queue whose messages have the keys that a function says."""

    def __init__(self, call: Any, **options: Any) -> None:
        self.begin(Handler(subscription(**options), call))

    @classmethod
    def of_two(cls, call: Any, **options: Any) -> Session:
        """Of a handler for even offsets and one for odd ones."""
        session = cls.__new__(cls)
        session.begin(*(Handler(subscription(tag, tags=tag, **options), call) for tag in ("even", "odd")))
        return session

    def begin(self, *handlers: Handler) -> None:
        topic = consumed_by(*handlers)
        self.mode = MessageMode([topic], mode_context(topic.handlers, dead_letters=DeadLetters()), in_order=True)
        self.queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
        self.lock = ScriptedLock()
        self.delivery = self.mode.open(under(self.lock, self.queue))

    def pull(self, *offsets: int) -> None:
        self.delivery.deliver(self.queue.put([message(at, "odd" if at % 2 else "even") for at in offsets]))


def modulo_3(message: Message) -> Hashable:
    return message.offset % 3


def each_its_own(message: Message) -> Hashable:
    return message.offset


@in_virtual_time
async def test_a_message_waits_for_the_head_of_its_key_and_others_do_not() -> None:
    events: list[str] = []

    async def call(message: Message) -> None:
        events.append(f"+{message.offset}")
        await asyncio.sleep(10 if message.offset == 0 else 1)
        events.append(f"-{message.offset}")

    session = Session(call, order_by=modulo_3)
    session.pull(0, 1, 2)
    await asyncio.sleep(0.5)
    session.pull(3, 4)
    await asyncio.sleep(60)
    assert events[:3] == ["+0", "+1", "+2"]
    assert events.index("-1") < events.index("+4") < events.index("-0") < events.index("+3")
    assert not session.queue
    await session.mode.callers.stop()


@in_virtual_time
async def test_a_head_that_failed_comes_again_before_what_waits_behind_it() -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)
        await asyncio.sleep(0.1)
        if called.count(0) < 3 and message.offset == 0:
            raise ValueError

    session = Session(call, order_by=modulo_3)
    session.pull(0, 1, 2)
    await asyncio.sleep(0.01)
    session.pull(3)
    await asyncio.sleep(0.2)
    session.pull(6)
    await asyncio.sleep(60)
    assert called == [0, 1, 2, 0, 0, 3, 6]
    assert not session.queue
    await session.mode.callers.stop()


@in_virtual_time
async def test_heads_that_have_not_started_when_the_lease_is_in_doubt_start_when_it_is_certain() -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)
        await asyncio.sleep(1)

    session = Session(call, order_by=each_its_own, concurrency=1)
    session.pull(*range(5))
    await asyncio.sleep(1.5)
    session.lock.run_out()
    await asyncio.sleep(60)
    assert called == [0, 1]
    session.lock.decide(usable=True)
    await asyncio.sleep(60)
    assert called == [0, 1, 2, 3, 4]
    assert not session.queue
    await session.mode.callers.stop()


async def test_threads_leave_heads_alone_while_the_lease_is_in_doubt() -> None:
    called: list[int] = []
    go_on = threading.Event()

    def call(message: Message) -> None:
        called.append(message.offset)
        if message.offset == 1:
            go_on.wait(HANGS)

    session = Session(call, order_by=each_its_own, concurrency=1, is_async=False)
    session.pull(*range(5))
    await eventually(lambda: len(called) == 2)
    session.lock.run_out()
    go_on.set()
    began = time.process_time()
    await asyncio.sleep(0.5)
    assert called == [0, 1]
    assert time.process_time() - began < 0.3, "no thread looks for what may start again and again"
    session.lock.decide(usable=True)
    await eventually(lambda: not session.queue)
    assert called == [0, 1, 2, 3, 4]
    await session.mode.callers.stop()


@pytest.mark.parametrize("concurrency", [1, 3])
@in_virtual_time
async def test_a_queue_that_is_given_up_withdraws_the_heads_that_were_not_started(concurrency: int) -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)
        await asyncio.sleep(1)

    session = Session(call, order_by=each_its_own, concurrency=concurrency)
    session.pull(*range(10))
    await asyncio.sleep(0.5)
    session.delivery.end()
    await session.delivery.drained()
    assert called == [*range(concurrency)]
    assert session.queue.commit_offset == session.queue.end_offset == concurrency
    await session.mode.callers.stop()


@in_virtual_time
async def test_a_cancelled_head_leaves_nothing_to_wait_for() -> None:
    async def call(_: Message) -> None:
        await asyncio.sleep(1000)

    session = Session(call, order_by=each_its_own)
    session.pull(*range(10))
    await asyncio.sleep(0.5)
    assert await session.delivery.abandon()
    await session.delivery.drained()
    assert session.queue.commit_offset == 0
    await session.mode.callers.stop()


@in_virtual_time
async def test_keys_are_forgotten_when_their_messages_are_done() -> None:
    class Key:
        """Told apart by its identity."""

    known = WeakSet[Key]()

    def new_key(_: Message) -> Hashable:
        known.add(key := Key())
        return key

    async def call(_: Message) -> None: ...

    session = Session(call, order_by=new_key)
    for first in range(0, 50_000, 1000):
        session.pull(*range(first, first + 1000))
        await asyncio.sleep(0.01)
    assert not session.queue
    assert len(known) < 5000
    await session.mode.callers.stop()


@in_virtual_time
async def test_a_key_is_not_forgotten_while_its_first_message_or_a_later_one_runs() -> None:
    called: list[int] = []

    def key_of(message: Message) -> Hashable:
        return {0: "first", 1: "later", 2: "later", 5001: "first", 5002: "later"}.get(message.offset, message.offset)

    async def call(message: Message) -> None:
        called.append(message.offset)
        if message.offset in (0, 2):
            await asyncio.sleep(10)

    session = Session.of_two(call, order_by=key_of)
    session.pull(0, 1, 2)
    for first in range(3, 5003, 1000):
        session.pull(*range(first, min(first + 1000, 5003)))
        await asyncio.sleep(0.1)
    assert sorted(called) == [*range(5001)]
    await asyncio.sleep(10)
    assert sorted(called[-2:]) == [5001, 5002]
    await session.mode.callers.stop()


async def test_after_a_stop_no_head_starts_that_was_left_behind_a_call_that_hangs() -> None:
    called: list[int] = []
    started, go_on = threading.Event(), threading.Event()

    def call(message: Message) -> None:
        called.append(message.offset)
        started.set()
        go_on.wait(HANGS)

    handlers = [
        Handler(subscription(tag, tags=tag, order_by=each_its_own, is_async=False), call) for tag in ("hangs", "waits")
    ]
    mode = MessageMode([consumed_by(*handlers)], mode_context(handlers, dead_letters=DeadLetters()), in_order=True)
    queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    delivery = mode.open(under(ScriptedLock(), queue))
    delivery.deliver(queue.put([message(0, "hangs"), message(1, "waits"), message(2, "waits")]))
    assert started.wait(HANGS)
    delivery.end(start_no_more=True)
    await asyncio.sleep(0.2)
    go_on.set()
    await delivery.drained()
    assert called == [0]
    await mode.callers.stop()


async def test_a_head_that_is_not_done_leaves_none_of_another_handler_behind_in_a_thread() -> None:
    def call(message: Message) -> Any:
        return Skip() if message.offset % 7 == 0 else None

    session = Session.of_two(call, order_by=each_its_own, is_async=False)
    session.pull(*range(100))
    # A thread gives the run back a moment after its last message is done.
    await eventually(lambda: not session.delivery.runs())
    assert not session.queue
    await session.mode.callers.stop()


@in_virtual_time
async def test_nothing_is_left_of_runs_that_waited_for_one_of_their_handlers() -> None:
    async def call(_: Message) -> None:
        await asyncio.sleep(0.1)

    session = Session.of_two(call, order_by=each_its_own, concurrency=1)
    for first in range(0, 1000, 10):
        session.pull(*range(first, first + 10))
        await asyncio.sleep(0.2)
    await asyncio.sleep(1000)
    assert not session.queue
    assert session.delivery.runs() == []
    await session.mode.callers.stop()
