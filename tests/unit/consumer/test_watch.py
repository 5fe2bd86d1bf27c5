"""The watch over running calls."""

from __future__ import annotations

import asyncio
import gc

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.stats import GroupStats
from rocketapp.consumer.watch import Watch
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import subscription
from tests.unit.consumer.reports import message
from tests.unit.scripted import Events, in_virtual_time


@in_virtual_time
async def test_messages_of_calls_that_have_ended_are_not_kept() -> None:
    handler = Handler(subscription(), lambda _: None)
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
