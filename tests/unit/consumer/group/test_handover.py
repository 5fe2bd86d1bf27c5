"""A concurrent queue in other hands: calls that go on, and a previous owner that commits late."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.consumer.offsets.commits import CAREFUL_FOR
from rocketapp.model.event import Assigned, DrainCut, Released
from rocketapp.model.message_queue import MessageQueue
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, Member, consumed
from tests.unit.scripted import eventually, in_virtual_time

SECONDS = 20.0
"""How long a call takes."""


class Calls:
    def __init__(self) -> None:
        self.started = self.ended = self.cancelled = 0

    async def __call__(self, message: Message) -> None:
        self.started += 1
        try:
            await asyncio.sleep(SECONDS)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.ended += 1


async def handed_over(calls: Calls) -> tuple[FakeCluster, Member, Member]:
    """The first member, whose call runs on the only queue, and the second one, to which the queue goes now."""
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send(queue, b"x")

    async def quick(_: Message) -> None: ...

    first = await cluster.member(consumed(calls)).start()
    await eventually(lambda: calls.started == 1)
    second = cluster.member(consumed(quick), client_id="0")
    # It sorts before the first.
    await second.start()
    return cluster, first, second


@pytest.mark.parametrize("since", [0.3, 5.0])
def test_a_stop_waits_for_a_call_on_a_queue_that_another_member_has_by_now(since: float) -> None:
    @in_virtual_time
    async def story() -> None:
        calls = Calls()
        cluster, first, second = await handed_over(calls)
        await asyncio.sleep(since)
        began = cluster.loop.time()
        assert await first.stop(drain_timeout=60)
        assert (calls.ended, calls.cancelled) == (1, 0)
        assert cluster.loop.time() - began < SECONDS + 1
        # The queue is another member's: what the call did is not acknowledged by us.
        assert second.consumer.counters.handled == 1
        assert [offset for *_, offset in cluster.commits if offset] == [1]
        await second.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_a_drain_that_is_cut_names_and_cancels_a_call_on_a_queue_of_another_member() -> None:
    calls = Calls()
    cluster, first, second = await handed_over(calls)
    await asyncio.sleep(5)
    assert not await first.stop(drain_timeout=3)
    assert (calls.ended, calls.cancelled) == (0, 1)
    (cut,) = first.events.of(DrainCut)
    assert cut.topic == "topic"  # type: ignore[attr-defined]
    await second.stop()
    await cluster.stop()


async def late(seconds: float) -> tuple[FakeCluster, MessageQueue, Member]:
    """A member whose calls take so long, and which began before the previous owner of the queue had committed."""
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 200)
    cluster.offsets["group", queue] = 10

    async def handler(_: Message) -> None:
        await asyncio.sleep(seconds)

    member = await cluster.member(consumed(handler, concurrency=1)).start()
    await eventually(lambda: bool(member.events.of(Assigned)))
    return cluster, queue, member


@pytest.mark.parametrize("seconds", [0.02, 0.5])
def test_the_first_commit_of_a_session_lowers_no_offset_that_its_previous_owner_committed_late(seconds: float) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, queue, member = await late(seconds)
        cluster.offsets["group", queue] = 150
        del cluster.commits[:]
        await eventually(lambda: cluster.committed(queue) == 200, 200)
        offsets = [offset for _, at, offset in cluster.commits if at == queue]
        assert offsets == sorted(offsets)
        assert offsets[0] >= 150
        # Nor does it begin anew for that: what it has handled meanwhile would be handled a second time.
        assert not member.events.of(Released)
        await member.stop()
        await cluster.stop()

    story()


async def taken_over(seconds: float, count: int) -> tuple[FakeCluster, MessageQueue, Member, Member]:
    """A member with calls that take so long on the only queue, and one that joins and gets that queue."""

    async def handler(_: Message) -> None:
        await asyncio.sleep(seconds)

    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, count)
    previous = await cluster.member(consumed(handler, concurrency=1)).start()
    await eventually(lambda: bool(previous.events.of(Assigned)))
    member = cluster.member(consumed(handler, concurrency=1), client_id="0")
    await member.start()
    return cluster, queue, previous, member


@pytest.mark.parametrize("is_refused", [False, True], ids=["at once", "at the second try"])
def test_no_commit_lowers_what_a_previous_owner_commits_while_it_drains(is_refused: bool) -> None:
    """The offset was read before the first commit only, and pulls took lower ones along after that."""

    @in_virtual_time
    async def story() -> None:
        cluster, queue, previous, member = await taken_over(0.5, 200)
        if is_refused:
            await asyncio.sleep(1.2)
            cluster.refuse(RequestCode.QUERY_CONSUMER_OFFSET, 2)
            await asyncio.sleep(0.5)
            cluster.behave()
        await eventually(lambda: bool(member.events.of(Assigned)), 10)
        await eventually(lambda: member.consumer.counters.handled > 15, 20)
        cluster.offsets["group", queue] = drained = (cluster.committed(queue) or 0) + 60
        del cluster.commits[:]
        await eventually(lambda: cluster.committed(queue) == 200, 200)
        offsets = [offset for _, at, offset in cluster.commits if at == queue]
        assert offsets == sorted(offsets)
        assert offsets[0] >= drained
        assert not member.events.of(Released)
        await member.stop()
        await previous.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_a_broker_that_answers_offset_queries_slowly_still_gets_commits() -> None:
    """Reads before a commit had a second, and nothing was committed, without a word, while answers took longer."""
    cluster, _, previous, member = await taken_over(0.05, 4000)
    await eventually(lambda: bool(member.events.of(Assigned)), 10)
    await asyncio.sleep(12)
    answer = cluster.answer

    def slowly(name: str, connection: Connection, command: Command) -> Command | None:
        response = answer(name, connection, command)
        if command.code != RequestCode.QUERY_CONSUMER_OFFSET:
            return response
        assert response is not None
        response.version = cluster.version
        cluster.loop.call_later(1.2, connection.reply, response)
        return None

    cluster.answer = slowly  # type: ignore[method-assign]
    del cluster.commits[:]
    for _ in range(5):
        before = len(cluster.commits)
        await asyncio.sleep(10)
        assert len(cluster.commits) > before
    await member.stop(drain_timeout=5)
    await previous.stop(drain_timeout=5)
    await cluster.stop()


@in_virtual_time
async def test_a_lock_is_given_back_when_the_offset_that_the_broker_moved_cannot_be_committed() -> None:
    async def handler(_: Message) -> None: ...

    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 20)
    cluster.offsets["group", queue], cluster.first[queue] = 5, 10  # the broker has deleted what is below 10
    cluster.ignore(RequestCode.UPDATE_CONSUMER_OFFSET)
    member = await cluster.member(consumed(handler, orderly=True)).start()
    await eventually(lambda: bool(member.events.of(Assigned)))
    await asyncio.sleep(1)
    await member.stop()
    assert not cluster.locks
    assert len(cluster.requests(RequestCode.UNREGISTER_CLIENT, consumerGroup="group")) == 1
    await cluster.stop()


@in_virtual_time
async def test_pulls_carry_offsets_again_when_a_previous_owner_is_through() -> None:
    cluster, first, second = await handed_over(Calls())
    queue = MessageQueue("topic", "broker-a", 0)
    await eventually(lambda: cluster.committed(queue) == 1, 10)
    await asyncio.sleep(CAREFUL_FOR)
    cluster.send(queue, b"x")
    await eventually(lambda: cluster.committed(queue) == 2, 10)
    before = len(cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET, topic="topic"))
    cluster.send_many(queue, 100)
    await eventually(lambda: (cluster.committed(queue) or 0) > 50, 4)
    assert len(cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET, topic="topic")) == before
    await second.stop()
    await first.stop(drain_timeout=60)
    await cluster.stop()


@in_virtual_time
async def test_a_session_reads_its_offset_once_before_its_first_commit_and_not_before_it_has_news() -> None:
    cluster, queue, member = await late(0.02)

    def reads() -> int:
        return len(cluster.requests(RequestCode.QUERY_CONSUMER_OFFSET, topic="topic"))

    before = reads()
    await eventually(lambda: cluster.committed(queue) == 200, 60)
    assert reads() == before + 1
    await asyncio.sleep(30)
    assert reads() == before + 1
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_an_orderly_session_commits_without_a_further_read() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")

    async def handler(_: Message) -> None: ...

    member = await cluster.member(consumed(handler, orderly=True)).start()
    await asyncio.sleep(1)
    before = len(cluster.requests(RequestCode.QUERY_CONSUMER_OFFSET))
    cluster.send_many(queue, 100)
    await eventually(lambda: cluster.committed(queue) == 100, 1)
    assert len(cluster.requests(RequestCode.QUERY_CONSUMER_OFFSET)) == before
    await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("orderly", [False, True])
def test_an_offset_that_a_stuck_commit_lowered_is_raised_again_when_its_owner_stops(
    orderly: bool,
) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, (queue, *_), member = await idle(queues=1, orderly=orderly)
        # A member that is gone sent it long before; it was held up on the way.
        cluster.offsets["group", queue] = 1
        await member.stop()
        assert cluster.committed(queue) == 2
        await cluster.stop()

    story()


async def idle(*, queues: int, orderly: bool = False) -> tuple[FakeCluster, list[MessageQueue], Member]:
    """A member that has handled all there is: two messages a queue."""
    cluster = FakeCluster()
    await cluster.start()
    created = cluster.create("topic", queues)

    async def handler(_: Message) -> None: ...

    member = await cluster.member(consumed(handler, orderly=orderly)).start()
    for queue in created:
        cluster.send_many(queue, 2)
    await eventually(lambda: all(cluster.committed(queue) == 2 for queue in created), 30)
    return cluster, created, member
