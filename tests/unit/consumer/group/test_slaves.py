"""A slave stands in for its master: messages, members and offsets are read from it, and nothing is written to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from rocketapp.model.event import QueueBlocked, ReadFromSlave
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import BrokerData, QueueData, TopicRoute
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from rocketapp.wire.requests.clients import Heartbeat
from rocketapp.wire.requests.offsets import OffsetResponse, QueryOffsetRequest
from rocketapp.wire.requests.pull import PullRequest, PullResponse
from rocketapp.wire.requests.routes import RouteRequest, encode_route
from tests.unit.consumer.fake_cluster import Broker, FakeCluster, consumed
from tests.unit.scripted import eventually, in_virtual_time

PULL, QUERY, COMMIT = RequestCode.PULL_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET
NAME, SLAVE, PORT = "broker-a", 1, 10911


@dataclass
class Slave(Broker):
    """It holds the same messages as its master, and the offsets of its last look."""

    asked: Counter[int] = field(default_factory=Counter)
    """Requests by code."""
    offsets: dict[tuple[str, MessageQueue], int] = field(default_factory=dict)
    first: int = 0
    """Its first offset: a slave that is younger than its master holds less."""
    behind: int = 0
    """How many messages of each queue it has not got yet."""
    is_read: bool = True
    """`slaveReadEnable`."""


class SlaveCluster(FakeCluster):
    """One broker: a master, which can be killed, and its slave."""

    def __init__(self) -> None:
        super().__init__()
        self.is_named = True
        self.slave: Slave

    async def start(self) -> None:
        await super().start()
        await self.start_broker("slave", PORT + 100)
        one = self.brokers["slave"]
        self.slave = self.brokers["slave"] = Slave(one.name, one.address, one.listener)

    def create(self, topic: str, queues: int = 1) -> list[MessageQueue]:
        self.topics[topic] = {NAME: queues}
        return [MessageQueue(topic, NAME, number) for number in range(queues)]

    async def kill_master(self) -> None:
        """Its connections are reset and nothing listens there; the name server forgets it."""
        broker = self.brokers[NAME]
        broker.members.clear()
        self.locks.clear()
        self.is_named = False
        self.network.unlisten(broker.address)
        self.network.cut(broker.address)

    async def master_returns(self) -> None:
        await self.start_broker(NAME, PORT)
        self.is_named = True

    def _serve_route(self, connection: Connection, command: Command) -> Command | None:
        topic = RouteRequest.from_fields(command.fields).topic
        if topic not in self.topics:
            return Command.response(command, ResponseCode.TOPIC_NOT_EXIST, remark="no route")
        addresses = {SLAVE: self.slave.address, **({0: self.brokers[NAME].address} if self.is_named else {})}
        count = self.topics[topic].get(NAME, 1)
        route = TopicRoute((QueueData(NAME, count, count, 6),), (BrokerData("c", NAME, addresses),))
        return Command.response(command, 0, body=encode_route(route))

    def answer(self, name: str, connection: Connection, command: Command) -> Command | None:
        if name == NAME:
            return super().answer(name, connection, command)
        self.slave.asked[command.code] += 1
        if command.code == QUERY:
            return self._slave_offset(command)
        return (
            self._slave_pull(connection, command) if command.code == PULL else super().answer(name, connection, command)
        )

    def _slave_offset(self, command: Command) -> Command:
        request = QueryOffsetRequest.from_fields(command.fields)
        offset = self.slave.offsets.get((request.group, MessageQueue(request.topic, NAME, request.queue_id)))
        if offset is None:
            return Command.response(command, ResponseCode.QUERY_NOT_FOUND, remark="Not found")
        return Command.response(command, 0, fields=OffsetResponse(offset).to_fields())

    def _slave_pull(self, connection: Connection, command: Command) -> Command:
        request = PullRequest.from_fields(command.fields)
        queue = MessageQueue(request.topic, NAME, request.queue_id)
        slave, beat = self.slave, self.slave.members.get(connection)
        if not slave.is_read:
            return Command.response(command, ResponseCode.SYSTEM_BUSY, remark="[REJECTREQUEST]system busy")
        data = [each for one in (beat.consumers if beat else ()) for each in one.subscriptions]
        wanted = [each for each in data if each.topic == request.topic]
        if not wanted:
            return Command.response(command, ResponseCode.SUBSCRIPTION_NOT_EXIST, remark="who are you")
        end = max(0, len(self.log[queue]) - slave.behind)
        if not slave.first <= request.offset < end:
            # It sends readers back to its master, and does not say which offset would be right.
            fields = PullResponse(0, request.offset, slave.first, end).to_fields()
            return Command.response(command, ResponseCode.PULL_RETRY_IMMEDIATELY, fields=fields)
        few = replace(request, max_messages=min(32, end - request.offset))
        return self.answered(queue, few, wanted[0], command)


class Taken(list[int]):
    """A handler that notes down offsets."""

    async def __call__(self, message: Message) -> None:
        self.append(message.offset)


@in_virtual_time
async def test_messages_are_read_from_the_slave_while_the_master_is_away_and_from_the_master_when_it_is_back() -> None:
    cluster, taken = SlaveCluster(), Taken()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 10)
    member = await cluster.member(consumed(taken)).start()
    await eventually(lambda: cluster.committed(queue) == 10, 10)
    assert not cluster.slave.asked[PULL]

    await cluster.kill_master()
    cluster.send_many(queue, 100)  # what the slave had got before the master died
    await eventually(lambda: len(taken) == 110, 3)
    await asyncio.sleep(60)
    # A slave answers at once when it has nothing: it is asked about once a second.
    assert cluster.slave.asked[PULL] < 2 * (60 + 10)
    assert cluster.slave.asked[COMMIT] == 0
    assert cluster.committed(queue) == 10
    assert not member.consumer.snapshot().blocked

    await cluster.master_returns()
    cluster.send_many(queue, 5)
    await eventually(lambda: cluster.committed(queue) == 115, 10)
    asked = cluster.slave.asked[PULL]
    await asyncio.sleep(60)
    assert cluster.slave.asked[PULL] == asked
    assert taken == list(range(115))
    told = [event.broker_id for event in member.events.of(ReadFromSlave)]  # type: ignore[attr-defined]
    assert told == [SLAVE, 0]
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_slave_that_is_behind_or_young_moves_no_offset_and_nothing_is_skipped() -> None:
    cluster, taken = SlaveCluster(), Taken()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 20)
    member = await cluster.member(consumed(taken)).start()
    await eventually(lambda: cluster.committed(queue) == 20, 10)
    cluster.slave.behind = 5
    await cluster.kill_master()
    await asyncio.sleep(20)
    cluster.slave.behind, cluster.slave.first = 0, 25
    cluster.send_many(queue, 10)
    await asyncio.sleep(20)
    (reason,) = {text for at, text in member.consumer.snapshot().blocked.items() if at == queue}
    assert "has no messages before offset 25" in reason
    assert taken == list(range(20))
    await cluster.master_returns()
    await eventually(lambda: cluster.committed(queue) == 30, 10)
    assert taken == list(range(30))
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_slave_that_may_not_be_read_keeps_the_queue_waiting_for_its_master_and_is_said() -> None:
    cluster, taken = SlaveCluster(), Taken()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.slave.is_read = False
    member = await cluster.member(consumed(taken)).start()
    await eventually(lambda: len(cluster.requests(PULL, topic="topic")) == 1, 3)
    await cluster.kill_master()
    cluster.send_many(queue, 3)
    await asyncio.sleep(30)
    assert not taken
    assert cluster.slave.asked[PULL] < 2 * 35
    assert "pull failed" in member.consumer.snapshot().blocked[queue]
    assert any("pull failed" in event.reason for event in member.events.of(QueueBlocked))  # type: ignore[attr-defined]
    assert not member.events.of(ReadFromSlave)
    await cluster.master_returns()
    await eventually(lambda: taken == [0, 1, 2], 5)
    await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("known", [5, None], ids=["an offset", "none"])
def test_a_member_that_starts_without_the_master_goes_on_at_the_offset_of_the_slave_and_never_guesses(
    known: int | None,
) -> None:
    @in_virtual_time
    async def run() -> None:
        cluster, taken = SlaveCluster(), Taken()
        await cluster.start()
        (queue,) = cluster.create("topic")
        cluster.create("%RETRY%group")
        cluster.send_many(queue, 10)
        cluster.offsets["group", queue] = 8
        if known is not None:
            cluster.slave.offsets["group", queue] = known
        await cluster.kill_master()
        member = await cluster.member(consumed(taken, start="last")).start()
        await asyncio.sleep(20)
        assert taken == ([] if known is None else [5, 6, 7, 8, 9])
        if known is None:
            assert "offset cannot be read" in member.consumer.snapshot().blocked[queue]
        await cluster.master_returns()
        cluster.send_many(queue, 1)
        await eventually(lambda: cluster.committed(queue) == 11, 45)
        assert set(taken) >= {8, 9, 10}
        await member.stop()
        await cluster.stop()

    run()


@in_virtual_time
async def test_a_member_that_dies_while_the_master_is_away_is_followed_by_the_others() -> None:
    cluster, mine, others = SlaveCluster(), Taken(), Taken()
    await cluster.start()
    queues = cluster.create("topic", queues=2)
    one, two = cluster.member(consumed(mine)), cluster.member(consumed(others))
    await one.start()
    await two.start()
    await eventually(lambda: {len(each.consumer.snapshot().queues) for each in (one, two)} <= {1, 2}, 5)
    for queue in queues:
        cluster.send_many(queue, 10)
    await eventually(lambda: len(mine) + len(others) == 20, 10)
    await eventually(lambda: [cluster.committed(queue) for queue in queues] == [10, 10], 10)
    cluster.slave.offsets.update(cluster.offsets)
    await cluster.kill_master()
    await asyncio.sleep(10)
    await one.client.stop()  # the process is gone, as far as brokers see
    for queue in queues:
        cluster.send_many(queue, 5)
    await eventually(lambda: len(mine) + len(others) == 30, 30)
    assert len(others) >= 20
    await two.consumer.stop(drain_timeout=1.0, cut=asyncio.Event())
    await cluster.stop()


@in_virtual_time
async def test_orderly_handlers_wait_for_the_master_because_locks_are_its_alone() -> None:
    cluster, taken = SlaveCluster(), Taken()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 10)
    member = await cluster.member(consumed(taken, orderly=True)).start()
    await eventually(lambda: cluster.committed(queue) == 10, 10)
    await cluster.kill_master()
    cluster.send_many(queue, 10)
    await asyncio.sleep(90)
    assert taken == list(range(10))
    assert member.consumer.snapshot().blocked[queue].startswith("no lock: ")
    await cluster.master_returns()
    await eventually(lambda: cluster.committed(queue) == 20, 10)
    assert taken == list(range(20))
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_what_a_survivor_handles_of_the_slave_is_not_handled_again_when_the_master_is_back() -> None:
    """The slave's offset was older than the master's, which looks as if another member had gone on meanwhile."""
    cluster, taken = SlaveCluster(), Counter[tuple[int, int]]()

    async def take(message: Message) -> None:
        assert message.queue is not None
        taken[message.queue.queue_id, message.offset] += 1

    await cluster.start()
    queues = cluster.create("topic", queues=2)
    one, two = cluster.member(consumed(take)), cluster.member(consumed(take))
    await one.start()
    await two.start()
    await eventually(lambda: {len(each.consumer.snapshot().queues) for each in (one, two)} <= {1, 2}, 5)
    for queue in queues:
        cluster.send_many(queue, 10)
    await eventually(lambda: [cluster.committed(queue) for queue in queues] == [10, 10], 15)
    cluster.slave.offsets.update({("group", queue): 8 for queue in queues})
    await cluster.kill_master()
    await asyncio.sleep(10)
    await one.client.stop()  # the process is gone, as far as brokers see
    for queue in queues:
        cluster.send_many(queue, 5)
    await eventually(lambda: len(taken) == 30, 60)
    await cluster.master_returns()
    await asyncio.sleep(1)
    for queue in queues:
        cluster.send_many(queue, 3)
    await eventually(lambda: [cluster.committed(queue) for queue in queues] == [18, 18], 60)
    again = sorted(offset for (_, offset), times in taken.items() if times > 1)
    assert again == [8, 9]  # of the queue that was taken over: what the slave did not know
    assert min(offset for _, queue, offset in cluster.commits if queue in queues and offset) >= 10
    assert await two.stop()
    await cluster.stop()


@in_virtual_time
async def test_the_first_list_of_a_slave_that_was_started_anew_is_not_acted_on() -> None:
    """It knows the member that reached it first, and no other one yet."""
    cluster, taken = SlaveCluster(), Taken()
    await cluster.start()
    cluster.create("topic", queues=4)
    one, two = cluster.member(consumed(taken)), cluster.member(consumed(taken))
    await one.start()
    await two.start()

    def owned() -> list[int]:
        return [sum(each.queue.topic == "topic" for each in m.consumer.snapshot().queues) for m in (one, two)]

    await eventually(lambda: owned() == [2, 2], 10)
    await cluster.kill_master()
    await asyncio.sleep(10)
    cluster.network.cut(cluster.slave.address)
    cluster.slave.members.clear()
    answer = cluster.answer

    def late(name: str, connection: Connection, command: Command) -> Command | None:
        if command.code == RequestCode.HEART_BEAT and Heartbeat.decode(command.body).client_id == two.client.client_id:
            cluster.loop.call_later(1.0, lambda: connection.reply(answer(name, connection, command) or command))
            return None
        return answer(name, connection, command)

    cluster.answer = late  # type: ignore[method-assign]
    seen = set[tuple[int, ...]]()
    for _ in range(300):
        await asyncio.sleep(0.1)
        seen.add(tuple(owned()))
    assert seen == {(2, 2)}
    assert len(cluster.slave.members) == 2
    await one.consumer.stop(drain_timeout=1.0, cut=asyncio.Event())
    await two.consumer.stop(drain_timeout=1.0, cut=asyncio.Event())
    await cluster.stop()
