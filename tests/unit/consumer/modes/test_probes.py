"""The one message that is tried during a breaker's pause: nothing that does not start uses it up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.table import Modes
from rocketapp.consumer.workers.caller import Caller
from rocketapp.model.snapshot import HandlerStats
from rocketapp.state.pauses import Probe
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import subscription
from tests.unit.consumer.members import member_alone
from tests.unit.consumer.modes.contexts import DeadLetters, ScriptedLock, mode_context, under
from tests.unit.consumer.reports import QUEUE, OneCalled, Reports, message
from tests.unit.scripted import eventually, in_virtual_time

OPTIONS: list[dict[str, Any]] = [{}, {"orderly": True}, {"order_by": lambda message: message.offset}]


class Probed:
    """A topic that is paused by a breaker, and its queue."""

    def __init__(self, call: Any, **options: Any) -> None:
        context = mode_context([Handler(subscription(**options), call)], dead_letters=DeadLetters())
        self.pauses = context.member.pauses
        self.mode = Modes(context).of("topic")
        self.queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
        self.delivery = self.mode.open(under(ScriptedLock(), self.queue))

    def pull(self, *offsets: int) -> None:
        self.delivery.deliver(self.queue.put([message(offset) for offset in offsets]))

    def pause(self) -> None:
        self.pauses.pause("topic", "breaker")

    def probe(self) -> None:
        self.pauses.probe("topic", "breaker", Probe("handler", HandlerStats()))


@pytest.mark.parametrize("options", OPTIONS)
@in_virtual_time
async def test_a_probe_waits_for_a_token(options: dict[str, Any]) -> None:
    called: list[tuple[int, float]] = []

    async def call(message: Message) -> None:
        called.append((message.offset, round(asyncio.get_running_loop().time() - began)))

    began = asyncio.get_running_loop().time()
    probed = Probed(call, rate=0.1, **options)
    probed.pull(0)
    await asyncio.sleep(1)
    probed.pause()
    probed.pull(1, 2, 3)
    probed.probe()
    await asyncio.sleep(100)
    assert called == [(0, 0), (1, 10)]
    await probed.mode.callers.stop()


@pytest.mark.parametrize("options", OPTIONS)
async def test_a_probe_in_a_thread_waits_for_a_token(options: dict[str, Any]) -> None:
    called: list[int] = []
    probed = Probed(lambda message: called.append(message.offset), rate=4, is_async=False, **options)
    probed.pull(0)
    await eventually(lambda: called == [0], 10)
    probed.pause()
    probed.pull(1, 2, 3)
    probed.probe()
    await eventually(lambda: called == [0, 1], 10)
    await asyncio.sleep(0.6)
    assert called == [0, 1]
    await probed.mode.callers.stop()


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_message_whose_time_is_over_uses_up_no_probe(is_async: bool) -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)

    def sync_call(message: Message) -> None:
        called.append(message.offset)

    workers = OneCalled(Handler(subscription(is_async=is_async), call if is_async else sync_call), Reports())
    pauses = workers.member.pauses
    pauses.pause("topic", "breaker")
    late = workers.submit(message(0))
    late.check, late.is_watched = (lambda _: None), True
    workers.submit(message(1))
    workers.submit(message(2))
    await asyncio.sleep(0.05)
    pauses.probe("topic", "breaker", Probe("handler", HandlerStats()))
    await eventually(lambda: bool(called), 5)
    await asyncio.sleep(0.1)
    assert called == [1]
    await workers.callers.stop()


async def test_a_thread_that_is_too_late_for_a_probe_gives_none_back(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = OneCalled(Handler(subscription(is_async=False, rate=1000.0), lambda _: None), Reports())
    caller, pauses = workers.taker.caller, workers.member.pauses
    pauses.pause("topic", "breaker")
    pauses.probe("topic", "breaker", Probe("handler", HandlerStats()))
    caller.ask_for_probe()
    clock, faster = asyncio.get_running_loop().time, list[bool]()

    def time() -> float:
        if not faster:  # between the look for a probe and the use of it, for a token
            faster.append(False)
            faster[0] = caller.may_start(message(0))
        return clock()

    monkeypatch.setattr(asyncio.get_running_loop(), "time", time)
    assert not caller.may_start(message(1))
    assert faster == [True]
    assert not caller.may_start(message(2))
    await workers.callers.stop()


class IsToldTooEarly(Caller):
    """A thread that reads whether there is a pause has to wait before it makes use of the answer."""

    meanwhile: Callable[[], None] | None = None
    _is_paused = False

    @property
    def is_paused(self) -> bool:  # type: ignore[override]
        found, meanwhile, self.meanwhile = self._is_paused, self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return found

    @is_paused.setter
    def is_paused(self, value: bool) -> None:
        self._is_paused = value


async def test_a_thread_that_ends_a_call_beyond_the_most_opens_no_handler_that_is_paused_meanwhile() -> None:
    class NoWorkers:
        def submit(self, caller: Caller, run: Any) -> None: ...
        def enter(self, caller: Caller, *, by_worker: bool = False) -> None: ...

    handler = Handler(subscription(is_async=False, concurrency=2), lambda _: None)
    member = member_alone([handler])
    caller, pauses = IsToldTooEarly(handler, member, NoWorkers()), member.pauses
    assert caller.take()
    assert caller.take()
    caller.resize(1)
    caller.meanwhile = partial(pauses.pause, "topic", "operator")
    caller.give_back()
    assert not caller.is_open
    pauses.resume("topic")
    assert caller.is_open
    caller.close()
