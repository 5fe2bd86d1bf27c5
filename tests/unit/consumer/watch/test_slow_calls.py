"""The watch over running calls."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.watch.slow_calls import SlowCalls
from rocketapp.model.event import HandlerSlow
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed, subscription
from tests.unit.consumer.members import member_alone
from tests.unit.consumer.reports import message
from tests.unit.scripted import Events, in_virtual_time


class Calls:
    """The modes of a group, which is one, and their callers, with these calls in flight."""

    def __init__(self, running: list[tuple[Handler, Message]]) -> None:
        self._running = running

    def in_flight(self) -> list[tuple[Handler, Message]]:
        return self._running

    @property
    def callers(self) -> Calls:
        return self

    concurrent = callers


def slow_calls(
    handler: Handler, running: list[tuple[Handler, Message]], events: Events, *, warning: float
) -> SlowCalls:
    member = member_alone([handler], events=events, config=ConsumerConfig(handler_warning=warning))
    modes: Any = Calls(running)
    sender: Any = None
    return SlowCalls(member, modes, Redelivery(member, sender))


@in_virtual_time
async def test_messages_of_calls_that_have_ended_are_not_kept() -> None:
    handler = Handler(subscription(), lambda _: None)
    before = [
        each for each in gc.get_objects() if type(each) is Message
    ]  # who holds what other tests left keeps it alive
    running = [(handler, message(offset)) for offset in range(64)]
    calls = slow_calls(handler, running, Events(), warning=300.0)
    calls.look()
    await asyncio.sleep(1)
    running.clear()
    calls.look()
    gc.collect()
    assert sum(type(each) is Message for each in gc.get_objects()) == len(before)


@in_virtual_time
async def test_calls_that_are_late_at_the_same_moment_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[None] = []
    all_tasks = asyncio.all_tasks

    def counted() -> set[asyncio.Task[object]]:
        looks.append(None)
        return all_tasks()

    monkeypatch.setattr(asyncio, "all_tasks", counted)
    handler, events = Handler(subscription(), lambda _: None), Events()
    running = [(handler, message(offset)) for offset in range(64)]
    calls = slow_calls(handler, running, events, warning=10.0)
    calls.look()
    await asyncio.sleep(11)
    calls.look()
    assert len(events.of(HandlerSlow)) == 64
    assert len(looks) == 1


@in_virtual_time
async def test_a_late_call_of_a_function_that_handles_two_topics_is_counted_at_its_own() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.create("other")
    cluster.send(queue, b"x")

    async def call(_: Message) -> None:
        await asyncio.sleep(20)

    topics = [consumed(call, topic=name) for name in ("topic", "other")]
    member = await cluster.member(*topics, config=ConsumerConfig(handler_warning=10.0)).start()
    await asyncio.sleep(15)
    assert {one.topic: one.slow for one in member.consumer.snapshot().handlers} == {"topic": 1, "other": 0}
    assert await member.stop()
    await cluster.stop()
