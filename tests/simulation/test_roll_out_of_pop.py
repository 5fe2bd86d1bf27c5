"""A roll-out of a popped topic: brokers pass over what a request does not ask for, whoever else wants it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from tests.simulation.stage import scenario
from tests.simulation.test_roll_out import Groups
from tests.simulation.world import Topic, number_of

POPPED = Topic(name="orders", popped=True)


@pytest.mark.parametrize("latency", [0.0, 0.002])
@scenario
async def test_nothing_is_passed_over_by_a_request_that_a_broker_held_before_a_new_member_came(latency: float) -> None:
    stage = Groups(POPPED, latency=latency)
    await stage.begin()
    await stage.send_tags("a", 8)
    old = await stage.member(orders="a")
    await asyncio.sleep(5)
    began = stage.now
    new = await stage.member(orders="b")
    assert stage.now - began < 16  # brokers hold a request for up to 15 s
    sends = [(tag, asyncio.ensure_future(stage.sender.send("orders", tag=tag))) for tag in 4 * "bbba"]
    sent = {(tag, await number) for tag, number in sends}
    await asyncio.sleep(60)
    assert sent - set(stage.taken()) == set()
    assert old.unmatched() == new.unmatched() == 0
    await stage.end()


@scenario
async def test_what_waits_for_a_paused_member_is_offered_now_and_then_and_its_queue_says_why() -> None:
    stage, asked = Groups(POPPED), Counter[int]()

    def hear(command: Command) -> None:
        asked[command.code] += 1

    await stage.begin()
    await stage.send_tags("a", 1)
    old, new = await stage.member(orders="a"), await stage.member(orders="b")
    await asyncio.sleep(30)
    new.consumer.pause("orders", "for a test")
    await asyncio.sleep(5)
    stage.broker.overhear(hear)
    sent = await stage.send_tags("b", 4)
    await asyncio.sleep(60)
    (queue,) = [one for one in old.consumer.snapshot().queues if one.queue.topic == "orders"]
    assert "this app has no handler for" in queue.blocked
    assert asked[RequestCode.CONSUME_MESSAGE_DIRECTLY] < 200
    new.consumer.resume("orders")
    await stage.all_taken(sent, 60)
    await stage.end()


@pytest.mark.parametrize("failures", [1, 2, 3])
@scenario
async def test_a_message_that_failed_is_retried_although_a_member_without_a_handler_for_it_pops_it(
    failures: int,
) -> None:
    failed = Counter[int]()

    async def fail_first(message: Message) -> None:
        failed[number_of(message.body)] += 1
        if failed[number_of(message.body)] <= failures:
            raise ValueError("not yet")

    stage = Groups(replace(POPPED, retries=2))
    await stage.begin()
    await stage.send_tags("a", 1)
    await stage.member(orders="a")
    new = await stage.member(orders="b", handle=fail_first)
    sent = await stage.send_tags("b")
    await asyncio.sleep(200)
    dead = stage.broker.dead_letters()
    assert (len({*new.taken} & sent), dead) == ((8, 0) if failures < 3 else (0, 8))
    assert set(failed.values()) == {min(3, failures + 1)}
    await stage.end()
