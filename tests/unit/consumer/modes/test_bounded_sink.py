"""A sink that says itself where its queues begin: it may want what is there by then and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from rocketapp.consumer.modes.sink import QueueSession, Sink
from rocketapp.model.message_queue import QueueStart
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import consumed
from tests.unit.consumer.seen import Seen, started
from tests.unit.consumer.test_where_it_reads import replaced
from tests.unit.scripted import eventually, in_virtual_time


class Acknowledging:
    """Stores each message at once (rocketapp.plugin.QueueWriter)."""

    def __init__(self, session: QueueSession) -> None:
        self._session = session

    def take(self, messages: Sequence[Message]) -> None:
        self._session.done(messages)

    async def drain(self) -> None:
        """Nothing is gathered."""

    def discard(self) -> None:
        """Nothing runs."""


@in_virtual_time
async def test_it_is_through_with_a_shorter_queue_that_took_the_place_of_the_one_there() -> None:
    cluster = await started()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 20)

    async def begin(start: QueueStart) -> int:
        return start.min_offset

    topic = replace(consumed(Seen()), sink=Sink(new_writer=Acknowledging, locked=True, begin=begin, until_now=True))
    member = await cluster.member(topic).start()
    await eventually(lambda: cluster.committed(queue) == 20, 20)
    replaced(cluster, queue, 5)
    await eventually(lambda: cluster.committed(queue) == 5, 60)
    assert (await member.consumer.idle()).reasons == ()
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_it_is_asked_where_to_go_on_when_its_broker_has_deleted_what_it_has_not() -> None:
    cluster, asked = await started(), list[tuple[int, int]]()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 20)

    async def begin(start: QueueStart) -> int:
        asked.append((start.offset, start.min_offset))
        return start.offset

    topic = replace(consumed(Seen()), sink=Sink(new_writer=Acknowledging, locked=True, begin=begin))
    member = await cluster.member(topic).start()
    await eventually(lambda: cluster.committed(queue) == 20, 20)
    member.consumer.pause("topic", "its table is moved")
    cluster.send_many(queue, 50)
    await asyncio.sleep(40)
    cluster.first[queue] = 60
    member.consumer.resume("topic")
    await eventually(lambda: cluster.committed(queue) == 70, 20)
    assert asked == [(0, 0), (60, 60)]
    await member.stop()
    await cluster.stop()
