"""Several members: who owns what, and that handing over loses nothing and repeats nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from rocketapp.consumer import handler as consumer
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.model.event import Assigned, LoopFailed, Released, TopicMissing
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation import ByMachineRoom
from rocketapp.state.fencing import CONFIRMED_FOR
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from rocketapp.wire.requests.clients import Heartbeat
from tests.unit.consumer.fake_cluster import FakeCluster, Member, consumed, consumed_by, subscription
from tests.unit.scripted import eventually, in_virtual_time


class Handler:
    """Counts per queue and offset, and knows how many run at once per queue."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.started: Counter[tuple[MessageQueue, int]] = Counter()
        self.finished: Counter[tuple[MessageQueue, int]] = Counter()

    async def __call__(self, message: Message) -> None:
        assert message.queue is not None
        place = message.queue, message.offset
        self.started[place] += 1
        await asyncio.sleep(self.seconds)
        self.finished[place] += 1


async def with_queues(count: int, messages: int = 0, *, brokers: int = 1) -> tuple[FakeCluster, list[MessageQueue]]:
    cluster = FakeCluster(brokers=brokers)
    await cluster.start()
    queues = cluster.create("topic", queues=count)
    for queue in queues:
        cluster.send_many(queue, messages)
    return cluster, queues


def owned(member: Member, topic: str = "topic") -> set[MessageQueue]:
    queues = member.consumer.running_info().queues.items()
    return {queue for queue, info in queues if queue.topic == topic and not info.is_given_back}


@in_virtual_time
async def test_members_share_the_queues_and_take_over_those_of_who_leaves() -> None:
    cluster, queues = await with_queues(4)
    first, second, third = [cluster.member(consumed(Handler())) for _ in range(3)]
    await first.start()
    assert owned(first) == set(queues)
    await second.start()
    await eventually(lambda: len(owned(first)) == len(owned(second)) == 2, 1.0)
    await third.start()
    await eventually(lambda: sorted(map(len, map(owned, (first, second, third)))) == [1, 1, 2], 1.0)
    assert owned(first) | owned(second) | owned(third) == set(queues)
    await second.stop()
    await eventually(lambda: len(owned(first)) == len(owned(third)) == 2, 1.0)
    await third.kill()
    cluster.behave()
    await eventually(lambda: owned(first) == set(queues), 2.0)
    await first.stop()
    await cluster.stop()


@pytest.mark.parametrize("orderly", [False, True])
def test_a_clean_rebalance_repeats_nothing(orderly: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, queues = await with_queues(6, 2000)
        handler = Handler(seconds=0.02)
        members = [await cluster.member(consumed(handler, orderly=orderly, concurrency=16)).start()]
        for _ in range(3):
            await asyncio.sleep(2)
            members.append(await cluster.member(consumed(handler, orderly=orderly, concurrency=16)).start())
        for _ in range(3):
            await asyncio.sleep(2)
            assert await members.pop(0).stop()
        await eventually(lambda: len(handler.finished) == 12_000, 600)
        await asyncio.sleep(6)
        assert set(handler.finished.values()) == {1}
        assert [cluster.committed(queue) for queue in queues] == [2000] * 6
        await members[0].stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_the_next_owner_waits_for_handlers_that_take_up_to_a_second() -> None:
    cluster, queues = await with_queues(4, 40)
    handler = Handler(seconds=0.95)
    first = await cluster.member(consumed(handler, concurrency=100)).start()
    await asyncio.sleep(1)
    second = await cluster.member(consumed(handler, concurrency=100)).start()
    await eventually(lambda: len(handler.finished) == 160, 200)
    assert set(handler.started.values()) == {1}
    assert not cluster.locks
    assert await first.stop()
    assert await second.stop()
    assert [cluster.committed(queue) for queue in queues] == [40] * 4
    await cluster.stop()


@in_virtual_time
async def test_the_next_owner_begins_within_two_seconds_and_repeats_only_what_runs_longer_than_one() -> None:
    cluster, queues = await with_queues(4, 40)
    handler = Handler(seconds=4.0)
    first = await cluster.member(consumed(handler, concurrency=160)).start()
    await asyncio.sleep(1)
    second = await cluster.member(consumed(handler, concurrency=160)).start()
    await eventually(lambda: second.consumer.counters.handled > 0, 2.0 + 4.0)
    await eventually(lambda: len(handler.finished) == 160, 200)
    assert max(handler.started.values()) == 2
    assert sum(count == 2 for count in handler.started.values()) <= 80
    await first.stop()
    await second.stop()
    assert [cluster.committed(queue) for queue in queues] == [40] * 4
    await cluster.stop()


@in_virtual_time
async def test_a_worker_that_is_started_again_waits_for_living_members() -> None:
    cluster, _ = await with_queues(4, 400)
    handler = Handler(seconds=0.3)
    members = [await cluster.member(consumed(handler), expected_members=2).start() for _ in range(2)]
    await asyncio.sleep(6)
    await members[0].kill()
    cluster.behave()
    handler.started.clear()
    members[0] = await cluster.member(consumed(handler), expected_members=2).start()
    await asyncio.sleep(0.2)
    members.append(await cluster.member(consumed(handler), expected_members=2).start())
    handler.started.clear()
    await asyncio.sleep(30)
    assert set(handler.started.values()) <= {1}
    await asyncio.gather(*(member.stop() for member in members))
    await cluster.stop()


@in_virtual_time
async def test_the_next_owner_does_not_wait_for_a_handler_that_hangs() -> None:
    cluster, (queue,) = await with_queues(1, 10)
    stuck, handler = Handler(seconds=10_000), Handler()
    first = await cluster.member(consumed(stuck, concurrency=1)).start()
    await asyncio.sleep(1)
    # The second member sorts before the first, so the only queue is its.
    second = cluster.member(consumed(handler), client_id="0")
    await second.start()
    await eventually(lambda: len(handler.finished) == 10, 13)
    await asyncio.sleep(6)
    assert cluster.committed(queue) == 10
    # The first may do what it wants: it owns nothing.
    await first.stop(drain_timeout=1)
    assert cluster.committed(queue) == 10
    await second.stop()
    await cluster.stop()


def with_a_gap(started: list[int], release: asyncio.Event) -> ConsumedTopic:
    """A topic whose first message hangs: others behind it wait for its worker, and one of another tag is done."""

    async def hang(message: Message) -> None:
        started.append(message.offset)
        await release.wait()

    async def quick(_: Message) -> None:
        return

    slow = subscription("slow", tags="slow", concurrency=1)
    return consumed_by(consumer.Handler(slow, hang), consumer.Handler(subscription("quick", tags="quick"), quick))


async def a_queue_with_a_gap(cluster: FakeCluster) -> MessageQueue:
    (queue,) = cluster.create("topic")
    for tag in ("slow", "slow", "slow", "quick"):
        cluster.send(queue, b"x", TAGS=tag)
    return queue


@in_virtual_time
async def test_once_a_queue_was_given_away_uncommitted_nothing_more_of_it_is_started() -> None:
    cluster = FakeCluster()
    await cluster.start()
    await a_queue_with_a_gap(cluster)
    started: list[int] = []
    release = asyncio.Event()
    first = await cluster.member(with_a_gap(started, release)).start()
    await eventually(lambda: first.consumer.counters.handled == 1)
    second = cluster.member(with_a_gap([], release), client_id="0")
    await second.start()
    # The hand-over waits for ten seconds. Afterwards the queue is the second member's.
    await eventually(lambda: not owned(first) and bool(owned(second)))
    await asyncio.sleep(20)
    release.set()
    await asyncio.sleep(1)
    assert started == [0]
    await first.stop()
    await second.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_drain_beside_a_successor_goes_on_to_its_end_and_lowers_no_offset() -> None:
    cluster, (queue,) = await with_queues(1, 100)
    handler = Handler(seconds=20.0)
    member = await cluster.member(consumed(handler, concurrency=10)).start()
    await asyncio.sleep(1)
    leaving = asyncio.ensure_future(member.stop(drain_timeout=60))
    await asyncio.sleep(2)
    # A Java member has taken the queue and does not wait.
    cluster.offsets["group", queue] = 80
    del cluster.commits[:]
    assert await leaving
    assert len(handler.finished) == 10
    assert cluster.commits == []
    assert cluster.committed(queue) == 80
    await cluster.stop()


@in_virtual_time
async def test_members_that_stop_together_drain_as_long_as_each_of_them_may() -> None:
    cluster, queues = await with_queues(4, 4)
    handler = Handler(seconds=25.0)
    members = [await cluster.member(consumed(handler), expected_members=2).start() for _ in range(2)]
    await eventually(lambda: len(handler.started) == 16, 10)
    assert await asyncio.gather(*(member.stop(drain_timeout=30) for member in members)) == [True, True]
    assert set(handler.finished.values()) == {1}
    assert [cluster.committed(queue) for queue in queues] == [4] * 4
    await cluster.stop()


@pytest.mark.parametrize("orderly", [False, True])
def test_storms_of_joins_and_leaves_lose_nothing_and_never_overlap(orderly: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        random = Random(7)
        cluster, queues = await with_queues(8, 400, brokers=2)
        active: Counter[MessageQueue] = Counter()
        done: dict[MessageQueue, list[int]] = {queue: [] for queue in queues}

        async def handler(message: Message) -> None:
            queue = message.queue
            assert queue is not None
            active[queue] += 1
            try:
                assert not orderly or active[queue] == 1
                await asyncio.sleep(random.random() * 0.05)
                done[queue].append(message.offset)
            finally:
                active[queue] -= 1

        members = [await cluster.member(consumed(handler, orderly=orderly)).start()]
        for _ in range(60):
            await asyncio.sleep(random.choice([0.0, 0.05, 0.1, 0.3]))
            if len(members) > 1 and random.random() < 0.5:
                assert await members.pop(random.randrange(len(members))).stop()
            else:
                members.append(await cluster.member(consumed(handler, orderly=orderly)).start())
            for member in members:
                loops = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("pull ")]
                assert member.consumer is not None
                assert max(Counter(loops).values(), default=0) <= len(members) + 1
        await eventually(lambda: all(len(set(offsets)) == 800 // 2 for offsets in done.values()), 600)
        for offsets in done.values():
            assert sorted(set(offsets)) == list(range(400))
            if orderly:
                # Across all members and hand-overs: in order, and nothing twice.
                assert offsets == list(range(400))
        await asyncio.gather(*(member.stop() for member in members))
        assert all(offset == 400 for (_, queue), offset in cluster.offsets.items() if queue.topic == "topic")
        await cluster.stop()

    story()


@in_virtual_time
async def test_a_member_that_no_broker_tells_the_group_has_assigned_nothing_yet_and_says_why() -> None:
    cluster, queues = await with_queues(4)
    cluster.refuse(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    member = await cluster.member(consumed(Handler())).start()
    await asyncio.sleep(60)
    said = member.consumer.snapshot()
    assert (said.has_assigned, bool(said.unassigned), owned(member)) == (False, True, set())
    cluster.behave()
    await eventually(lambda: owned(member) == set(queues))
    said = member.consumer.snapshot()
    assert (said.has_assigned, said.unassigned) == (True, "")
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_no_answer_is_no_reason_to_give_anything_up() -> None:
    cluster, queues = await with_queues(4, 10)
    handler = Handler()
    member = await cluster.member(consumed(handler)).start()
    await eventually(lambda: len(handler.finished) == 40)
    cluster.refuse(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    await asyncio.sleep(50)
    assert owned(member) == set(queues)
    assert not member.events.of(Released)
    told = [event for event in member.events.of(LoopFailed) if event.loop == "rebalance"]  # type: ignore[attr-defined]
    assert len(told) == 1
    said = member.consumer.snapshot()
    assert (said.unassigned, said.has_assigned) == (told[0].error, True)
    # An empty list does not count as an answer either.
    cluster.behave()
    cluster.misbehave[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda _: True
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_member_that_is_not_in_the_list_tells_the_broker_before_it_believes_it() -> None:
    cluster, queues = await with_queues(2)
    member = await cluster.member(consumed(Handler())).start()
    broker = cluster.brokers["broker-a"]
    forgotten = dict(broker.members)
    broker.members.clear()
    member.consumer.members_changed()
    await asyncio.sleep(1)
    assert owned(member) == set(queues)
    assert set(broker.members) == set(forgotten)
    assert not member.events.of(Released)
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_list_without_us_is_not_believed_of_a_broker_that_refuses_our_heartbeat_while_another_takes_it() -> (
    None
):
    cluster, _ = await with_queues(1, brokers=2)
    cluster.topics.update({"topic": {"broker-b": 4}, "elsewhere": {"broker-a": 1}})
    topics = consumed(Handler()), consumed(Handler(), topic="elsewhere")
    member = await cluster.member(*topics).start()
    other = await cluster.member(*topics).start()
    await asyncio.sleep(3)
    kept = owned(member)
    assert len(kept) == 2
    forgetful, accept = cluster.brokers["broker-b"], cluster.answer

    def refuse(name: str, connection: Connection, command: Command) -> Command | None:
        is_beat = command.code == RequestCode.HEART_BEAT and name == forgetful.name
        if is_beat and Heartbeat.decode(command.body).client_id == member.client.client_id:
            return Command.response(command, 1, remark="not now")
        return accept(name, connection, command)

    cluster.answer = refuse  # type: ignore[method-assign]
    for connection, beat in list(forgetful.members.items()):
        if beat.client_id == member.client.client_id:
            del forgetful.members[connection]
    member.consumer.members_changed()
    await asyncio.sleep(5)
    assert owned(member) == kept
    await member.stop()
    await other.stop()
    await cluster.stop()


@in_virtual_time
async def test_notifications_in_swarms_cost_few_looks() -> None:
    cluster, _ = await with_queues(2)
    member = await cluster.member(consumed(Handler())).start()
    await asyncio.sleep(1)
    before = len(cluster.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP))
    for _ in range(1000):
        member.consumer.members_changed()
        await asyncio.sleep(0.001)
    assert len(cluster.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)) - before <= 1 / 0.05 + 2
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_members_that_start_together_pull_when_all_are_there_and_repeat_nothing() -> None:
    cluster, _ = await with_queues(8, 500)
    handler = Handler(seconds=0.001)
    members = []
    for number in range(4):
        members.append(await cluster.member(consumed(handler), expected_members=4).start())
        await asyncio.sleep(0.3)
        assert bool(handler.started) is (number == 3)
    await eventually(lambda: len(handler.finished) == 4000, 30)
    assert set(handler.finished.values()) == {1}
    await asyncio.gather(*(member.stop() for member in members))
    await cluster.stop()


@in_virtual_time
async def test_a_member_that_waits_in_vain_for_others_begins_after_the_join_timeout() -> None:
    cluster, _ = await with_queues(2, 5)
    handler = Handler()
    member = await cluster.member(consumed(handler), expected_members=3).start()
    await asyncio.sleep(4.9)
    assert not handler.started
    await eventually(lambda: len(handler.finished) == 10, 0.5)
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_new_queue_of_a_known_topic_is_read_from_its_beginning() -> None:
    cluster, _ = await with_queues(1, 5)
    handler = Handler()
    member = await cluster.member(consumed(handler, start="last")).start()
    await asyncio.sleep(1)
    _, fresh = cluster.create("topic", queues=2)
    cluster.send_many(fresh, 3)
    await eventually(lambda: len(handler.finished) == 3, 40)
    assert {queue for queue, _ in handler.finished} == {fresh}
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_epochs_grow_with_every_assignment() -> None:
    cluster, _ = await with_queues(2)
    first = await cluster.member(consumed(Handler())).start()
    for _ in range(5):
        other = await cluster.member(consumed(Handler())).start()
        await asyncio.sleep(2)
        await other.stop()
        await asyncio.sleep(2)
    epochs = [event.epoch for event in first.events.of(Assigned)]  # type: ignore[attr-defined]
    assert epochs == sorted(set(epochs))
    await first.stop()
    await cluster.stop()


# Frozen, or cut off.


@in_virtual_time
async def test_a_member_that_was_frozen_commits_nothing_before_it_knows_that_it_is_still_the_owner() -> None:
    cluster, (queue,) = await with_queues(1, 100)
    handler = Handler()
    member = await cluster.member(consumed(handler)).start()
    await eventually(lambda: len(handler.finished) == 100)
    # The process stands still for more than two minutes, and all its timers are late. Others went on meanwhile.
    await asyncio.sleep(1)
    cluster.held.clear()
    cluster.refuse(RequestCode.PULL_MESSAGE)
    cluster.send_many(queue, 100)
    cluster.offsets["group", queue] = 170
    del cluster.commits[:]
    cluster.loop.stand_still(CONFIRMED_FOR + 80)
    reasons = ["another member went on with it meanwhile"]
    await eventually(lambda: [event.reason for event in member.events.of(Released)] == reasons, 30)  # type: ignore[attr-defined]
    cluster.behave()
    await eventually(lambda: cluster.committed(queue) == 200, 30)
    assert min(offset for _, at, offset in cluster.commits if at == queue) >= 170
    assert len(handler.finished) == 130
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_after_an_outage_a_member_that_none_overtook_goes_on_and_repeats_nothing() -> None:
    cluster, (queue,) = await with_queues(1, 100)
    handler = Handler()
    member = await cluster.member(consumed(handler)).start()
    await eventually(lambda: len(handler.finished) == 100)
    codes = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.PULL_MESSAGE
    for code in codes:
        cluster.refuse(code)
    await asyncio.sleep(CONFIRMED_FOR + 60)
    cluster.behave()
    cluster.send_many(queue, 10)
    await eventually(lambda: len(handler.finished) == 110, 30)
    await asyncio.sleep(6)
    assert set(handler.finished.values()) == {1}
    assert cluster.committed(queue) == 110
    assert not member.events.of(Released)
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_commits_that_fail_a_hundred_times_are_caught_up_with() -> None:
    cluster, (queue,) = await with_queues(1, 100)
    handler = Handler()
    cluster.refuse(RequestCode.UPDATE_CONSUMER_OFFSET, times=100)
    cluster.offsets["group", queue] = 0
    member = await cluster.member(consumed(handler)).start()
    await eventually(lambda: cluster.committed(queue) == 100, 1000)
    assert set(handler.finished.values()) == {1}
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_broker_that_is_lost_again_and_again_does_not_keep_a_group_from_its_queues_for_ever() -> None:
    cluster, queues = await with_queues(2, brokers=2)
    steady = [queue for queue in queues if queue.broker_name == "broker-a"]
    handler = Handler()
    member = await cluster.member(consumed(handler)).start()
    await asyncio.sleep(5)

    async def flap() -> None:
        while True:
            cluster.network.cut(cluster.brokers["broker-b"].address)
            await asyncio.sleep(1.3)

    flapping = asyncio.ensure_future(flap())
    await asyncio.sleep(CONFIRMED_FOR)
    for queue in steady:
        cluster.send_many(queue, 10)
    await eventually(lambda: len(handler.finished) == 20)
    await eventually(lambda: [cluster.committed(queue) for queue in steady] == [10, 10], 30)
    other = await cluster.member(consumed(handler)).start()
    await eventually(lambda: len(owned(member)) == len(owned(other)) == 2, 30)
    flapping.cancel()
    assert len(handler.finished) == 20
    await member.stop()
    await other.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_topic_that_does_not_exist_is_told_at_the_start() -> None:
    cluster, _ = await with_queues(1)
    member = cluster.member(consumed(Handler(), topic="missing"))
    await member.start()
    assert [event.topic for event in member.events.of(TopicMissing)] == ["missing"]


class _FirstOnly:
    """All queues to the first member. It fails when it is told to, and names queues that do not exist."""

    name = "first-only"

    def __init__(self) -> None:
        self.problem = ""
        self.asked: list[tuple[str, str]] = []

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        self.asked.append((group, me))
        if self.problem:
            raise ZeroDivisionError(self.problem)
        return [*queues, MessageQueue("topic", "nowhere", 99)] if me == members[0] else ()


@in_virtual_time
async def test_members_share_by_the_strategy_that_they_are_given() -> None:
    cluster, queues = await with_queues(4)
    strategy = _FirstOnly()
    members = [cluster.member(consumed(Handler()), allocation=strategy) for _ in range(2)]
    for member in members:
        await member.start()
    await eventually(lambda: sorted(map(len, map(owned, members))) == [0, 4], 1.0)
    first = min(members, key=lambda member: member.client.client_id)
    assert owned(first) == set(queues)
    assert set(strategy.asked) == {("group", member.client.client_id) for member in members}
    for member in members:
        await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_strategy_that_fails_leaves_the_queues_where_they_are_and_is_asked_again() -> None:
    cluster, queues = await with_queues(4)
    strategy = _FirstOnly()
    member = await cluster.member(consumed(Handler()), allocation=strategy).start()
    strategy.problem = "no zone"
    await asyncio.sleep(30)
    assert owned(member) == set(queues)
    assert "topic: ZeroDivisionError: no zone" in member.consumer.snapshot().unassigned
    strategy.problem = ""
    await asyncio.sleep(2)
    assert member.consumer.snapshot().unassigned == ""
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_topic_that_the_strategy_leaves_out_is_told_once() -> None:
    cluster, _ = await with_queues(4)
    rooms = ByMachineRoom(frozenset({"idc1"}))
    members = [await cluster.member(consumed(Handler()), allocation=rooms).start() for _ in range(2)]
    await asyncio.sleep(60)
    for member in members:
        told = sorted(event.error for event in member.events.of(LoopFailed))
        text = "allocation MACHINE_ROOM: by this process's settings no member gets a queue of {}, which is on broker-a"
        assert told == [text.format("%RETRY%group"), text.format("topic")]
        assert member.consumer.snapshot().has_assigned
        await member.stop()
    await cluster.stop()
