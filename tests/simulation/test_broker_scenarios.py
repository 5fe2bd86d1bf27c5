"""Brokers that restart, freeze and go: what their queues, and those of the other brokers, see of it."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.wire.record import Message
from tests.simulation import history as facts
from tests.simulation.brokers import Broker
from tests.simulation.stage import Stage, at_once, scenario
from tests.simulation.threads import block
from tests.simulation.world import Topic

ORDERS, MOVES = Topic(name="orders"), Topic(name="moves", orderly=True)


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize("delay", [0.5, 2.0, 5.0, 10.0])
@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
@scenario
async def test_a_member_that_joins_after_a_restart_gets_no_orderly_queue_of_a_running_handler(
    crash: bool, delay: float, sync: bool
) -> None:
    """The broker forgot the locks, and gave them to the member that asked first."""

    async def behave(message: Message) -> None:
        await asyncio.sleep(8 if int(message.text()) % 10 == 0 else 0.05)

    def behave_blocked(message: Message) -> None:
        block(8 if int(message.text()) % 10 == 0 else 0.05)

    stage = Stage(Topic(name="moves", orderly=True, sync=sync), behave=behave, block=behave_blocked, latency=0.005)
    await stage.begin()
    await stage.join()
    await stage.send("moves", 80)
    await asyncio.sleep(1)
    await restart(stage.broker, crash=crash)
    await asyncio.sleep(delay)
    await stage.join()
    await stage.calm(120)
    starts = [event.number for event in stage.started()]
    assert len(starts) == len(set(starts))
    await stage.end()


async def restart(broker: Broker, *, crash: bool) -> None:
    if crash:
        broker.crash()
    else:
        await broker.stop()
    await broker.start()


@scenario
async def test_a_kill_repeats_at_most_one_batch_of_an_orderly_queue() -> None:
    async def behave(message: Message) -> None:
        await asyncio.sleep(0.01)

    stage = Stage(MOVES, behave=behave, latency=0.002)
    await stage.begin()
    await stage.send("moves", 400, key="one queue")
    first = await stage.join()
    await stage.until(lambda: len(stage.done()) >= 150)
    first.crash()
    await stage.join()
    await stage.until(lambda: {event.number for event in stage.done()} == set(range(1, 401)), 120)
    assert len(stage.started()) - 400 <= 32 + 1  # and the one that ran
    await stage.calm(10)
    await stage.end()


@scenario
async def test_an_orderly_queue_is_committed_as_soon_as_it_is_idle() -> None:
    stage = Stage(MOVES, behave=at_once)
    await stage.begin()
    await stage.join()
    for number in range(1, 6):
        await stage.send("moves", 1, key="one queue")
        sent = stage.now
        await stage.until(lambda number=number: number in stage.committed(), 1)
        assert stage.now - sent <= 0.1
    await stage.end()


@scenario
async def test_a_restarted_broker_does_not_delay_what_others_give_to_a_newcomer() -> None:
    """The others decided nothing for two seconds after that broker came back, and consumed what the newcomer had."""
    stage = Stage(ORDERS, latency=0.02, brokers=3)
    await stage.begin()
    await stage.join()
    await stage.join()
    await asyncio.sleep(5)
    stage.brokers[0].crash()
    await stage.brokers[0].start()
    # A queue that waits for its owner is begun by it just before the newcomer gets it.
    await asyncio.sleep(0.2)
    await stage.send("orders", 24)
    joined = stage.now
    await stage.join()
    await asyncio.sleep(1)
    await stage.send("orders", 24)
    await asyncio.sleep(4)
    for queue in {event.queue for event in stage.started() if facts.broker_of(event.queue) != "broker-a"}:
        late = [
            event.at
            for event in stage.world.history
            if isinstance(event, facts.Released) and event.queue == queue and event.at > joined + 1
        ]
        assert late == [], f"{queue} was given up late"
    await stage.calm(60)
    await stage.end()
