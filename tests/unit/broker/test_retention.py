"""Old messages leave, and offsets stay what they were."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from rocketapp.broker.flushing import DiskThread, Flusher
from rocketapp.broker.indexing import Indexing
from rocketapp.broker.retention import Retention
from rocketapp.broker.store import consume_queue
from rocketapp.broker.store.files import DirectoryFiles, MemoryFiles
from rocketapp.broker.store.key_index import KeyIndex
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.errors import ConfigError
from rocketapp.model.event import LoopFailed
from rocketapp.wire.codes import RequestCode, ResponseCode
from tests.unit.broker.asking import Client, Running, running
from tests.unit.broker.store.disk import Stopped, disk_of
from tests.unit.broker.store.stores import Events, SetClock, bodies, config, delete_topic, open_store, record
from tests.unit.broker.test_pop import Member
from tests.unit.broker.test_timers import send_timed
from tests.unit.broker.test_transactions import COMMIT, end, half
from tests.unit.scripted import in_virtual_time
from tests.unit.wire.other_half import decode_kv_table

LARGE = b"x" * 400_000
"""Two of them fill a segment of these brokers."""
ALWAYS = ";".join(map(str, range(24)))
KEPT = 60.0
"""Seconds that these brokers keep messages."""
OPTIONS = {"delete_when": ALWAYS, "reserved_hours": KEPT / 3600}


class Flushed(DiskThread):
    """Of a log that is on the disk already."""

    async def log_first(self) -> bool:
        return True


class SmallDisk(MemoryFiles):
    """A disk that is used so far."""

    part = 0.5

    def used(self) -> float:
        return self.part


async def fill(client: Client, topic: str, count: int) -> None:
    for _ in range(count):
        assert (await client.send(topic, LARGE, queue_id=0)).code == ResponseCode.SUCCESS


async def ends(client: Client, topic: str) -> tuple[int, int]:
    """First and next offset of queue 0."""
    fields = {"topic": topic, "queueId": "0"}
    answers = [await client.ask(code, fields) for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)]
    first, end = (int((answer.fields or {})["offset"]) for answer in answers)
    return first, end


def segments(broker: Running) -> list[str]:
    return broker.files.names("commitlog")


@in_virtual_time
async def test_messages_leave_after_their_time_and_offsets_go_on() -> None:
    async with running(**OPTIONS) as broker:
        client = await broker.client()
        await client.send("idle", queue_id=0)
        await fill(client, "orders", 5)
        await asyncio.sleep(0.6 * KEPT)
        await fill(client, "orders", 3)
        assert await ends(client, "orders") == (0, 8)
        await asyncio.sleep(0.6 * KEPT)
        assert await ends(client, "orders") == (4, 8)
        assert len(await client.messages("orders", 4, max_messages=32)) == 1  # a pull of more bytes brings one
        moved = await client.pull("orders", 0)
        assert (moved.code, (moved.fields or {})["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "4")
        assert await ends(client, "idle") == (1, 1)
        await client.send("idle", b"second", queue_id=0)
        assert [message.body for message in await client.messages("idle", 1)] == [b"second"]


@in_virtual_time
async def test_first_offsets_are_the_same_after_a_restart_and_after_a_kill() -> None:
    for killed in (False, True):
        async with running(**OPTIONS) as broker:
            client = await broker.client()
            await client.send("idle", queue_id=0)
            await fill(client, "orders", 6)
            await asyncio.sleep(1.3 * KEPT)
            before = segments(broker)
            assert [name for name in before if int(name) < 2 << 20] == []
            await broker.restart(killed=killed)
            client = await broker.client()
            assert await ends(client, "orders") == (4, 6)
            assert await ends(client, "idle") == (1, 1)
            assert len(await client.messages("orders", 4)) == 1
            assert segments(broker) == before


@in_virtual_time
async def test_what_waits_for_its_time_or_its_commit_stays_and_keeps_what_is_behind() -> None:
    async with running(**OPTIONS) as broker:
        client = await broker.client()
        await send_timed(client, 4 * KEPT, "timed")
        await client.send("delayed", properties="DELAY\x016\x02", queue_id=0)  # 2 min
        sent = await half(client)
        await fill(client, "filler", 6)
        for came, topic in ((2.5, "delayed"), (5.0, "timed")):
            await asyncio.sleep(came * KEPT)
            client = await broker.client()
            found = [await client.messages(topic, queue_id=queue_id) for queue_id in range(4)]
            assert sum(map(len, found)) == 1
        assert segments(broker)[0] == "0" * 20
        assert await end(client, sent, COMMIT) == ResponseCode.SUCCESS
        assert len(await client.messages("orders", queue_id=2)) == 1
        await asyncio.sleep(0.5 * KEPT)
        assert int(segments(broker)[0]) == 2 << 20


@in_virtual_time
async def test_a_commit_of_a_half_message_that_has_left_is_refused() -> None:
    files = SmallDisk()
    async with running(files, **OPTIONS) as broker:
        client = await broker.client()
        sent = await half(client)
        await fill(client, "orders", 6)
        files.part = 0.96
        await asyncio.sleep(60)
        assert await end(client, sent, COMMIT) == ResponseCode.SYSTEM_ERROR


@in_virtual_time
async def test_what_leaves_before_a_group_that_pops_is_done_with_it_is_told() -> None:
    async with running(**OPTIONS) as broker:
        one = Member(await broker.client())
        await fill(one.client, "orders", 6)
        assert len(await one.pop(max_messages=1, invisible_ms=4000 * int(KEPT))) == 1
        await asyncio.sleep(1.3 * KEPT)
        assert await ends(one.client, "orders") == (4, 6)
        assert [each.message.offset for each in await one.pop()] == [4]
        await asyncio.sleep(4 * KEPT)
        told = [event.error for event in broker.events if isinstance(event, LoopFailed)]
        assert told == [
            "group billing: from offset 1 on 3 were deleted unread",
            "group billing: from offset 0 on 1 were deleted before they were acknowledged",
        ]


@in_virtual_time
async def test_old_files_wait_for_the_hour_unless_the_disk_fills() -> None:
    files = SmallDisk()
    async with running(files, delete_when="", reserved_hours=KEPT / 3600) as broker:
        client = await broker.client()
        await fill(client, "orders", 6)
        await asyncio.sleep(1.3 * KEPT)
        assert await ends(client, "orders") == (0, 6)
        files.part = 0.8
        await asyncio.sleep(20)
        assert await ends(client, "orders") == (4, 6)


@in_virtual_time
async def test_a_disk_that_fills_is_told_before_messages_are_refused() -> None:
    files = SmallDisk()
    async with running(files) as broker:
        client = await broker.client()
        await fill(client, "orders", 6)
        files.part = 0.96
        await asyncio.sleep(60)
        assert await ends(client, "orders") == (4, 6)
        told = [event.error for event in broker.events if isinstance(event, LoopFailed)]
        assert len(told) == 1
        assert "96 %" in told[0]
        answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert decode_kv_table(answer.body)["commitLogDiskRatio"] == "0.96"
        assert (await client.send("orders")).code == ResponseCode.SUCCESS
        files.part = 0.99
        await asyncio.sleep(20)
        refused = await client.send("orders")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "broker.disk_full_percent" in (refused.remark or "")
        assert "broker.disk_full_percent" in broker.broker.running.facts.state().problem  # so it is not ready
        assert len(await client.messages("orders", 4)) == 1
        files.part = 0.5
        await asyncio.sleep(20)
        assert (await client.send("orders")).code == ResponseCode.SUCCESS
        assert not broker.broker.running.facts.state().problem


@in_virtual_time
async def test_a_file_that_cannot_be_removed_goes_later_and_leaves_no_gap() -> None:
    class Stuck(SmallDisk):
        is_stuck = True

        def remove(self, path: str) -> None:
            if self.is_stuck and path.startswith("commitlog"):
                raise OSError("busy")
            super().remove(path)

    files = Stuck()
    async with running(files, **OPTIONS) as broker:
        client = await broker.client()
        await fill(client, "orders", 6)
        await asyncio.sleep(1.3 * KEPT)
        assert await ends(client, "orders") == (4, 6)
        assert segments(broker)[0] == "0" * 20
        files.is_stuck = False
        await asyncio.sleep(20)
        assert int(segments(broker)[0]) == 2 << 20


@pytest.mark.parametrize("number", range(1, 60, 3))
def test_a_crash_at_any_file_call_leaves_a_log_that_begins_later(number: int) -> None:
    def stop(call: int, name: str, path: str) -> None:
        if call >= number:
            raise Stopped

    disk, clock = disk_of(MemoryFiles()), SetClock()
    store = open_store(disk, clock=clock)
    made = [b"%d" % each + bytes(500) for each in range(600)]
    for body in made:
        store.append(record(body))
        clock.time += 1
    store.flush()
    disk.calls, disk.on_call = 0, stop
    clock.time += 1

    async def run(work: Callable[[], Any]) -> Any:
        return work()

    every_hour = config(reserved_hours=200 / 3600, delete_when=ALWAYS)

    index = KeyIndex(disk, clock.now, slots=11, items=100)
    indexing = Indexing(store, index, cast("Flusher", Flushed("disk", in_thread=False)), Events())
    retention = Retention(store, index, every_hour, clock=clock, observe=Events(), run=run)
    with contextlib.suppress(Stopped):
        asyncio.run(indexing.save())
        asyncio.run(retention.clean(lambda: math.inf))
    for files in (disk.killed(), disk.without_power(Random(number))):
        again = open_store(files, clock=clock)
        first = again.min_offset("T", 0)
        assert again.max_offset("T", 0) == 600
        assert bodies(again) == made[first:]
        assert first <= 400


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_that_is_deleted_while_its_files_leave_stops_no_other_ones_and_a_new_one_keeps_its_own(
    is_made_again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_queue, "FILE_ENTRIES", 10)
    monkeypatch.setattr(consume_queue, "FILE_BYTES", 200)
    disk, clock, refusals = DirectoryFiles(str(tmp_path)), SetClock(), [OSError("busy")]
    store = open_store(disk, clock=clock)
    for _ in range(600):
        store.append(record(bytes(500)))
        clock.time += 1
    store.flush()

    async def run(work: Callable[[], Any]) -> Any:
        if work.__name__ == "_remove" and refusals:
            raise refusals.pop()
        return work()

    index = KeyIndex(disk, clock.now, slots=11, items=100)
    options = config(reserved_hours=200 / 3600, delete_when=ALWAYS)
    retention = Retention(store, index, options, clock=clock, observe=Events(), run=run)
    with pytest.raises(OSError, match="busy"):
        asyncio.run(retention.clean(lambda: math.inf))
    first = disk.names("commitlog")[0]
    delete_topic(store, "T", disk)
    if is_made_again:
        for number in range(3):
            store.append(record(b"%d" % number))
        store.flush()
    asyncio.run(retention.clean(lambda: math.inf))
    assert disk.names("commitlog")[0] > first
    assert disk.names("consumequeue/T/0") == ([f"{0:020d}"] if is_made_again else [])
    store.close()


@in_virtual_time
async def test_hours_are_checked_when_the_broker_starts() -> None:
    broker = Running(delete_when="4 o'clock")
    with pytest.raises(ConfigError, match="delete_when"):
        await broker.start()
    assert isinstance(broker.broker, EmbeddedBroker)
