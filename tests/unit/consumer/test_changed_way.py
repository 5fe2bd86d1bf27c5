"""A roll-out that changes how a topic is consumed: old and new members share its queues for a while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketapp.consumer.handler import ConsumedTopic
from tests.unit.consumer.fake_cluster import FakeCluster, consumed
from tests.unit.scripted import eventually, in_virtual_time

MESSAGES = 30


class Work:
    """What handlers of any way have done."""

    def __init__(self) -> None:
        self.done: set[tuple[int, int]] = set()

    async def push(self, message: Any) -> None:
        # Some calls run for longer than their queue is waited for.
        await asyncio.sleep(4.0 if message.offset % 7 == 3 else 0.2)
        self.done.add((message.queue_id, message.offset))

    async def poll(self, one: Any) -> None:
        messages = await one.take(10)
        await asyncio.sleep(1.0)
        self.done.update((message.queue_id, message.offset) for message in messages)

    def way(self, name: str) -> ConsumedTopic:
        if name == "poll":
            return consumed(self.poll, every=2.0)
        return consumed(self.push, orderly=name == "orderly", concurrency=4)


@pytest.mark.parametrize(
    ("old", "new"), [("push", "orderly"), ("orderly", "push"), ("push", "poll"), ("poll", "push"), ("poll", "orderly")]
)
def test_no_offset_passes_a_message_that_neither_the_old_nor_the_new_members_have_done(old: str, new: str) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, work = FakeCluster(), Work()
        await cluster.start()
        queues = cluster.create("topic", queues=2)
        for queue in queues:
            cluster.send_many(queue, MESSAGES)
        leaving = await cluster.member(work.way(old)).start()
        await asyncio.sleep(2)
        joining = await cluster.member(work.way(new)).start()
        wrong, looked = list[tuple[int, int]](), 0

        def is_through() -> bool:
            nonlocal looked
            for _, queue, offset in cluster.commits[looked:]:
                if queue in queues and any((queue.queue_id, each) not in work.done for each in range(offset)):
                    wrong.append((queue.queue_id, offset))
            looked = len(cluster.commits)
            return all(cluster.committed(queue) == MESSAGES for queue in queues)

        async def leave() -> None:
            await asyncio.sleep(5)
            await leaving.stop()

        await asyncio.gather(leave(), eventually(is_through, 200))
        await joining.stop()
        await cluster.stop()
        assert wrong == []
        assert len(work.done) == 2 * MESSAGES

    story()
