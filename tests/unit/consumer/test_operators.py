"""What operators ask of a member, and what they have it do."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque

import pytest

from rocketapp.model.event import LoopFailed, Released
from rocketapp.model.message_queue import MessageQueue
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from rocketapp.wire.requests.admin import RunningInfoRequest
from rocketapp.wire.requests.pull import PullResponse
from rocketapp.wire.requests.reset_offset import encode_reset
from tests.unit.consumer.fake_cluster import Asked, FakeCluster, Member, consumed
from tests.unit.consumer.seen import started
from tests.unit.scripted import eventually, in_virtual_time


class Held:
    """A handler whose calls end one by one, as the test says."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def __call__(self, message: Message) -> None:
        self.calls.append(message.body)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(answer)
        await answer

    def end(self, count: int) -> None:
        """The oldest calls end."""
        for _ in range(count):
            self.waiting.popleft().set_result(None)


async def with_ten() -> tuple[FakeCluster, MessageQueue]:
    """A cluster whose only queue has ten messages."""
    cluster = await started()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 10)
    return cluster, queue


def to_member(cluster: FakeCluster) -> Connection:
    return next(iter(cluster.brokers["broker-a"].members))


def move(cluster: FakeCluster, queue: MessageQueue, offset: int) -> None:
    """An operator moves the group: its broker tells the member."""
    fields = {"topic": queue.topic, "group": "group", "timestamp": "0"}
    body = encode_reset({queue: offset})
    to_member(cluster).send_one_way(Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body))


@pytest.mark.parametrize("orderly", [False, True])
def test_a_group_that_is_moved_goes_on_there_and_nothing_of_the_old_position_is_committed(orderly: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        (cluster, queue), held = await with_ten(), Held()
        member = await cluster.member(consumed(held, orderly=orderly)).start()
        old = 1 if orderly else 10
        await eventually(lambda: len(held.calls) == old)
        # The first commit fails: it is tried again before anything is pulled.
        cluster.refuse(RequestCode.UPDATE_CONSUMER_OFFSET, times=1)
        move(cluster, queue, 6)
        await asyncio.sleep(0.5)
        commits = len(cluster.commits)
        held.end(old)  # the old position is done by now, as far as its handlers are concerned
        await eventually(lambda: held.calls[old:] == [b"6"] if orderly else len(held.calls) == 14)
        await asyncio.sleep(11)
        assert {offset for _, _, offset in cluster.commits[commits:]} <= {6}
        assert cluster.committed(queue) == 6
        while cluster.committed(queue) != 10:
            held.end(len(held.waiting))
            await asyncio.sleep(1)
        assert held.calls[old:] == [b"6", b"7", b"8", b"9"]
        reasons = [event.reason for event in member.events.of(Released)]  # type: ignore[attr-defined]
        assert reasons[0] == "an operator moved the group to offset 6"
        await member.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_a_broker_that_moves_the_group_for_an_operator_is_followed_and_nothing_is_said_to_have_failed() -> None:
    (cluster, _), held = await with_ten(), Held()
    member = await cluster.member(consumed(held)).start()
    await eventually(lambda: len(held.calls) == 10)
    held.end(10)

    def moves(asked: Asked) -> Command | bool:
        if asked.fields["topic"] != "topic":
            return True
        cluster.behave(RequestCode.PULL_MESSAGE)
        return Command(ResponseCode.PULL_OFFSET_MOVED, fields=PullResponse(0, 6, 0, 10).to_fields())

    cluster.misbehave[RequestCode.PULL_MESSAGE] = moves
    await eventually(lambda: held.calls[10:] == [b"6", b"7", b"8", b"9"], 60)
    reasons = [event.reason for event in member.events.of(Released)]
    assert reasons == ["the broker moved the group from offset 10 to 6"]
    assert member.events.of(LoopFailed) == []
    assert {one.corrected for one in member.consumer.snapshot().queues} == {""}
    held.end(4)
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_group_that_is_moved_while_a_queue_begins_goes_on_there() -> None:
    (cluster, queue), held = await with_ten(), Held()
    cluster.offsets["group", queue] = 0

    def moves(_: Asked) -> bool:
        # The first question is that of the start, before the queue is this member's.
        if len(cluster.requests(RequestCode.QUERY_CONSUMER_OFFSET, topic="topic")) == 2:
            cluster.behave(RequestCode.QUERY_CONSUMER_OFFSET)
            move(cluster, queue, 6)
        return True

    cluster.misbehave[RequestCode.QUERY_CONSUMER_OFFSET] = moves
    member = await cluster.member(consumed(held)).start()
    await asyncio.sleep(5)
    assert (held.calls, cluster.committed(queue)) == ([b"6", b"7", b"8", b"9"], 6)
    held.end(4)
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_member_that_stops_as_its_group_is_moved_waits_for_no_message_of_the_old_position() -> None:
    cluster, queue = await with_ten()

    async def fails(message: Message) -> None:
        await asyncio.sleep(1)
        raise ValueError("its message is not sent back: it comes again from the new position")

    member = await cluster.member(consumed(fails)).start()
    await asyncio.sleep(0.5)
    began = asyncio.get_running_loop().time()
    member.consumer.move({queue: 6})
    assert await member.stop(drain_timeout=20)
    assert asyncio.get_running_loop().time() - began < 5
    assert cluster.committed(queue) == 6
    await cluster.stop()


async def _info(cluster: FakeCluster, member: Member, *, with_stacks: bool = False) -> tuple[str, dict[str, object]]:
    request = RunningInfoRequest("group", member.client.client_id, with_stacks)
    answer = await to_member(cluster).start_request(Command(307, request.to_fields()), timeout=1.0)
    text = answer.body.decode()
    table = re.search(r'\{"brokerName":"broker-a","queueId":0,"topic":"topic"\}:(\{.*?\})', text)
    assert table is not None
    return text, json.loads(table[1])


@in_virtual_time
async def test_a_member_tells_what_it_does_with_each_queue_and_where_its_handlers_stand() -> None:
    (cluster, _), held = await with_ten(), Held()
    member = await cluster.member(consumed(held, orderly=True)).start()
    await eventually(lambda: len(held.calls) == 1)
    held.end(1)
    await asyncio.sleep(30)
    began = int(cluster.clock.now() - 30) * 1000
    text, told = await _info(cluster, member)
    assert '"jstack"' not in text
    assert '"consumer.queue_max_messages":"1000"' in text
    assert '"PROP_CONSUMEORDERLY":"true"' in text
    assert (told["commitOffset"], told["locked"], told["droped"]) == (1, True, False)
    assert [told[f"cachedMsg{name}"] for name in ("MinOffset", "MaxOffset", "Count")] == [2, 9, 8]
    assert [told[f"transactionMsg{name}"] for name in ("MinOffset", "MaxOffset", "Count")] == [1, 1, 1]
    # No message of it was finished since; pulls are answered all the time.
    assert began <= int(str(told["lastConsumeTimestamp"])) <= began + 3000
    assert int(str(told["lastPullTimestamp"])) > began + 10_000
    assert int(str(told["lastLockTimestamp"])) > began
    text, _ = await _info(cluster, member, with_stacks=True)
    stacks = json.loads(re.sub(r'"mqTable":.*?\}\},', "", text))["jstack"]
    assert "thread MainThread" in stacks
    assert f"at __call__ ({__file__}:" in stacks
    assert "adjusted." not in text
    member.consumer.adjust({"topic": {"queue_max_messages": 200, "concurrency": 2}})
    text, _ = await _info(cluster, member)
    assert '"adjusted.topic.concurrency":"2","adjusted.topic.queue_max_messages":"200"' in text
    cluster.ignore(RequestCode.LOCK_BATCH_MQ)
    await asyncio.sleep(40)
    _, told = await _info(cluster, member)
    assert not told["locked"], "its lease is over"
    held.end(1)
    await member.stop(drain_timeout=0.1)
    await cluster.stop()


@pytest.mark.parametrize("orderly", [False, True])
def test_a_member_tells_what_it_pulls_and_handles_a_second_and_what_failed(orderly: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster = FakeCluster()
        await cluster.start()
        (queue,) = cluster.create("topic")
        failed: list[bytes] = []

        async def handle(message: Message) -> None:
            if message.body == b"7" and not failed:
                failed.append(message.body)
                raise ValueError("once")

        member = await cluster.member(consumed(handle, orderly=orderly)).start()

        async def rates() -> dict[str, float]:
            text, _ = await _info(cluster, member)
            tables = re.sub(r'"mqTable":.*?\}\},', "", text)
            found: dict[str, float] = json.loads(tables)["statusTable"]["topic"]
            return found

        cluster.send_many(queue, 90)
        await asyncio.sleep(30)
        told = await rates()
        # The copy of the failed message comes back by the retry topic, and is handled as one of its own topic.
        assert told["pullTPS"] == pytest.approx(3.0, rel=0.05)
        assert told["consumeOKTPS"] == pytest.approx(3.0, rel=0.05)
        assert told["consumeFailedTPS"] == pytest.approx(1 / 30, rel=0.05)
        await asyncio.sleep(90)
        told = await rates()
        assert (told["pullTPS"], told["consumeOKTPS"], told["consumeFailedTPS"]) == (0, 0, 0)
        assert told["consumeFailedMsgs"] == 1
        await member.stop()
        await cluster.stop()

    story()
