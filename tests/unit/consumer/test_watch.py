"""The watch over running calls."""

from __future__ import annotations

import asyncio
import gc

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.stats import GroupStats
from rocketapp.consumer.watch import Watch
from rocketapp.model.event import HandlerSlow
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import subscription
from tests.unit.consumer.reports import message
from tests.unit.scripted import Events, in_virtual_time


@in_virtual_time
async def test_messages_of_calls_that_have_ended_are_not_kept() -> None:
    handler = Handler(subscription(), lambda _: None)
    gc.collect()  # what earlier tests left is not counted
    before = sum(type(each) is Message for each in gc.get_objects())
    running = [(handler, message(offset)) for offset in range(64)]
    stats = GroupStats([handler])
    watch = Watch(
        group="group", stats=stats, in_hand=lambda: running, stall_reasons=(), warning=300.0, observe=Events()
    )
    watch.look()
    await asyncio.sleep(1)
    running.clear()
    watch.look()
    assert sum(type(each) is Message for each in gc.get_objects()) == before


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
    watch = Watch(
        group="group",
        stats=GroupStats([handler]),
        in_hand=lambda: running,
        stall_reasons=(),
        warning=10.0,
        observe=events,
    )
    watch.look()
    await asyncio.sleep(11)
    watch.look()
    assert len(events.of(HandlerSlow)) == 64
    assert len(looks) == 1
