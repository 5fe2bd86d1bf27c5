"""A session begins at an offset that was read under its lock; without one a start is committed like anything else."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rocketapp.client.calls.offsets import Committed
from rocketapp.consumer.brokers import GroupOffsets
from rocketapp.consumer.offsets.commits import Commits
from rocketapp.consumer.queues.start import Starts
from rocketapp.errors import TransportError
from rocketapp.model.message_queue import MessageQueue
from tests.unit.consumer.group.test_leases import QUEUES, Locks, held
from tests.unit.consumer.members import member_alone
from tests.unit.scripted import Events, in_virtual_time


class Offsets(GroupOffsets):
    """A broker that takes this many seconds for its first answer, and none for others."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked = seconds, 0

    async def committed_for_start(self, queue: MessageQueue) -> Committed:
        self.asked += 1
        seconds, self.seconds = self.seconds, 0.0
        await asyncio.sleep(seconds)
        return Committed(self.asked, is_certain=True)


class Young(Offsets):
    """A broker that says 0, and may mean that it knows no offset."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.stored: list[int] = []

    async def committed_for_start(self, queue: MessageQueue) -> Committed:
        return Committed(0, is_certain=False)

    async def commit(self, queue: MessageQueue, offset: int, *, timeout: float | None = None) -> None:
        self.stored.append(offset)


class NoStartOfItsOwn:
    """A mode for every topic, which begins where the group's offset says."""

    own_start, needs_lock = None, False

    def of(self, topic: str) -> NoStartOfItsOwn:
        return self


class NothingCounted:
    """What the owner before has counted of failed attempts."""

    async def recall(self, queue: MessageQueue) -> None: ...


@in_virtual_time
async def test_an_offset_whose_answer_came_after_the_time_of_the_lock_is_read_again() -> None:
    locks, events = Locks(), Events()
    leases, (lock, *_) = await held(locks, events)
    await locks.tasks.close()  # a process that stands still renews nothing
    loop = asyncio.get_running_loop()
    member = member_alone(events=events)
    starts = Starts(
        member,
        cast(Any, NoStartOfItsOwn()),
        commits=Commits(member, Offsets(70.0)),
        leases=leases,
        attempts=cast(Any, NothingCounted()),
    )
    reading = loop.create_task(starts.offset(QUEUES[0], lock, loop.create_future()))
    await asyncio.sleep(100.0)
    assert not reading.done()
    lock.granted(loop.time())
    assert await reading == 2


@in_virtual_time
async def test_no_start_is_committed_before_a_list_of_members_names_us_after_its_broker_was_lost() -> None:
    now, member, store = asyncio.get_running_loop().time, member_alone(), Young()
    commits, queue = Commits(member, store), QUEUES[0]
    starts = Starts(
        member,
        cast(Any, NoStartOfItsOwn()),
        commits=commits,
        leases=cast(Any, None),
        attempts=cast(Any, NothingCounted()),
    )
    commits.fencing.confirm(queue.topic, now(), [queue.broker_name])
    commits.fencing.lost(queue.broker_name, now())
    with pytest.raises(TransportError, match="may belong to another member"):
        await starts.fix(queue)
    assert store.stored == []
    await asyncio.sleep(1)
    commits.fencing.beat(now())
    commits.fencing.confirm(queue.topic, now(), [queue.broker_name])
    assert await starts.fix(queue) == 0
    assert store.stored == [0]


@in_virtual_time
async def test_where_a_queue_goes_on_is_committed_only_once_its_lock_is_certain_again() -> None:
    locks, events = Locks(), Events()
    leases, (lock, *_) = await held(locks, events)
    await locks.tasks.close()  # a process that stands still renews nothing
    now, member, store = asyncio.get_running_loop().time, member_alone(events=events), Young()
    commits, queue = Commits(member, store), QUEUES[0]
    starts = Starts(
        member, cast(Any, NoStartOfItsOwn()), commits=commits, leases=leases, attempts=cast(Any, NothingCounted())
    )
    await asyncio.sleep(70)
    commits.fencing.beat(now())
    commits.fencing.confirm(queue.topic, now(), [queue.broker_name])
    moving = asyncio.ensure_future(starts.moved_to(queue, 7, lock, asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0.9)
    assert store.stored == []
    lock.granted(now())
    commits.fencing.beat(now())
    assert await moving
    assert store.stored == [7]
