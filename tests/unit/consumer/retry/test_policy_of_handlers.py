"""Policies of handlers, as brokers and handlers see them."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.model.event import Retried
from rocketapp.model.names import dlq_topic
from rocketapp.model.outcome import DeadLetter, Outcome, Outcomes, Pause, Retry, Skip
from rocketapp.model.policy import Policy
from rocketapp.model.snapshot import HandlerStats
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed, consumed_by, subscription
from tests.unit.scripted import eventually, in_virtual_time

POLICY = Policy([4, 30], on={TimeoutError: Retry(after=60), ValueError: DeadLetter, KeyError: Skip, OSError: Pause})


class Scripted:
    """A handler that raises or returns what it is told, by body, and remembers when it was called."""

    def __init__(self, **outcomes: list[Any]) -> None:
        self.outcomes = outcomes
        self.calls: list[tuple[str, float]] = []

    async def __call__(self, message: Message) -> Any:
        body = message.body.decode()
        self.calls.append((body, asyncio.get_running_loop().time()))
        outcome = next(iter(self.outcomes.get(body, [])), None)
        if outcome is None:
            return None
        self.outcomes[body].pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def times(self, body: str) -> list[float]:
        return [time for one, time in self.calls if one == body]

    def gaps(self, body: str) -> list[float]:
        times = self.times(body)
        return [round(after - before, 1) for before, after in pairwise(times)]


async def cluster_with(*bodies: str) -> FakeCluster:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    for body in bodies:
        cluster.send(queue, body.encode())
    return cluster


@in_virtual_time
async def test_the_delays_of_a_concurrent_handler_are_rounded_up_to_levels_and_the_last_one_repeats() -> None:
    handler = Scripted(m=[RuntimeError(), RuntimeError(), TimeoutError(), RuntimeError()])
    cluster = await cluster_with("m")
    member = await cluster.member(consumed(handler, retry=POLICY)).start()
    await eventually(lambda: len(handler.calls) == 5, 1000)
    assert [event.delay for event in member.events.of(Retried)] == [5, 30, 60, 30]  # type: ignore[attr-defined]
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_the_delays_of_an_orderly_handler_are_exact() -> None:
    handler = Scripted(m=[RuntimeError(), RuntimeError(), TimeoutError(), Retry(after=0.5), RuntimeError()])
    cluster = await cluster_with("m")
    member = await cluster.member(consumed(handler, retry=POLICY, orderly=True)).start()
    await eventually(lambda: len(handler.calls) == 6, 1000)
    assert handler.gaps("m") == [4, 30, 60, 0.5, 30]
    assert await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("orderly", [False, True])
@in_virtual_time
async def test_exception_classes_skip_and_dead_letter(orderly: bool) -> None:
    handler = Scripted(dead=[ValueError("spoilt")], skip=[KeyError()])
    cluster = await cluster_with("dead", "skip", "done")
    member = await cluster.member(consumed(handler, retry=POLICY, orderly=orderly)).start()
    await eventually(lambda: member.consumer.counters == HandlerStats(handled=2, dead_lettered=1), 60)
    assert cluster.bodies(dlq_topic("group")) == [b"dead"]
    assert [body for body, _ in handler.calls] == ["dead", "skip", "done"]
    assert await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("outcome", [OSError("disk full"), Pause("disk full")])
@in_virtual_time
async def test_stop_pauses_the_topic_with_a_reason_and_keeps_the_message(orderly: bool, outcome: BaseException) -> None:
    handler = Scripted(m=[outcome])
    cluster = await cluster_with("before", "m", *"abcdefgh")
    (queue,) = [queue for queue in cluster.log if queue.topic == "topic"]
    topic = consumed(handler, retry=POLICY, orderly=orderly, concurrency=1)
    member = await cluster.member(topic).start()
    await asyncio.sleep(100)
    assert [body for body, _ in handler.calls] == ["before", "m"]
    (reason,) = set(member.consumer.snapshot().blocked.values())
    assert reason.startswith("paused: handler said pause: ")
    assert "disk full" in reason
    assert (cluster.committed(queue) or 0) <= 1
    member.consumer.resume("topic")
    await eventually(lambda: member.consumer.counters.handled == 10, 10)
    again = [body for body, _ in handler.calls[2:]]
    assert again.count("m") == 1
    assert again[0] == "m" or not orderly
    assert member.consumer.counters.retried == 0
    assert member.consumer.snapshot().blocked == {}
    assert await member.stop()
    assert cluster.committed(queue) == 10
    await cluster.stop()


@in_virtual_time
async def test_a_member_that_stops_leaves_a_kept_message_to_the_next_one() -> None:
    handler = Scripted(m=[Pause("maintenance")])
    cluster = await cluster_with("m", "after")
    (queue,) = [queue for queue in cluster.log if queue.topic == "topic"]
    member = await cluster.member(consumed(handler)).start()
    await asyncio.sleep(20)
    assert await member.stop()
    assert cluster.committed(queue) == 0
    assert not cluster.bodies(dlq_topic("group"))
    other = await cluster.member(consumed(handler)).start()
    await eventually(lambda: len(handler.times("m")) == 2, 60)
    assert await other.stop()
    assert cluster.committed(queue) == 2
    await cluster.stop()


@in_virtual_time
async def test_a_message_that_says_stop_while_its_queue_is_given_up_is_not_waited_for() -> None:
    cluster = await cluster_with("m")
    (queue,) = [queue for queue in cluster.log if queue.topic == "topic"]
    started = asyncio.Event()

    async def slow(_: Message) -> Outcome:
        started.set()
        await asyncio.sleep(5)
        return Pause("closing")

    member = await cluster.member(consumed(slow)).start()
    await started.wait()
    assert await member.stop()
    assert cluster.committed(queue) == 0
    await cluster.stop()


@pytest.mark.parametrize("orderly", [False, True])
@in_virtual_time
async def test_one_message_of_a_batch_may_say_stop(orderly: bool) -> None:
    seen: list[list[str]] = []

    async def handle(messages: list[Message]) -> Any:
        seen.append([message.body.decode() for message in messages])
        return Outcomes({messages[1]: Pause("full")}) if len(seen) == 1 else None

    cluster = await cluster_with("a", "b", "c")
    member = await cluster.member(consumed(handle, batch=3, orderly=orderly)).start()
    await asyncio.sleep(20)
    assert seen == [["a", "b", "c"]]
    assert member.consumer.counters.handled == 2
    member.consumer.resume("topic")
    await eventually(lambda: member.consumer.counters.handled == 3, 5)
    assert seen[1:] == [["b"]]
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_each_handler_of_a_topic_has_its_own_policy() -> None:
    async def fail(_: Message) -> None:
        raise ValueError

    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send(queue, b"one", TAGS="one")
    cluster.send(queue, b"rest")
    handlers = [
        Handler(subscription("one", tags="one", retry=Policy(on={ValueError: DeadLetter})), fail),
        Handler(subscription("rest", retry=Policy(on={ValueError: Skip})), fail),
    ]
    member = await cluster.member(consumed_by(*handlers)).start()
    await eventually(lambda: member.consumer.counters == HandlerStats(handled=1, dead_lettered=1), 30)
    assert cluster.bodies(dlq_topic("group")) == [b"one"]
    assert await member.stop()
    await cluster.stop()
