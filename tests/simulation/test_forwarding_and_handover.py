"""forward x pause x third member: the hand-over of a queue waits for turns that messages of other queues hold."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.stage import scenario
from tests.simulation.test_forwarding import settled
from tests.simulation.test_roll_out import Groups
from tests.simulation.world import Topic

KEYED = Topic(name="orders", keyed=True)


@pytest.mark.parametrize("topic", [KEYED], ids=["keyed"])
@scenario
async def test_a_third_member_gets_its_queues_while_a_taker_is_paused(topic: Topic) -> None:
    stage = Groups(topic, brokers=3)
    await stage.begin()
    for n in range(60):
        await stage.sender.send("orders", f"k{n}", tag="a")
    paused = await stage.member(orders="b")
    await stage.member(orders="a")
    await settled(stage)
    paused.consumer.pause("orders", "stock is counted")
    waiting = {("b", await stage.sender.send("orders", f"k{n}", tag="b")) for n in range(200)}
    await asyncio.sleep(30)
    await stage.member(orders="a")
    await asyncio.sleep(60)
    owners = {queue: owners for queue, owners in stage.owners().items() if queue.startswith("orders@")}
    counts = {m: sum(m in each for each in owners.values()) for m in ("member-1", "member-2", "member-3")}
    wanted = {("a", await stage.sender.send("orders", f"other{n}", tag="a")) for n in range(300)}
    await asyncio.sleep(600)
    missing = wanted - set(stage.taken())
    assert counts == {"member-1": 4, "member-2": 4, "member-3": 4}, (counts, len(missing))
    paused.consumer.resume("orders")
    await stage.all_taken(wanted | waiting, 120)
    await stage.end()
