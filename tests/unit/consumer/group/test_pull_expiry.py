"""A queue is pulled again when what comes before a pull hangs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from rocketapp.consumer.brokers import Brokers
from rocketapp.errors import RocketAppError
from rocketapp.model.event import LoopFailed, Released
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed
from tests.unit.scripted import eventually, in_virtual_time


class _UnshowableError(RocketAppError):
    def __str__(self) -> str:
        raise ValueError("no words")


@in_virtual_time
async def test_a_queue_whose_pulls_hang_for_two_minutes_is_pulled_again_and_said_but_not_one_that_may_not_pull(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, taken = FakeCluster(), list[int]()
    await cluster.start()
    stuck, paused = (cluster.create(name)[0] for name in ("stuck", "paused"))

    async def take(message: Message) -> None:
        taken.append(message.offset)

    member = await cluster.member(consumed(take, topic="stuck"), consumed(take, topic="paused")).start()
    await eventually(lambda: len(cluster.requests(RequestCode.PULL_MESSAGE, topic="stuck")) == 1, 3)
    member.consumer.pause("paused", "by the test")
    to_pull, began = Brokers.to_pull, asyncio.get_running_loop().time()

    async def never(brokers: Brokers, queue: Any, *others: Any) -> Any:
        if queue.topic == "stuck":
            await asyncio.get_running_loop().create_future()
        return await to_pull(brokers, queue, *others)

    # A bug: a pull that neither fails nor ends.
    monkeypatch.setattr(Brokers, "to_pull", never)
    monkeypatch.setattr(Brokers, "recognised_at", lambda _brokers, _queue: None)
    await eventually(lambda: bool(member.events.of(LoopFailed)), 180)
    assert 120 < asyncio.get_running_loop().time() - began < 165
    (failed,) = member.events.of(LoopFailed)
    assert failed == LoopFailed(f"pull {stuck}", "it was not pulled for 120 s: what it waited for is given up")
    monkeypatch.undo()
    cluster.send_many(stuck, 3)
    await eventually(lambda: taken == [0, 1, 2], 150)
    assert paused in member.consumer.snapshot().blocked
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_queue_whose_offset_is_refused_is_pulled_again_when_the_look_at_its_records_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, taken, looks = FakeCluster(), list[int](), count()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.offsets["group", queue] = 500  # nothing is there
    recognise = Brokers.recognise

    async def take(message: Message) -> None:
        taken.append(message.offset)

    async def hangs_once(brokers: Brokers, where: Any, connection: Any) -> bool:
        if where == queue and next(looks) == 1:  # 0: before the first pull
            await asyncio.get_running_loop().create_future()
        return await recognise(brokers, where, connection)

    monkeypatch.setattr(Brokers, "recognise", hangs_once)
    member = await cluster.member(consumed(take)).start()
    cluster.send_many(queue, 3)
    await asyncio.sleep(100)
    assert taken == []
    await eventually(lambda: len(taken) == 3, 30)
    assert "it was not pulled for 120 s" in str(member.events.of(LoopFailed))
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_pull_that_ends_at_once_by_a_time_limit_of_others_says_so_and_is_tried_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = FakeCluster()
    await cluster.start()
    cluster.create("topic")

    async def never_called(_message: Message) -> None:
        raise AssertionError("nothing can be pulled")

    async def times_out(*_: Any) -> Any:
        await asyncio.sleep(0.01)
        raise TimeoutError("a limit of 10 ms")

    monkeypatch.setattr(Brokers, "to_pull", times_out)
    member = await cluster.member(consumed(never_called)).start()
    await asyncio.sleep(10)
    assert 5 < len(member.events.of(LoopFailed)) < 40
    assert {failed.error for failed in member.events.of(LoopFailed)} == {"TimeoutError: a limit of 10 ms"}
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_queue_whose_pull_loop_ends_by_a_bug_is_consumed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, taken, failures = FakeCluster(), list[int](), count()
    await cluster.start()
    (queue,) = cluster.create("topic")

    async def take(message: Message) -> None:
        taken.append(message.offset)

    async def fails_once(brokers: Brokers, where: Any, *others: Any) -> Any:
        if next(failures) == 0:
            raise _UnshowableError("the first pull")
        return await to_pull(brokers, where, *others)

    to_pull = Brokers.to_pull
    monkeypatch.setattr(Brokers, "to_pull", fails_once)
    monkeypatch.setattr(Brokers, "recognised_at", lambda _brokers, _queue: None)
    member = await cluster.member(consumed(take)).start()
    cluster.send_many(queue, 3)
    await eventually(lambda: taken == [0, 1, 2], 30)
    assert "no words" in str(member.events.of(LoopFailed))
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_queue_whose_process_stood_still_for_two_minutes_is_not_consumed_anew() -> None:
    """Its loop looks at the pulls before these get their turn."""
    cluster, taken = FakeCluster(), list[int]()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 3)

    async def take(message: Message) -> None:
        taken.append(message.offset)

    member = await cluster.member(replace(consumed(take, retries=0), broadcast=True)).start()
    await eventually(lambda: len(taken) == 3)
    cluster.loop.stand_still(130)
    await asyncio.sleep(60)
    assert member.events.of(Released) == []
    assert await member.stop()
    await cluster.stop()
