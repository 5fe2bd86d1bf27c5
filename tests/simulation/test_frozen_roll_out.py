"""A member that stands still while a new version joins passes over nothing in its own queues when it goes on."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.tasks import scope
from tests.simulation import history as facts
from tests.simulation.stage import scenario
from tests.simulation.test_roll_out import ORDERS, Groups
from tests.simulation.world import Topic

ORDERLY = Topic(name="orders", orderly=True)


@pytest.mark.parametrize("topic", [ORDERS, ORDERLY], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("seconds", [1, 6, 12])
@pytest.mark.parametrize("meanwhile", [False, True], ids=["sent later", "sent while it stood still"])
@scenario
async def test_what_only_a_frozen_member_wants_is_handled_in_its_queues(
    topic: Topic, seconds: float, meanwhile: bool
) -> None:
    stage = Groups(topic, latency=0.002)
    await stage.begin()
    await stage.send_tags("a", 8)
    old = await stage.member(orders="a")
    await asyncio.sleep(5)
    old.freeze()
    async with scope(stage.member(orders="c")) as (joining,):
        await asyncio.sleep(5)
        sent = await stage.send_tags("ac", 16) if meanwhile else set()
        await asyncio.sleep(seconds)
        old.thaw()
        for _ in range(10):
            sent |= await stage.send_tags("ac", 2)
            await asyncio.sleep(0.05)
        await joining
    await asyncio.sleep(60)
    passed_over = sent - set(stage.taken())
    assert not [one for one in passed_over if one[0] == "c"]
    # As the page says: in the queues that the new member got before the old one could tell what it wants.
    numbers = {number for _, number in passed_over}
    stored = [event for event in stage.world.history if isinstance(event, facts.Stored) and event.number in numbers]
    assert {owner for event in stored for owner in stage.owners().get(event.queue, [])} <= {"member-2"}
    await stage.end()
