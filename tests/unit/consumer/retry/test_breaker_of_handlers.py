"""Circuit breakers: a topic whose handler fails stands still with a reason, and one message finds out when to go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.model.event import Moving, QueueBlocked
from rocketapp.model.names import dlq_topic
from rocketapp.model.outcome import DeadLetter, Skip
from rocketapp.model.policy import Breaker, Policy
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, Member, consumed, consumed_by, subscription
from tests.unit.scripted import eventually, in_virtual_time

BREAKER = Policy([1], breaker=Breaker(failures=5, within=60, pause=30))


class Database:
    """What a handler needs; it is down for a while."""

    def __init__(self) -> None:
        self.is_down = True
        self.calls: list[float] = []
        self.running = self.most = 0

    async def __call__(self, message: Any) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.calls.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.01)
        self.running -= 1
        if self.is_down:
            raise ConnectionError("no database")


async def started(call: Any, *, queues: int = 2, messages: int = 100, **options: Any) -> tuple[FakeCluster, Member]:
    cluster = FakeCluster()
    await cluster.start()
    for queue in cluster.create("topic", queues=queues):
        cluster.send_many(queue, messages // queues)
    options = {"retry": BREAKER, "concurrency": 4, "retries": 100, **options}
    return cluster, await cluster.member(consumed(call, **options)).start()


def reasons(consumer: PushConsumer) -> set[str]:
    return {reason for queue, reason in consumer.snapshot().blocked.items() if queue.topic == "topic"}


@pytest.mark.parametrize("options", [{}, {"orderly": True}, {"batch": 4}, {"batch": 4, "orderly": True}])
@in_virtual_time
async def test_it_pauses_the_topic_tries_one_message_and_goes_on_when_that_succeeds(options: dict[str, Any]) -> None:
    database = Database()
    cluster, member = await started(database, **options)
    await asyncio.sleep(25)
    before = len(database.calls)
    assert 2 <= before <= 9
    (reason,) = reasons(member.consumer)
    assert reason.startswith("paused: circuit breaker of handler: 5 failed attempts within ")
    assert "ConnectionError: no database" in reason
    assert reason.endswith("; one message is tried after 30 s")
    # Every 30 s one message, and not more than one at once.
    database.most = 0
    await asyncio.sleep(100)
    assert 3 <= len(database.calls) - before <= 4
    assert database.most == 1
    assert len(reasons(member.consumer)) == 1
    database.is_down = False
    await eventually(lambda: member.consumer.counters.handled == 100, 60)
    await eventually(lambda: not member.consumer.snapshot().blocked)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_topic_that_stands_still_is_told_to_move_only_when_it_does() -> None:
    database = Database()
    cluster, member = await started(database, queues=1)
    await asyncio.sleep(100)
    told = [
        event for event in member.events if isinstance(event, QueueBlocked | Moving) and event.queue.topic == "topic"
    ]
    assert not [event for event in told if isinstance(event, Moving)]
    database.is_down = False
    await eventually(lambda: not member.consumer.snapshot().blocked, 60)
    assert isinstance([event for event in member.events if isinstance(event, QueueBlocked | Moving)][-1], Moving)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_message_is_tried_when_it_comes_also_one_that_comes_back() -> None:
    database = Database()
    cluster, member = await started(database, queues=1, messages=5)
    await asyncio.sleep(200)  # all of them were sent back, and wait in the retry topic
    assert len(reasons(member.consumer)) == 1
    assert 5 < len(database.calls) <= 5 + 7
    database.is_down = False
    await eventually(lambda: member.consumer.counters.handled == 5, 60)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_the_app_may_pause_and_resume_beside_it() -> None:
    database = Database()
    cluster, member = await started(database)
    await asyncio.sleep(10)
    member.consumer.pause("topic", "maintenance")
    before = len(database.calls)
    await asyncio.sleep(100)
    assert len(database.calls) == before
    member.consumer.resume("topic", "maintenance")
    await asyncio.sleep(40)
    assert len(database.calls) > before
    # By hand it goes on at once, and opens again after as many failures as before.
    member.consumer.resume("topic")
    assert not reasons(member.consumer)
    before = len(database.calls)
    await asyncio.sleep(20)
    assert len(database.calls) - before >= 5
    assert len(reasons(member.consumer)) == 1
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_trial_that_never_ends_is_followed_by_another() -> None:
    database, hang = Database(), asyncio.Event()

    async def handle(message: Message) -> None:
        if len(database.calls) == 9:
            database.calls.append(0.0)
            await hang.wait()
        await database(message)

    cluster, member = await started(handle, queues=1, concurrency=5)
    await eventually(lambda: len(database.calls) == 10, 100)
    database.is_down = False
    await eventually(lambda: member.consumer.counters.handled == 99, 60)
    hang.set()
    await eventually(lambda: member.consumer.counters.handled == 100, 60)
    assert await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("outcome", [DeadLetter("spoilt"), Skip()])
@in_virtual_time
async def test_what_is_the_message_s_own_fault_does_not_open_it(outcome: BaseException) -> None:
    async def handle(_: Message) -> None:
        raise outcome

    cluster, member = await started(handle, queues=1, messages=20)
    await asyncio.sleep(10)
    counters = member.consumer.counters
    assert counters.handled + counters.dead_lettered == 20
    assert not reasons(member.consumer)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_each_handler_has_its_own_and_only_its_message_is_tried() -> None:
    down, calls = Database(), list[float]()

    async def fine(_: Message) -> None:
        calls.append(asyncio.get_running_loop().time())

    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 10, TAGS="down")
    member = await cluster.member(
        consumed_by(
            Handler(subscription("down", tags="down", retry=BREAKER, concurrency=1), down),
            Handler(subscription("fine", retry=BREAKER), fine),
        )
    ).start()
    await asyncio.sleep(10)
    assert "circuit breaker of down" in next(iter(reasons(member.consumer)))
    cluster.send_many(queue, 10, TAGS="fine")
    await asyncio.sleep(60)
    assert not calls
    down.is_down = False
    await eventually(lambda: member.consumer.counters.handled == 20, 100)
    assert await member.stop()
    assert not cluster.bodies(dlq_topic("group"))
    await cluster.stop()


@in_virtual_time
async def test_a_member_that_stops_while_it_is_open_leaves_nothing_behind() -> None:
    database = Database()
    cluster, member = await started(database)
    await asyncio.sleep(10)
    before = len(database.calls)
    assert await member.stop()
    await asyncio.sleep(100)
    assert len(database.calls) == before
    await cluster.stop()


@in_virtual_time
async def test_a_breaker_closes_without_messages_although_some_waited_whose_queue_was_given_up() -> None:
    database, options = Database(), {"retry": BREAKER, "concurrency": 5, "retries": 0}
    cluster = FakeCluster()
    await cluster.start()
    _, given_up = cluster.create("topic", queues=2)
    cluster.send_many(given_up, 10)  # five of them wait
    member = await cluster.member(consumed(database, **options)).start()
    await eventually(lambda: bool(member.consumer.snapshot().paused))
    newer = await cluster.member(consumed(database, **options)).start()
    await eventually(lambda: given_up not in member.consumer.snapshot().blocked)
    # Meanwhile it would take no message that others forward to it.
    await eventually(lambda: not member.consumer.snapshot().paused, 95)
    assert await member.stop()
    assert await newer.stop()


@pytest.mark.parametrize("options", [{}, {"orderly": True}, {"order_by": "k"}])
@in_virtual_time
async def test_other_handlers_of_the_topic_wait_no_longer_than_two_pauses_for_one_without_messages(
    options: dict[str, Any],
) -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    is_down, calls = [True], list[float]()

    async def one(_: Message) -> None:
        calls.append(cluster.loop.time())
        if is_down[0]:
            raise ConnectionError("no database")

    async def other(_: Message) -> None:
        await asyncio.sleep(0.01)

    policy = Policy([1], breaker=Breaker(failures=3, within=60, pause=30))
    handlers = [
        Handler(subscription(tag, tags=tag, retry=policy, retries=0, **options), call)
        for tag, call in (("one", one), ("other", other))
    ]
    member = await cluster.member(consumed_by(*handlers)).start()
    for _ in range(3):
        cluster.send(queue, b"dead", TAGS="one")
    await eventually(lambda: member.consumer.counters.dead_lettered == 3)
    cluster.send(queue, b"later", TAGS="other")
    if options.get("orderly"):
        # The message that could be tried stands behind it.
        cluster.send(queue, b"later", TAGS="one")
    await asyncio.sleep(29)
    assert member.consumer.counters.handled == 0
    await eventually(lambda: member.consumer.counters.handled == 1, 35)
    # The next failure pauses the topic again.
    while len(cluster.log[queue]) < 8:
        cluster.send(queue, b"later", TAGS="one")
    await eventually(lambda: len(calls) > 3 and bool(reasons(member.consumer)), 5)
    is_down[0] = False
    await eventually(lambda: cluster.committed(queue) == 8, 120)
    assert not member.consumer.snapshot().blocked
    assert await member.stop()
    await cluster.stop()
