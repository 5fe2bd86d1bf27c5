"""A session begins at an offset that was read under its lock."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from rocketapp.consumer.group.beginning import Beginning
from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.model.message_queue import MessageQueue
from rocketapp.tasks import Tasks
from tests.unit.consumer.group.test_leases import QUEUES, Locks, held
from tests.unit.scripted import Events, in_virtual_time


class Starts:
    """A broker that takes this many seconds for its first answer, and none for others."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked = seconds, 0

    async def offset(self, queue: MessageQueue) -> int:
        self.asked += 1
        seconds, self.seconds = self.seconds, 0.0
        await asyncio.sleep(seconds)
        return self.asked


async def nothing_was_counted(queue: MessageQueue) -> None: ...


@in_virtual_time
async def test_an_offset_whose_answer_came_after_the_time_of_the_lock_is_read_again() -> None:
    locks, events = Locks(), Events()
    leases, (lock, *_) = await held(locks, events)
    await leases.stop()  # a process that stands still renews nothing
    starts, loop = Starts(70.0), asyncio.get_running_loop()
    beginning = Beginning(
        QUEUES[0],
        loop.create_future(),
        starts=cast(Any, starts),
        leases=leases,
        tasks=Tasks(events),
        stall_reasons=StallReasons("group", events, loop.time),
        recall=nothing_was_counted,
    )
    reading = loop.create_task(beginning.offset(lock))
    await asyncio.sleep(100.0)
    assert not reading.done()
    lock.grant(loop.time())
    assert await reading == 2
