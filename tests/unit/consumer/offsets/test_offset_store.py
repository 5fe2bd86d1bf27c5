"""A group whose offsets a store of the user's own keeps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rocketapp.model.event import CommitFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.plugin import Taken
from rocketapp.testing import check_offset_store
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.pull import FLAG_COMMIT
from rocketapp.wire.requests.reset_offset import encode_reset
from tests.unit.consumer.fake_cluster import Asked, FakeCluster, consumed
from tests.unit.consumer.offsets.sqlite_offsets import SQLiteOffsets
from tests.unit.consumer.seen import Seen, started
from tests.unit.consumer.test_where_it_reads import replaced
from tests.unit.scripted import eventually, in_virtual_time


class Rows:
    """What a store keeps: by group and queue the epoch and the offset."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, MessageQueue], tuple[int, int | None]] = {}
        self.problem: Exception | None = None


class MemoryOffsets:
    """A store of one process; several may share their rows."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def take(self, group: str, queue: MessageQueue) -> Taken:
        self._fail()
        epoch, offset = self._rows.rows.get((group, queue), (0, None))
        self._rows.rows[group, queue] = epoch + 1, offset
        return Taken(epoch + 1, offset)

    async def read(self, group: str, queue: MessageQueue) -> int | None:
        self._fail()
        return self._rows.rows.get((group, queue), (0, None))[1]

    async def write(self, group: str, queue: MessageQueue, offset: int, epoch: int) -> bool:
        self._fail()
        there = self._rows.rows.get((group, queue))
        if there is not None and (epoch == 0 or epoch < there[0]):
            return False
        self._rows.rows[group, queue] = max(epoch, 0 if there is None else there[0]), offset
        return True

    def _fail(self) -> None:
        if self._rows.problem is not None:
            raise self._rows.problem


async def test_a_store_in_memory_does_what_the_contract_says() -> None:
    rows = Rows()
    await check_offset_store(lambda: MemoryOffsets(rows))


async def test_a_store_in_sqlite_does_what_the_contract_says(tmp_path: Path) -> None:
    await check_offset_store(lambda: SQLiteOffsets(tmp_path / "offsets.db"))


async def _done(message: Any) -> None: ...


class SlowOffsets(MemoryOffsets):
    """A store that answers late, but within `consumer.commit_timeout`."""

    async def read(self, group: str, queue: MessageQueue) -> int | None:
        await asyncio.sleep(2.0)
        return await super().read(group, queue)


async def one_queue(messages: int) -> tuple[FakeCluster, MessageQueue]:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)
    cluster.send_many(queue, messages)
    return cluster, queue


@in_virtual_time
async def test_offsets_are_kept_in_the_store_and_brokers_hear_of_them() -> None:
    cluster, queue = await one_queue(10)
    rows = Rows()
    member = await cluster.member(consumed(_done), offset_store=MemoryOffsets(rows)).start()
    await eventually(lambda: rows.rows.get(("group", queue)) == (1, 10), 20)
    await eventually(lambda: cluster.offsets.get(("group", queue)) == 10, 60)
    await member.stop()
    cluster.offsets.clear()
    cluster.send_many(queue, 5)
    again = await cluster.member(consumed(_done), offset_store=MemoryOffsets(rows)).start()
    await eventually(lambda: rows.rows["group", queue] == (2, 15), 20)
    assert again.consumer.counters.handled == 5
    await again.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_store_that_cannot_be_read_keeps_its_queues_from_being_consumed() -> None:
    cluster, queue = await one_queue(10)
    rows = Rows()
    rows.problem = ConnectionError("the table is away")
    member = await cluster.member(consumed(_done), offset_store=MemoryOffsets(rows)).start()
    await asyncio.sleep(30)
    assert member.consumer.counters.handled == 0
    assert "the table is away" in member.consumer.snapshot().blocked[queue]
    rows.problem = None
    await eventually(lambda: member.consumer.counters.handled == 10, 5)
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_write_that_fails_is_told_and_tried_again() -> None:
    cluster, queue = await one_queue(0)
    rows = Rows()
    member = await cluster.member(consumed(_done), offset_store=MemoryOffsets(rows)).start()
    await asyncio.sleep(3)
    rows.problem = ConnectionError("the table is away")
    cluster.send_many(queue, 4)
    await eventually(lambda: bool(member.events.of(CommitFailed)), 60)
    assert "ConnectionError: the table is away" in member.events.of(CommitFailed)[0].error
    rows.problem = None
    await eventually(lambda: rows.rows["group", queue][1] == 4, 60)
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_what_an_overtaken_session_writes_is_refused_and_the_queue_begins_anew() -> None:
    cluster, queue = await one_queue(0)
    rows = Rows()
    member = await cluster.member(consumed(_done), offset_store=MemoryOffsets(rows)).start()
    await asyncio.sleep(3)
    taken = await MemoryOffsets(rows).take("group", queue)
    cluster.send_many(queue, 4)
    await eventually(lambda: rows.rows["group", queue] == (taken.epoch + 1, 4), 60)
    assert member.events.of(CommitFailed) == []
    await member.stop()
    await cluster.stop()


def _reset(cluster: FakeCluster, queue: MessageQueue, offset: int) -> None:
    """What an operator's reset has the broker send to the members."""
    fields = {"topic": queue.topic, "group": "group", "timestamp": "0"}
    command = Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, encode_reset({queue: offset}))
    for member in cluster.brokers[queue.broker_name].members:
        member.send_one_way(command)


@in_virtual_time
async def test_an_operator_moves_a_queue_that_another_member_has_had_meanwhile() -> None:
    cluster, queue = await one_queue(10)
    rows = Rows()
    member = await cluster.member(consumed(_done), offset_store=MemoryOffsets(rows)).start()
    await eventually(lambda: rows.rows.get(("group", queue)) == (1, 10), 20)
    await MemoryOffsets(rows).take("group", queue)
    _reset(cluster, queue, 4)
    await eventually(lambda: member.consumer.counters.handled == 16, 20)
    await member.stop()
    assert rows.rows["group", queue] == (4, 10)
    await cluster.stop()


@in_virtual_time
async def test_an_operator_moves_a_queue_before_its_first_session_could_begin() -> None:
    cluster, queue = await one_queue(10)
    rows = Rows()
    rows.rows["group", queue] = 5, 10
    rows.problem = ConnectionError("the table is away")
    member = await cluster.member(consumed(_done), offset_store=MemoryOffsets(rows)).start()
    await asyncio.sleep(5)
    _reset(cluster, queue, 4)
    await asyncio.sleep(5)
    rows.problem = None
    await eventually(lambda: member.consumer.counters.handled > 0, 20)
    await member.stop()
    assert member.consumer.counters.handled == 6
    await cluster.stop()


@in_virtual_time
async def test_brokers_hear_what_is_stored_although_the_pull_that_told_them_has_failed() -> None:
    cluster, queue = await one_queue(10)
    failed: list[Asked] = []

    def fail_once(asked: Asked) -> Command | bool:
        if failed or not int(asked.fields["sysFlag"]) & FLAG_COMMIT:
            return True
        failed.append(asked)
        return Command(ResponseCode.SYSTEM_ERROR, remark="as the test wants it")

    cluster.misbehave[RequestCode.PULL_MESSAGE] = fail_once
    member = await cluster.member(consumed(_done), offset_store=MemoryOffsets(Rows())).start()
    await eventually(lambda: bool(failed), 60)
    await asyncio.sleep(60)
    assert cluster.committed(queue) == 10
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_slow_store_is_written_to_after_a_broker_was_lost() -> None:
    cluster, queue = await one_queue(10)
    rows = Rows()
    member = await cluster.member(consumed(_done), offset_store=SlowOffsets(rows)).start()
    await eventually(lambda: rows.rows.get(("group", queue)) == (1, 10), 60)
    cluster.network.cut(cluster.brokers[queue.broker_name].address)
    cluster.send_many(queue, 4)
    await asyncio.sleep(60)
    assert rows.rows["group", queue] == (1, 14)
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_an_empty_broker_that_a_paused_member_saw_is_read_from_its_first_message_after_a_restart_too() -> None:
    cluster, seen, rows = await started(), Seen(), Rows()
    (queue,) = cluster.create("topic")
    member = await cluster.member(consumed(seen), offset_store=MemoryOffsets(rows)).start()
    await asyncio.sleep(2)
    cluster.send_many(queue, 30)
    await eventually(lambda: len(seen) == 30)
    await asyncio.sleep(20)
    member.consumer.pause("topic", "maintenance")
    fresh = replaced(cluster, queue, 45)
    await asyncio.sleep(10)
    assert len(seen) == 30
    assert await member.stop()
    member = await cluster.member(consumed(seen), offset_store=MemoryOffsets(rows)).start()
    await eventually(lambda: sorted(seen[30:]) == sorted(fresh), 60)
    assert await member.stop()
    await cluster.stop()
