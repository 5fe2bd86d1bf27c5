"""What waits for its time waits as long as ever when the wall clock of the broker's machine is set back."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.wire import properties as names
from rocketapp.wire.codes import ResponseCode
from tests.unit.broker.asking import Running, running
from tests.unit.broker.test_pop import Member
from tests.unit.scripted import in_virtual_time

BACK = 3600.0
SECONDS = {b"level": 10.0, b"timer": 25.0, b"milliseconds": 25.0, b"moment": 25.0}


async def delay_all(broker: Running, member: Member) -> None:
    """One message of each kind that waits, and one that is popped and another one that failed, for 10 s both."""
    moment = int((broker.clock.now() + SECONDS[b"moment"]) * 1000)
    for body, name, value in (
        (b"level", names.DELAY, "3"),
        (b"timer", names.TIMER_DELAY_SEC, "25"),
        (b"milliseconds", names.TIMER_DELAY_MS, "25000"),
        (b"moment", names.TIMER_DELIVER_MS, str(moment)),
    ):
        properties = names.encode({name: value}).decode()
        assert (await member.client.send("late", body, properties, queue_id=0)).code == ResponseCode.SUCCESS
    for body in (b"popped", b"failed"):
        await member.client.send("orders", body, queue_id=0)
    found = {each.message.body: each for each in await member.pop()}
    assert found.keys() == {b"popped", b"failed"}
    await member.hide(found[b"failed"], 10.0)


async def come(member: Member, since: float, seconds: float) -> dict[bytes, float]:
    """When each message came, in seconds since then."""
    found: dict[bytes, float] = {}
    loop = asyncio.get_running_loop()
    while loop.time() < since + seconds:
        await asyncio.sleep(0.5)
        bodies = [message.body for message in await member.client.messages("late")]
        bodies += [each.message.body for each in await member.pop(invisible_ms=60_000)]
        for body in bodies:
            found.setdefault(body, loop.time() - since)
    return found


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_stored_before", [True, False])
@in_virtual_time
async def test_a_clock_that_is_set_back_makes_nothing_early_or_late(is_stored_before: bool, is_restarted: bool) -> None:
    async with running() as broker:
        member = Member(await broker.client())
        await member.client.send("orders", b"first", queue_id=0)
        await member.ack(*await member.pop())
        if is_stored_before:
            await delay_all(broker, member)
        broker.clock.epoch -= BACK
        since = broker.loop.time()
        if is_restarted:
            await broker.restart(killed=True)
            member = Member(await broker.client())
        if not is_stored_before:
            await delay_all(broker, member)
        found = await come(member, since, 30.0)
        assert found.keys() == {*SECONDS, b"popped", b"failed"}
        for body, at in found.items():
            assert SECONDS.get(body, 10.0) <= at + 0.01 <= SECONDS.get(body, 10.0) * 1.01 + 2.5


@in_virtual_time
async def test_a_clock_that_is_set_forward_is_followed_at_once() -> None:
    async with running() as broker:
        member = Member(await broker.client())
        properties = names.encode({names.TIMER_DELAY_SEC: "3600"}).decode()
        assert (await member.client.send("late", b"x", properties, queue_id=0)).code == ResponseCode.SUCCESS
        await asyncio.sleep(50)
        broker.clock.epoch += 3549.5
        await asyncio.sleep(3)
        assert [message.body for message in await member.client.messages("late")] == [b"x"]


@in_virtual_time
async def test_members_whose_clock_is_set_back_with_the_brokers_go_on_to_pop() -> None:
    """Java's say when they have asked: what was asked for too long ago is refused."""
    async with running() as broker:
        member = Member(await broker.client())
        await member.client.send("orders", b"x", queue_id=0)
        broker.clock.epoch -= BACK
        found = await member.pop(born_ms=int(broker.clock.now() * 1000), poll=15.0)
        assert [one.message.body for one in found] == [b"x"]
