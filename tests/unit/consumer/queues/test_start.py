"""A session begins at an offset that was read under its lock."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from rocketapp.client.calls.offsets import Committed
from rocketapp.consumer.offsets.commits import Commits
from rocketapp.consumer.queues.start import Starts
from rocketapp.model.message_queue import MessageQueue
from tests.unit.consumer.group.test_leases import QUEUES, Locks, held
from tests.unit.consumer.members import member_alone
from tests.unit.scripted import Events, in_virtual_time


class Offsets:
    """A broker that takes this many seconds for its first answer, and none for others."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked = seconds, 0

    async def take(self, queue: MessageQueue) -> None: ...

    async def committed_for_start(self, queue: MessageQueue) -> Committed:
        self.asked += 1
        seconds, self.seconds = self.seconds, 0.0
        await asyncio.sleep(seconds)
        return Committed(self.asked, is_certain=True)


class NoStartOfItsOwn:
    """A mode for every topic, which begins where the group's offset says."""

    own_start = None

    def of(self, topic: str) -> NoStartOfItsOwn:
        return self


class NothingCounted:
    """What the owner before has counted of failed attempts."""

    async def recall(self, queue: MessageQueue) -> None: ...


@in_virtual_time
async def test_an_offset_whose_answer_came_after_the_time_of_the_lock_is_read_again() -> None:
    locks, events = Locks(), Events()
    leases, (lock, *_) = await held(locks, events)
    await leases.stop()  # a process that stands still renews nothing
    loop = asyncio.get_running_loop()
    member = member_alone(events=events)
    starts = Starts(
        member,
        cast(Any, NoStartOfItsOwn()),
        commits=Commits(member, cast(Any, Offsets(70.0))),
        leases=leases,
        attempts=cast(Any, NothingCounted()),
        local=None,
    )
    reading = loop.create_task(starts.offset(QUEUES[0], lock, loop.create_future()))
    await asyncio.sleep(100.0)
    assert not reading.done()
    lock.grant(loop.time())
    assert await reading == 2
