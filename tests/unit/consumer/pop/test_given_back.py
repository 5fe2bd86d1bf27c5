"""What a member has got and does not start is given back at once, also when it comes after the end of its session."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.client.calls import pop
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import Pause
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from rocketapp.wire.requests.assignment import ALL_QUEUES, POP, AssignedQueue, AssignmentQuestion, encode_assigned
from rocketapp.wire.requests.pop import PopRequest
from tests.unit.consumer.fake_cluster import Member, consumed
from tests.unit.consumer.pop.pop_cluster import PopCluster, popped
from tests.unit.consumer.pop.test_pop import Seen, left, started
from tests.unit.scripted import eventually, in_virtual_time

TOPIC = MessageQueue("topic", "broker-a", 0)
HELD = 15.0
"""Seconds that the broker holds a request while it has nothing: so long another member may wait for its next answer."""


class ChosenMembers(PopCluster):
    """Shares out the topic to one member, the newest, when there is more than one."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[str] = []
        self.newest_only = False

    def _query_assignment(self, name: str, _: Connection, command: Command) -> Command:
        question = AssignmentQuestion.decode(command.body)
        if question.client_id not in self.clients:
            self.clients.append(question.client_id)
        is_one = not self.newest_only or question.client_id == self.clients[-1]
        queue = MessageQueue(question.topic, name if is_one else "another-broker", ALL_QUEUES)
        return Command.response(command, 0, body=encode_assigned([AssignedQueue(queue, POP)]))


def owns(member: Member) -> bool:
    return any(each.queue.topic == "topic" for each in member.consumer.snapshot().queues)


@in_virtual_time
async def test_an_answer_after_the_topic_went_to_another_member_is_given_back() -> None:
    cluster, seen, others = ChosenMembers(), Seen(), Seen()
    await cluster.start()
    cluster.create("topic")
    member = await cluster.member(popped(seen)).start()
    await asyncio.sleep(1)
    other = await cluster.member(popped(others)).start()
    cluster.newest_only = True
    member.consumer.members_changed()
    await eventually(lambda: not owns(member), seconds=30)
    cluster.send(TOPIC, b"late")
    await eventually(lambda: others == [(b"late", 1)], seconds=HELD + 1)
    assert seen == []
    await eventually(lambda: left(cluster) == 0)
    assert await member.stop() and await other.stop()


@in_virtual_time
async def test_a_topic_that_was_given_back_leaves_nothing_in_the_budget() -> None:
    cluster, seen = await started(queues=1), Seen()
    member = await cluster.member(popped(seen)).start()
    cluster.send(TOPIC, b"one")
    await eventually(lambda: len(seen) == 1)
    assert " 0 queues" not in repr(member.flow_control)
    assert await member.stop()
    assert " 0 queues" in repr(member.flow_control)


@in_virtual_time
async def test_an_answer_while_a_stop_waits_for_another_topic_is_given_back() -> None:
    cluster, seen, others, slow = await started(queues=1), Seen(), Seen(), Seen(takes=20.0)
    (pulled,) = cluster.create("pulled")
    member = await cluster.member(popped(seen), consumed(slow, topic="pulled")).start()
    cluster.send(pulled, b"slow")
    await eventually(lambda: len(slow) == 1)
    stopping = asyncio.ensure_future(member.stop())
    await asyncio.sleep(2)
    cluster.send(TOPIC, b"late")
    other = await cluster.member(popped(others)).start()
    await eventually(lambda: others == [(b"late", 1)], seconds=HELD + 1)
    assert seen == [] and not stopping.done()
    assert await stopping and await other.stop()


@in_virtual_time
async def test_an_answer_of_a_broker_that_no_route_names_any_more_is_given_back() -> None:
    cluster, seen = PopCluster(brokers=2), Seen()
    await cluster.start()
    _, there = cluster.create("topic")
    member = await cluster.member(popped(seen), config=ConsumerConfig(subscription_check="off")).start()
    await asyncio.sleep(1)
    routes = {topic: dict(counts) for topic, counts in cluster.topics.items()}
    for topic, counts in cluster.topics.items():
        del counts["broker-b"]
        member.client.routes.refresh_soon(topic)
    await eventually(lambda: all(each.queue.broker_name == "broker-a" for each in member.consumer.snapshot().queues))
    cluster.topics = routes  # the broker has them all the while: only its name was gone
    cluster.send(there, b"late")
    await eventually(lambda: seen == [(b"late", 1)], seconds=60)
    await eventually(lambda: left(cluster) == 0)
    assert await member.stop()


@pytest.mark.parametrize(("version", "counts"), [(493, True), (513, False)])
@in_virtual_time
async def test_an_answer_during_a_pause_is_given_back_to_brokers_that_count_no_attempt(
    version: int, counts: bool
) -> None:
    cluster, seen, others = await started(queues=1), Seen(), Seen()
    cluster.version = version
    member = await cluster.member(popped(seen)).start()
    await asyncio.sleep(1)
    member.consumer.pause("topic", "by hand")
    other = await cluster.member(popped(others)).start()
    await asyncio.sleep(1)
    cluster.send(TOPIC, b"late")
    await asyncio.sleep(2 * HELD)
    assert others == ([] if counts else [(b"late", 1)])
    member.consumer.resume("topic")
    await eventually(lambda: [*seen, *others] == [(b"late", 1)])
    assert await member.stop() and await other.stop()


@in_virtual_time
async def test_a_stop_waits_for_a_broker_that_takes_nothing_back_as_long_as_for_acknowledgements() -> None:
    cluster, slow = await started(queues=1, sent=90), Seen(takes=0.1)
    member = await cluster.member(popped(slow, concurrency=1)).start()
    await eventually(lambda: len(slow) == 1)
    cluster.ignore(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    began = asyncio.get_running_loop().time()
    assert await member.stop()
    assert len(slow) < 40
    assert asyncio.get_running_loop().time() - began < 7


@in_virtual_time
async def test_an_answer_that_is_handed_on_after_the_end_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, seen = await started(queues=1), Seen()
    asked: list[tuple[Connection, asyncio.Future[Command]]] = []
    real = pop.start

    def start(connection: Connection, request: PopRequest, timeout: float) -> asyncio.Future[Command]:
        asked.append((connection, real(connection, request, timeout)))
        return asked[-1][1]

    monkeypatch.setattr(pop, "start", start)
    member = await cluster.member(popped(seen)).start()
    await asyncio.sleep(1)
    ((connection, coming),) = asked

    def lose(_: asyncio.Future[Command]) -> None:
        cluster.network.hold(connection.peer)
        connection.abort("lost")

    # Its connection is lost with the answer: before messages are handed on, the next request waits for another one.
    coming.add_done_callback(lose)
    cluster.send(TOPIC, b"late")
    await eventually(coming.done)
    assert len(asked) == 1 and seen == []
    await member.stop()
    assert seen == []


@in_virtual_time
async def test_what_is_parked_while_its_member_stops_is_given_back_at_once() -> None:
    cluster, others = await started(queues=1), Seen()

    async def stops(_: Message) -> None:
        await asyncio.sleep(5)
        raise Pause("the service is down")

    member = await cluster.member(popped(stops)).start()
    cluster.send(TOPIC, b"kept")
    await asyncio.sleep(1)
    stopping = asyncio.ensure_future(member.stop())
    other = await cluster.member(popped(others)).start()
    await eventually(lambda: [body for body, _ in others] == [b"kept"], seconds=HELD + 5)
    assert await stopping and await other.stop()
