"""Scenarios of hours in a blink: retries, dead letters, locks, outages, flow control."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from rocketapp.model import event as events
from rocketapp.model.names import DELAY_SECONDS
from rocketapp.model.outcome import DeadLetter
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from tests.simulation import history as facts
from tests.simulation.stage import Stage, scenario
from tests.simulation.world import ADDRESS, Topic

ORDERS, MOVES = Topic(name="orders", retries=16), Topic(name="moves", orderly=True)


async def fail(message: Message) -> None:
    raise ValueError("no")


@scenario
async def test_the_ladder_of_sixteen_retries_is_climbed_on_time_and_ends_in_the_dead_letters() -> None:
    stage = Stage(ORDERS, behave=fail)
    stage.broker.pace = replace(stage.broker.pace, delays=60.0)
    await stage.begin()
    await stage.join()
    await stage.send("orders", 1)
    await stage.until(lambda: len(stage.started(1)) == 17, 6 * 3600, every=30)
    began = [event.at for event in stage.started(1)]
    waits = [later - earlier for earlier, later in pairwise(began)]
    # 10 s, 30 s, 1 min ... 2 h: levels 3 to 18 of the broker, which looks at most half a second late.
    assert waits == pytest.approx(DELAY_SECONDS[2:], abs=0.6)
    early = [(wait, delay) for wait, delay in zip(waits, DELAY_SECONDS[2:], strict=True) if wait < delay - 0.001]
    assert early == []
    assert [event.attempt for event in stage.started(1)] == list(range(1, 18))
    (dead,) = [event for event in stage.world.history if isinstance(event, facts.Stored) and "%DLQ%" in event.queue]
    assert dead.at - began[-1] < 2
    assert stage.broker.dead_letters() == 1
    await stage.calm(10)  # no copy of it waits at the broker, at whatever delay
    assert len(stage.started(1)) == 17
    await stage.end()


@scenario
async def test_an_orderly_message_is_retried_in_place_every_second_and_then_frees_its_queue() -> None:
    async def behave(message: Message) -> None:
        if message.text() == "1":
            raise ValueError("no")

    stage = Stage(Topic(name="moves", orderly=True, retries=16), behave=behave)
    await stage.begin()
    await stage.join()
    await stage.send("moves", 3, key="k")
    await stage.until(lambda: len(stage.done()) == 2, 60)
    began = [event.at for event in stage.started(1)]
    assert [event.attempt for event in stage.started(1)] == list(range(1, 18))
    waits = [later - earlier for earlier, later in pairwise(began)]
    assert waits == pytest.approx([1.0] * 16, abs=0.01)
    assert stage.broker.dead_letters() == 1
    assert stage.started(2)[0].at - began[-1] < 0.5
    await stage.calm(10)
    await stage.end()


@scenario
async def test_a_killed_orderly_member_is_followed_when_its_locks_have_ended_and_not_before() -> None:
    stage = Stage(MOVES)
    await stage.begin()
    await stage.send("moves", 8)
    first = await stage.join()
    await stage.until(lambda: len(stage.done()) == 8)
    await asyncio.sleep(45)
    # Locks are renewed every 20 s: the last time 5 s ago, so that they live for 55 s more.
    first.crash()
    killed = stage.now
    await stage.join()
    await stage.send("moves", 8)
    await stage.until(lambda: {event.number for event in stage.done()} == set(range(1, 17)), 70)
    taken = [event.at for event in stage.started() if event.member == "member-2"]
    assert killed + 50 < min(taken) <= killed + 62
    await stage.calm(10)
    await stage.end()


@pytest.mark.parametrize("topic", [ORDERS, MOVES], ids=["concurrent", "orderly"])
@scenario
async def test_a_clean_leave_hands_over_within_two_seconds_and_repeats_nothing(topic: Topic) -> None:
    async def behave(message: Message) -> None:
        await asyncio.sleep(0.2)

    stage = Stage(topic, behave=behave)
    await stage.begin()
    first, _ = await stage.join(), await stage.join()
    sending = stage.sender.send_all(topic.name, "k", 100, lambda: 0.1)
    others = [stage.sender.send_all(topic.name, f"k{number}", 100, lambda: 0.1) for number in range(7)]
    await asyncio.sleep(5)
    left = stage.now
    assert await first.leave()
    gone = stage.now
    assert gone - left < 1
    await stage.until(lambda: all(owners == ["member-2"] for owners in stage.owners().values()), 2)
    await asyncio.gather(sending, *others)
    await stage.calm(60)
    assert len(stage.done()) == 800
    await stage.end()


@scenario
async def test_ten_minutes_without_a_broker_lose_nothing_and_end_by_themselves() -> None:
    stage = Stage(Topic(name="orders"), MOVES)
    await stage.begin()
    for topic in ("orders", "moves"):
        await stage.send(topic, 20)
    await stage.join()
    await stage.join()
    await asyncio.sleep(0.5)
    stage.broker.crash()
    await asyncio.sleep(600)
    await stage.broker.start()
    back = stage.now
    await stage.sender.send("orders")
    await stage.sender.send("moves")
    everything = set(range(1, 43))
    await stage.until(lambda: {event.number for event in stage.done()} >= everything, 35)
    assert stage.now - back <= 35
    await stage.calm(35)
    await stage.end()


@scenario
async def test_nothing_is_handled_while_the_offset_cannot_be_read_and_then_from_the_right_one() -> None:
    stage = Stage(Topic(name="orders"))
    await stage.begin()
    await stage.send("orders", 40)
    first = await stage.join()
    await stage.until(lambda: len(stage.done()) == 40)
    await first.leave()
    await stage.send("orders", 8)

    def refuse(command: Command) -> Command | None:
        if command.code == RequestCode.QUERY_CONSUMER_OFFSET and stage.now < until:
            return Command.response(command, ResponseCode.SYSTEM_ERROR, remark="as the test wants it")
        return None

    stage.broker.overhear(refuse)
    until = stage.now + 60
    began = stage.now
    await stage.join()
    await stage.until(lambda: len(stage.done()) == 48, 70)
    again = [event for event in stage.started() if event.at > began]
    assert min(event.at for event in again) >= until
    assert sorted(event.number for event in again) == list(range(41, 49))
    await stage.calm(10)
    await stage.end()


@scenario
async def test_a_drain_waits_for_running_handlers_and_loses_and_repeats_nothing() -> None:
    async def behave(message: Message) -> None:
        await asyncio.sleep(5 if int(message.text()) % 10 == 0 else 0.01)

    stage = Stage(Topic(name="orders", concurrency=8), Topic(name="moves", orderly=True), behave=behave)
    await stage.begin()
    for number in range(100):
        await stage.send(("orders", "moves")[number % 2], 1)
    first = await stage.join()
    await stage.until(lambda: first.running >= 8)
    began = stage.now
    assert await first.leave(drain_timeout=30)
    assert first.running == 0
    assert stage.now - began <= 25
    handled = len(stage.done())
    assert 0 < handled < 100
    await stage.join()
    await stage.calm(120)
    assert len(stage.started()) == len(stage.done()) == 100
    await stage.end()


@scenario
async def test_a_cut_drain_commits_nothing_that_did_not_end() -> None:
    async def behave(message: Message) -> None:
        await asyncio.sleep(100 if message.attempt == 1 and stage.now < 50 else 0.01)

    stage = Stage(Topic(name="orders"), behave=behave)
    await stage.begin()
    await stage.send("orders", 8)
    first = await stage.join()
    await stage.until(lambda: first.running == 8)
    began = stage.now
    assert not await first.leave(drain_timeout=3)
    assert 3 <= stage.now - began <= 5
    assert {offset for number in range(4) for _, offset in stage.commits(f"orders@broker-a:{number}")} <= {0}
    await asyncio.sleep(50)
    await stage.join()
    await stage.until(lambda: len(stage.done()) == 8)
    await stage.end()


@scenario
async def test_a_hung_handler_pins_its_offset_and_the_others_go_on_until_the_span_limit() -> None:
    gate = asyncio.Event()

    async def behave(message: Message) -> None:
        if message.text() == "5":
            await gate.wait()

    stage = Stage(Topic(name="orders"), behave=behave, queue_max_span=200)
    await stage.begin()
    await stage.join()
    await stage.send("orders", 400, key="one queue")
    await asyncio.sleep(60)
    (queue,) = {event.queue for event in stage.started()}
    pinned = [offset for _, offset in stage.commits(queue)]
    assert max(pinned) == 4
    # Pulls stop at the limit; what is on its way by then, a pull of 32 at most, still comes.
    assert 200 <= max(event.offset for event in stage.started()) - 4 <= 200 + 2 * 32
    reasons = stage.members[0].consumer.snapshot().blocked
    assert [reason for reason in reasons.values() if "queue_max_span 200" in reason]
    gate.set()
    await stage.calm(10)
    assert len(stage.started()) == 400
    await stage.end()


@scenario
async def test_half_an_hour_of_flow_control_neither_recurse_nor_keep_anything() -> None:
    async def behave(message: Message) -> None:
        await asyncio.sleep(4)

    stage = Stage(Topic(name="orders", concurrency=1), behave=behave, queue_max_messages=2, pull_batch_size=1)
    await stage.begin()
    await stage.send("orders", 450, key="one queue")
    member = await stage.join()
    await asyncio.sleep(900)
    halfway = len([task for task in asyncio.all_tasks() if not task.done()])
    await asyncio.sleep(900)
    assert len([task for task in asyncio.all_tasks() if not task.done()]) <= halfway
    assert len(stage.done()) == pytest.approx(450, abs=2)
    problems = [event for _, _, event in stage.world.observed if isinstance(event, events.LoopFailed)]
    assert problems == []
    assert len(member.consumer.snapshot().blocked) <= 1
    await stage.calm(60)
    await stage.end()


@scenario
async def test_what_is_published_to_a_new_topic_right_after_joining_is_seen_though_it_starts_at_the_end() -> None:
    stage = Stage(Topic(name="brand-new", start="last"), Topic(name="brand-new-too", orderly=True, start="last"))
    await stage.begin()
    member = await stage.join()
    await asyncio.sleep(100)
    # As a function of the app's on_startup would: in the member's own process.
    assert not stage.started()
    await stage.send("brand-new", 4)
    await stage.send("brand-new-too", 4)
    await stage.until(lambda: len(stage.done()) == 8, 31)
    assert member.consumer.counters.handled == 8
    await stage.calm(10)
    await stage.end()


@scenario
async def test_half_open_connections_are_noticed_and_left_within_35_seconds() -> None:
    stage = Stage(Topic(name="orders"))
    await stage.begin()
    await stage.send("orders", 4)
    await stage.join()
    await stage.until(lambda: len(stage.done()) == 4)
    stage.world.network.hold(ADDRESS)
    held = stage.now
    await stage.until(
        lambda: [
            name
            for _, name, event in stage.world.observed
            if isinstance(event, events.Disconnected) and name != "sender"
        ],
        60,
    )
    assert stage.now - held <= 35
    stage.world.network.release(ADDRESS)
    released = stage.now
    await stage.send("orders", 4)
    await stage.until(lambda: len(stage.done()) == 8, 5)
    assert stage.now - released <= 5
    await stage.end()


@scenario
async def test_dead_letters_of_a_mixed_group_arrive_once_although_the_broker_bounces() -> None:
    async def behave(message: Message) -> None:
        raise DeadLetter("never")

    stage = Stage(Topic(name="orders"), MOVES, behave=behave)
    await stage.begin()
    await stage.send("orders", 10)
    await stage.send("moves", 10)
    await stage.broker.stop()
    await stage.broker.start()
    await stage.join()
    await stage.until(lambda: stage.broker.dead_letters() == 20)
    await stage.calm(10)
    assert stage.broker.dead_letters() == 20
    assert not [event for event in stage.world.history if isinstance(event, facts.Stored) and "SCHEDULE" in event.queue]
    await stage.end()


@scenario
async def test_a_topic_that_is_created_long_after_the_start_is_consumed_at_once() -> None:
    stage = Stage(ORDERS)
    await stage.begin()
    await stage.join()
    await asyncio.sleep(45)  # by now the name server is asked for it twice a minute
    sent = stage.now
    await stage.send("orders", 1)
    await stage.until(stage.done, 1)
    assert stage.now - sent < 1
    await stage.calm(10)
    await stage.end()
