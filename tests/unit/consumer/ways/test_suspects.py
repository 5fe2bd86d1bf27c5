"""Messages that may have ended a process run while nothing else of the process is started."""

from __future__ import annotations

import asyncio
import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rocketapp.consumer.crashes import Crashes
from rocketapp.consumer.suspect_line import PATIENCE, Suspected, SuspectLine
from rocketapp.model.event import Moving, StandingStill
from rocketapp.model.names import dlq_topic
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed
from tests.unit.consumer.reports import message
from tests.unit.scripted import eventually, in_virtual_time

GUILTY = 4
WAYS: list[dict[str, Any]] = [{}, {"orderly": True}, {"batch": 3}, {"order_by": lambda message: message.offset % 3}]


def crashes_with(directory: Path, suspects: dict[str, dict[int, list[float]]]) -> Crashes:
    (directory / "suspects.json").write_text(json.dumps(suspects))
    return Crashes(directory, now=lambda: 1000.0, tell=lambda _: None)


def suspected(*groups: str) -> dict[str, dict[int, list[float]]]:
    """Three messages of each of three queues; one has ended the process alone, three times."""
    found: dict[str, dict[int, list[float]]] = {
        f"{group} topic@broker-a:{number}": {offset: [1, 0, 1000.0] for offset in (2, 3, GUILTY)}
        for group in groups
        for number in range(3)
    }
    found[f"{groups[0]} topic@broker-a:1"][GUILTY] = [3, 2, 1000.0]
    return found


class Watched:
    """Messages that run, and whether anything was started beside a suspect."""

    def __init__(self) -> None:
        self.running: list[bool] = []
        self.lock = threading.Lock()
        self.beside = self.suspects = 0

    def begin(self, item: Any) -> bool:
        messages = [item] if isinstance(item, Message) else item
        is_suspect = any(each.offset in (2, 3, GUILTY) for each in messages)
        with self.lock:
            self.beside += any(self.running) or (is_suspect and len(messages) > 1)
            self.suspects += is_suspect
            self.running.append(is_suspect)
        return is_suspect

    def end(self, is_suspect: bool) -> None:
        with self.lock:
            self.running.remove(is_suspect)

    async def call(self, item: Any) -> None:
        is_suspect = self.begin(item)
        await asyncio.sleep(0.5)
        self.end(is_suspect)

    def block(self, item: Any) -> None:
        is_suspect = self.begin(item)
        threading.Event().wait(0.005)
        self.end(is_suspect)


async def with_topic() -> FakeCluster:
    cluster = FakeCluster()
    await cluster.start()
    for queue in cluster.create("topic", queues=3):
        cluster.send_many(queue, 8, k="k")
    return cluster


@pytest.mark.parametrize("options", WAYS)
@in_virtual_time
async def test_suspects_of_all_groups_of_a_process_run_one_at_a_time(options: dict[str, Any], tmp_path: Path) -> None:
    cluster, watched = await with_topic(), Watched()
    crashes = crashes_with(tmp_path, suspected("one", "two"))
    members = [
        cluster.member(consumed(watched.call, retries=2, **{**options, **more}), group=group, crashes=crashes)
        for group, more in (("one", {}), ("two", {"orderly": True}))
    ]
    for member in members:
        await member.start()
    await eventually(lambda: sum(member.consumer.counters.handled for member in members) == 47, 60)
    assert (watched.beside, watched.suspects) == (0, 17)
    await eventually(lambda: members[0].consumer.counters.dead_lettered == 1)
    assert cluster.bodies(dlq_topic("one")) == [b"%d" % GUILTY]
    for member in members:
        assert await member.stop()
    assert crashes.suspects("one", message(0).queue, 0) == {}  # type: ignore[arg-type]
    crashes.close()
    await cluster.stop()


@pytest.mark.parametrize("options", WAYS)
async def test_suspects_of_handlers_in_threads_run_one_at_a_time(options: dict[str, Any], tmp_path: Path) -> None:
    cluster, watched = await with_topic(), Watched()
    crashes = crashes_with(tmp_path, suspected("group"))
    handled = consumed(watched.block, is_async=False, concurrency=3, retries=2, **options)
    member = await cluster.member(handled, crashes=crashes).start()
    await eventually(lambda: member.consumer.counters.handled == 23, 20)
    assert (watched.beside, watched.suspects) == (0, 8)
    await eventually(lambda: member.consumer.counters.dead_lettered == 1)
    assert await member.stop()
    crashes.close()
    await cluster.stop()


@pytest.mark.parametrize("options", WAYS)
@in_virtual_time
async def test_queues_that_wait_for_suspects_say_so_and_move_again(options: dict[str, Any], tmp_path: Path) -> None:
    cluster = await with_topic()
    crashes = crashes_with(tmp_path, {"group topic@broker-a:0": {0: [1, 0, 1000.0]}})

    async def handle(item: Any) -> None:
        first = item if isinstance(item, Message) else item[0]
        if (first.queue_id, first.offset) == (0, 0):
            await asyncio.sleep(20)

    member = await cluster.member(consumed(handle, **options), crashes=crashes).start()
    await asyncio.sleep(4)
    waiting = {queue.queue_id: reason for queue, reason in member.consumer.standing_still().items()}
    assert waiting == dict.fromkeys((1, 2), "waits while 1 message that may have ended the process is handled alone")
    assert member.events.of(StandingStill) == []
    await asyncio.sleep(6)
    assert {one.queue.queue_id for one in member.events.of(StandingStill)} == {1, 2}
    await eventually(lambda: member.consumer.counters.handled == 24, 60)
    await asyncio.sleep(2)
    assert {one.queue.queue_id for one in member.events.of(Moving)} == {1, 2}
    assert member.consumer.standing_still() == {}
    assert await member.stop()
    crashes.close()
    await cluster.stop()


def in_line(line: SuspectLine, owner: str, number: int, started: list[Any]) -> Message:
    suspect = message(number)
    line.add(Suspected(owner, None, partial(started.append, number), suspect), partial(started.append, owner))
    return suspect


@in_virtual_time
async def test_others_wait_no_longer_than_their_patience_for_a_suspect_and_suspects_until_it_ends() -> None:
    line, started = SuspectLine(), list[Any]()
    first, _ = in_line(line, "one", 1, started), in_line(line, "two", 2, started)
    await asyncio.sleep(PATIENCE - 1)
    assert (started, line.is_busy) == ([1], True)
    await asyncio.sleep(2)
    assert (started, line.is_busy) == ([1, "one", "two"], False)
    line.ended(first)
    assert (started, line.is_busy) == ([1, "one", "two", 2], True)


@in_virtual_time
async def test_a_suspect_whose_queue_is_given_up_keeps_its_turn_if_it_has_started() -> None:
    line, started = SuspectLine(), list[Any]()
    first, second = in_line(line, "one", 1, started), in_line(line, "two", 2, started)
    assert line.take_back("one") == []
    assert started == [1]
    line.ended(first)
    assert started == [1, 2]
    line.take_back("two", [second])
    assert not line.is_busy
