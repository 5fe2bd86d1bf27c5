"""A member restarts after its broker was replaced by an empty one, and its offset is kept elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.offsets import local
from rocketapp.model.event import LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.plugin import Taken
from rocketapp.testing import check_offset_store
from tests.unit.consumer.fake_cluster import FakeCluster, Member, consumed
from tests.unit.consumer.offsets.test_offset_store import MemoryOffsets, Rows
from tests.unit.consumer.seen import Seen, started
from tests.unit.consumer.test_where_it_reads import replaced, replaced_and_reset
from tests.unit.scripted import eventually, in_virtual_time

Join = Callable[[FakeCluster, Seen], Member]


@pytest.fixture(autouse=True)
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written at once: virtual time does not wait for threads."""

    async def at_once(call: Callable[[], None], _: str) -> None:
        call()

    monkeypatch.setattr(local, "in_daemon_thread", at_once)


class Remembering(MemoryOffsets):
    """A store with the method that need not be there."""

    def __init__(self, rows: Rows, landmarks: dict[tuple[str, MessageQueue], str]) -> None:
        super().__init__(rows)
        self._landmarks = landmarks

    async def take(self, group: str, queue: MessageQueue) -> Taken:
        return (await super().take(group, queue))._replace(landmark=self._landmarks.get((group, queue)))

    async def remember(self, group: str, queue: MessageQueue, landmark: str, epoch: int) -> bool:
        self._fail()
        if epoch < self._rows.rows[group, queue][0]:
            return False
        self._landmarks[group, queue] = landmark
        return True


class DiesAfterWrite(Remembering):
    """Its process is killed as soon as the first messages are committed."""

    async def write(self, group: str, queue: MessageQueue, offset: int, epoch: int) -> bool:
        is_written = await super().write(group, queue, offset, epoch)
        if offset:
            self._rows = Rows()
            self._rows.problem = ConnectionError("the process is dead")
        return is_written


class Cuts(Remembering):
    async def remember(self, group: str, queue: MessageQueue, landmark: str, epoch: int) -> bool:
        return await super().remember(group, queue, landmark[:64], epoch)


class TakesLate(Remembering):
    async def remember(self, group: str, queue: MessageQueue, landmark: str, epoch: int) -> bool:
        return await super().remember(group, queue, landmark, 1 << 60)


class KeepsOne(Remembering):
    async def remember(self, group: str, queue: MessageQueue, landmark: str, epoch: int) -> bool:
        return await super().remember(group, queue, self._landmarks.get((group, queue), landmark), epoch)


BROKEN: dict[type[Remembering], str] = {
    Cuts: "take: the landmark that any process stored last, whole",
    TakesLate: "remember: an older epoch is refused",
    KeepsOne: "remember: an empty landmark is stored in place of the last",
}


def in_a_file(place: Path) -> Join:
    def join(cluster: FakeCluster, seen: Seen) -> Member:
        config = ConsumerConfig(subscription_check="off", broadcast_dir=str(place))
        topic = replace(consumed(seen, retries=0), broadcast=True)
        return cluster.member(topic, config=config, worker=1)

    return join


def in_a_store(store: Any) -> Join:
    return lambda cluster, seen: cluster.member(consumed(seen), offset_store=store)


def joins(kind: str, place: Path) -> Join:
    return in_a_file(place) if kind == "file" else in_a_store(Remembering(Rows(), {}))


async def handled_before(cluster: FakeCluster, seen: Seen, join: Join, count: int) -> MessageQueue:
    """A member handled so many, and stopped."""
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, count)
    member = await join(cluster, seen).start()
    await eventually(lambda: len(seen) == count)
    assert await member.stop()
    return queue


async def test_a_store_that_remembers_does_what_the_contract_says() -> None:
    rows, landmarks = Rows(), dict[tuple[str, MessageQueue], str]()
    await check_offset_store(lambda: Remembering(rows, landmarks))
    assert landmarks


@pytest.mark.parametrize("broken", BROKEN)
async def test_the_check_finds_a_store_that_remembers_wrongly(broken: type[Remembering]) -> None:
    rows, landmarks = Rows(), dict[tuple[str, MessageQueue], str]()
    with pytest.raises(AssertionError, match=BROKEN[broken]):
        await check_offset_store(lambda: broken(rows, landmarks))


@pytest.mark.parametrize("kind", ["file", "store"])
@pytest.mark.parametrize("count", [10, 30, 45], ids=["less", "as many", "more"])
def test_all_of_an_empty_broker_is_read_whether_it_holds_less_than_the_old_one_or_more(
    kind: str, count: int, tmp_path: Path
) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, seen, join = await started(), Seen(), joins(kind, tmp_path)
        queue = await handled_before(cluster, seen, join, 30)
        for _ in range(2):  # also when it happens once more
            before = len(seen)
            fresh = replaced(cluster, queue, count, keeps_offsets=False)
            member = await join(cluster, seen).start()
            await eventually(lambda at=before, all_=fresh: sorted(seen[at:]) == sorted(all_), 60)
            told = [event.error for event in member.events.of(LoopFailed)]  # type: ignore[attr-defined]
            assert f"its records are others: {count} are read, from its first offset on" in told[-1]
            assert await member.stop()
        again = await join(cluster, seen).start()
        cluster.send(queue, b"last")
        await eventually(lambda: seen[-1] == b"last", 60)
        assert len(seen) == 30 + 2 * count + 1
        assert await again.stop()
        await cluster.stop()

    story()


@pytest.mark.parametrize("kind", ["file", "store"])
def test_a_lost_tail_repeats_nothing_old(kind: str, tmp_path: Path) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, seen, join = await started(), Seen(), joins(kind, tmp_path)
        queue = await handled_before(cluster, seen, join, 30)
        del cluster.log[queue][20:]
        member = await join(cluster, seen).start()
        await eventually(lambda: bool(member.events.of(LoopFailed)), 60)  # type: ignore[attr-defined]
        cluster.send_many(queue, 5)
        await eventually(lambda: len(seen) == 35, 60)
        assert await member.stop()
        assert len(seen) == 35
        await cluster.stop()

    story()


@pytest.mark.parametrize("kind", ["file", "store"])
def test_a_first_message_that_was_deleted_by_its_age_repeats_nothing(kind: str, tmp_path: Path) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, seen, join = await started(), Seen(), joins(kind, tmp_path)
        queue = await handled_before(cluster, seen, join, 30)
        cluster.first[queue] = 25
        member = await join(cluster, seen).start()
        cluster.send(queue, b"last")
        await eventually(lambda: seen[-1] == b"last", 60)
        assert await member.stop()
        assert len(seen) == 31
        await cluster.stop()

    story()


@in_virtual_time
async def test_a_kill_beside_the_first_commit_leaves_no_offset_without_its_landmark() -> None:
    cluster, seen, rows, landmarks = await started(), Seen(), Rows(), dict[tuple[str, MessageQueue], str]()
    queue = await handled_before(cluster, seen, in_a_store(DiesAfterWrite(rows, landmarks)), 30)
    assert rows.rows["group", queue][1] == 30
    fresh = replaced(cluster, queue, 45, keeps_offsets=False)
    member = await in_a_store(Remembering(rows, landmarks))(cluster, seen).start()
    await eventually(lambda: sorted(seen[30:]) == sorted(fresh), 60)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_store_that_knows_offsets_alone_goes_on_at_its_offset() -> None:
    cluster, seen, join = await started(), Seen(), in_a_store(MemoryOffsets(Rows()))
    queue = await handled_before(cluster, seen, join, 30)
    fresh = replaced(cluster, queue, 45, keeps_offsets=False)
    member = await join(cluster, seen).start()
    await eventually(lambda: sorted(seen[30:]) == sorted(fresh[30:]), 60)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_an_operators_offset_holds_after_a_restart_too() -> None:
    cluster, seen, rows = await started(), Seen(), Rows()
    join = in_a_store(Remembering(rows, {}))
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 30)
    member = await join(cluster, seen).start()
    await eventually(lambda: len(seen) == 30)
    member.consumer.pause("topic", "maintenance")
    fresh = await replaced_and_reset(cluster, queue, 45, to=20)
    await eventually(lambda: rows.rows["group", queue][1] == 20, 60)
    assert await member.stop()
    member = await join(cluster, seen).start()
    await eventually(lambda: len(seen) == 55, 60)
    assert sorted(seen[30:]) == sorted(fresh[20:])
    assert await member.stop()
    await cluster.stop()
