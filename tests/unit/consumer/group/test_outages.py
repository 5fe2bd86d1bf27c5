"""A broker that is dead or does not answer holds up its own queues, and nothing else."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Item, messages_of
from rocketapp.consumer.retry.attempts import SHIFT
from rocketapp.errors import ConnectError
from rocketapp.model.event import Released
from rocketapp.model.message_queue import MessageQueue
from rocketapp.transport.stream import Receiver, Stream
from rocketapp.transport.tls import Tls
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import Asked, FakeCluster, Member, consumed
from tests.unit.scripted import eventually, in_virtual_time

SICK = "broker-a"


class Times:
    """When messages of each queue were handled."""

    def __init__(self) -> None:
        self.at: dict[MessageQueue, list[float]] = {}

    async def __call__(self, message: Message) -> None:
        assert message.queue is not None
        self.at.setdefault(message.queue, []).append(asyncio.get_running_loop().time())


async def three_brokers() -> tuple[FakeCluster, list[MessageQueue]]:
    cluster = FakeCluster(brokers=3)
    await cluster.start()
    return cluster, cluster.create("topic", queues=2)


def take_away(cluster: FakeCluster, kind: str) -> None:
    address = cluster.brokers[SICK].address
    if kind == "frozen":
        cluster.network.hold(address)
    else:
        cluster.network.unlisten(address)
        cluster.network.cut(address)


@pytest.mark.parametrize("kind", ["dead", "frozen"])
@pytest.mark.parametrize("orderly", [False, True])
def test_queues_of_other_brokers_are_consumed_and_committed_without_a_pause(orderly: bool, kind: str) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, queues = await three_brokers()
        times = Times()
        config = ConsumerConfig(subscription_check="off", commit_interval=1.0)
        members = [await cluster.member(consumed(times, orderly=orderly), config=config).start() for _ in range(2)]
        healthy = [queue for queue in queues if queue.broker_name != SICK]

        async def send() -> None:
            while True:
                for queue in healthy:
                    cluster.send(queue, b"x")
                await asyncio.sleep(0.2)

        await asyncio.sleep(5)
        sending = asyncio.ensure_future(send())
        await asyncio.sleep(5)
        began = cluster.loop.time()
        for member in members:
            member.events.clear()
        take_away(cluster, kind)
        await asyncio.sleep(120)
        ended = cluster.loop.time()
        sending.cancel()
        for queue in healthy:
            handled = [time for time in times.at[queue] if time >= began - 1]
            committed = [time for time, at, _ in cluster.commits if at == queue and time >= began - 1]
            for series in (handled, committed):
                assert max(later - earlier for earlier, later in pairwise(series)) < 3
                assert series[-1] > ended - 3
        assert not [event for member in members for event in member.events.of(Released) if event.queue in healthy]  # type: ignore[attr-defined]
        # FailurePauses dials no broker, and waits about a second for one that does not answer.
        assert (await stopped(members, cluster)) < 3
        await cluster.stop()

    story()


@pytest.mark.parametrize("kind", ["dead", "frozen"])
def test_a_member_that_joins_waits_a_second_for_a_broker_that_it_cannot_reach(kind: str) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, queues = await three_brokers()
        times = Times()
        if kind == "dead":
            take_away(cluster, kind)
        cluster.network.hold(cluster.brokers[SICK].address)
        began = cluster.loop.time()
        member = await cluster.member(consumed(times)).start()
        assert cluster.loop.time() - began < 1.5
        for queue in queues:
            cluster.send(queue, b"x")
        await asyncio.sleep(1)
        assert set(times.at) == {queue for queue in queues if queue.broker_name != SICK}
        if kind == "frozen":
            cluster.network.release(cluster.brokers[SICK].address)
            await asyncio.sleep(5)
            assert set(times.at) == set(queues)
        await member.stop()
        await cluster.stop()

    story()


async def stopped(members: list[Member], cluster: FakeCluster) -> float:
    began = cluster.loop.time()
    await asyncio.gather(*(member.consumer.stop(drain_timeout=30, cut=asyncio.Event()) for member in members))
    seconds = cluster.loop.time() - began
    await asyncio.gather(*(member.client.stop() for member in members))
    return seconds


@in_virtual_time
async def test_a_look_asks_every_broker_once_and_a_silent_one_does_not_delay_it() -> None:
    cluster = FakeCluster(brokers=2)
    await cluster.start()
    topics = [f"topic-{number}" for number in range(10)]
    for topic in topics:
        cluster.create(topic)
    member = await cluster.member(*(consumed(Times(), topic=topic) for topic in topics)).start()
    await asyncio.sleep(2)
    before = len(cluster.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP))
    member.consumer.members_changed()
    await asyncio.sleep(0.5)
    assert len(cluster.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)) - before == 2
    cluster.network.hold(cluster.brokers[SICK].address)
    member.consumer.members_changed()
    await asyncio.sleep(0.5)
    assert not member.consumer.snapshot().unassigned
    cluster.network.release(cluster.brokers[SICK].address)
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_orderly_offsets_are_committed_when_idle_and_every_batch() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")

    async def handler(message: Message) -> None:
        await asyncio.sleep(0.02)

    member = await cluster.member(consumed(handler, orderly=True)).start()
    await asyncio.sleep(1)
    del cluster.commits[:]
    cluster.send_many(queue, 200)
    behind = 0
    while member.consumer.counters.handled < 200:
        await asyncio.sleep(0.01)
        behind = max(behind, member.consumer.counters.handled - (cluster.committed(queue) or 0))
    await asyncio.sleep(0.05)
    assert cluster.committed(queue) == 200
    assert behind <= 64  # a run that was just finished, and the one that runs
    assert len(cluster.commits) <= 200 / 32 * 2 + 8
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_what_was_finished_is_committed_soon_after_an_outage_also_when_another_one_follows() -> None:
    """A session that has committed nothing yet writes nothing for a moment: after it, not at the next round."""
    cluster, seen = FakeCluster(), list[bytes]()
    await cluster.start()
    (queue,) = cluster.create("topic")

    async def handler(message: Message) -> None:
        seen.append(message.body)

    member = await cluster.member(consumed(handler)).start()
    await asyncio.sleep(1)
    cluster.send_many(queue, 5)
    await eventually(lambda: len(seen) == 5)
    for _ in range(3):
        cluster.network.cut(cluster.brokers["broker-a"].address)
        await asyncio.sleep(3)
    assert cluster.committed(queue) == 5
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_last_commit_that_is_answered_late_once_is_tried_a_second_time() -> None:
    cluster = FakeCluster()
    await cluster.start()
    [queue] = cluster.create("topic", queues=1)
    times = Times()
    member = await cluster.member(consumed(times)).start()
    cluster.send_many(queue, 2)
    await asyncio.sleep(0.1)
    assert len(times.at[queue]) == 2
    silent = iter([None])

    def once(_: object) -> bool | None:
        return next(silent, True)

    cluster.misbehave[RequestCode.UPDATE_CONSUMER_OFFSET] = once
    assert await member.stop()
    assert cluster.offsets["group", queue] == 2
    await cluster.stop()


@pytest.mark.parametrize("how", [{}, {"batch": 5}])
@in_virtual_time
async def test_what_others_did_while_a_member_was_cut_off_is_not_handled_again_when_it_is_back(
    how: dict[str, int],
) -> None:
    cluster = FakeCluster()
    await cluster.start()
    queues, dial, done, streams = cluster.create("topic", queues=4), cluster.network.dial, list[bytes](), list[Stream]()
    is_cut_off = False

    async def handler(item: Item) -> None:
        await asyncio.sleep(0.01)
        done.extend(message.body for message in messages_of(item))

    async def its_dial(address: str, receiver: Receiver, timeout: float, tls: Tls | None = None) -> Stream:
        if is_cut_off:
            raise ConnectError(address, "no route to host")
        streams.append(await dial(address, receiver, timeout, tls))
        return streams[-1]

    cluster.network.dial = its_dial  # type: ignore[method-assign]
    member = await cluster.member(consumed(handler, **how)).start()
    cluster.network.dial = dial  # type: ignore[method-assign]
    other = await cluster.member(consumed(handler, **how), seed=2).start()
    await asyncio.sleep(5)
    for number in range(2000):
        cluster.send(queues[number % 4], str(number).encode())
        await asyncio.sleep(0.05)
        if number in (400, 1600):
            is_cut_off = number == 400
            for stream in streams if is_cut_off else ():
                stream.abort()
    await eventually(lambda: len(set(done)) == 2000, 20)
    assert len(done) - 2000 < 10  # of 600 that were its own
    for each in (member, other):
        assert await each.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_queue_whose_broker_dies_between_its_lock_and_its_first_pull_keeps_no_stop_waiting() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send(queue, b"x")
    cluster.offsets["group", queue] = 0

    def dies(asked: Asked) -> bool:
        if int(asked.fields["queueId"]) >= SHIFT:  # the last question before the queue is pulled
            take_away(cluster, "dead")
        return True

    cluster.misbehave[RequestCode.QUERY_CONSUMER_OFFSET] = dies
    member = await cluster.member(consumed(Times(), orderly=True)).start()
    await asyncio.sleep(5)
    assert (await stopped([member], cluster)) < 3
    await cluster.stop()
