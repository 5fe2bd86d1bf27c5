"""A popped topic when something goes wrong: late answers, dead processes, frozen ones, defects, full memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from rocketapp.client.calls import pop
from rocketapp.model.event import LoopFailed, QueueBlocked
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import DeadLetter
from rocketapp.state.pop_queue import PopQueue
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import Record
from rocketapp.wire.record import Message
from rocketapp.wire.requests.pop import AckRequest, decode_acks
from tests.unit.consumer.offsets.test_offset_store import MemoryOffsets, Rows
from tests.unit.consumer.pop.pop_cluster import HandedOut, PopCluster, popped
from tests.unit.consumer.pop.test_pop import TIMES, Seen, left, started
from tests.unit.scripted import eventually, in_virtual_time


class LateCluster(PopCluster):
    """Answers changes of a hidden time `late` seconds after it has made them."""

    late = 0.0

    def answer(self, name: str, connection: Connection, command: Command) -> Command | None:
        answer = super().answer(name, connection, command)
        if self.late and answer is not None and command.code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME:
            self.loop.call_later(self.late, connection.reply, answer)
            return None
        return answer


@in_virtual_time
async def test_a_late_answer_to_a_change_makes_no_copies() -> None:
    cluster, seen = LateCluster(), list[tuple[bytes, int]]()
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)
    cluster.send(queue, b"bad")
    cluster.late = 6.0

    async def once(message: Message) -> None:
        seen.append((message.body, message.attempt))
        if message.attempt == 1:
            await asyncio.sleep(12)
            raise OSError("the bank is away")

    member = await cluster.member(popped(once), config=replace(TIMES, pop_invisible_time=20.0)).start()
    await eventually(lambda: len(seen) == 2, seconds=60)
    await asyncio.sleep(120)
    assert seen == [(b"bad", 1), (b"bad", 2)]
    assert left(cluster) == 0
    assert await member.stop()


@pytest.mark.parametrize(("retries", "deaths", "is_dead"), [(5, 5, False), (5, 6, True), (0, 3, False), (0, 4, True)])
@in_virtual_time
async def test_a_message_that_no_attempt_has_survived_is_a_dead_letter(
    retries: int, deaths: int, is_dead: bool
) -> None:
    cluster, seen = await started(queues=1), Seen()
    cluster.topics["%RETRY%group_topic"] = {"broker-a": 1}
    record = Record(topic="topic", body=b"deadly", raw_properties=b"", queue_id=0, reconsume_times=deaths)
    cluster.store(MessageQueue("%RETRY%group_topic", "broker-a", 0), record)
    member = await cluster.member(popped(seen, retries=retries)).start()
    await eventually(lambda: bool(seen) or (left(cluster) == 0 and bool(cluster.acks)), seconds=20)
    await eventually(lambda: left(cluster) == 0)
    assert bool(seen) is not is_dead
    assert cluster.bodies("%DLQ%group") == [b"deadly"] * is_dead
    assert await member.stop()


@in_virtual_time
async def test_what_others_may_have_by_now_is_not_started() -> None:
    cluster, slow, others = await started(queues=1, sent=6), Seen(takes=30.0), Seen()
    member = await cluster.member(popped(slow, concurrency=2), config=TIMES).start()
    await eventually(lambda: len(slow) == 2)
    cluster.ignore(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    cluster.ignore(RequestCode.POP_MESSAGE)
    await asyncio.sleep(40)
    assert len(slow) == 2, "the time of the other four is over"
    texts = [one.error for one in member.events if isinstance(one, LoopFailed)]
    assert any("left to other members" in text for text in texts), texts
    assert [text for text in texts if "2 messages were handled after" in text], texts
    cluster.behave()
    other = await cluster.member(popped(others), config=TIMES).start()
    await eventually(lambda: len({body for body, _ in [*slow, *others]}) == 6, seconds=90)
    assert await member.stop()
    assert await other.stop()


@in_virtual_time
async def test_loops_go_on_after_an_error_that_was_not_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, seen = await started(queues=1, sent=20), Seen(takes=12.0)
    failures = {"ack_all": 1, "start_change": 3, "due": 1}

    def failing(name: str, real: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if failures.get(name, 0):
                failures[name] -= 1
                raise ZeroDivisionError(name)
            return real(*args, **options)

        return call

    monkeypatch.setattr(PopQueue, "due", failing("due", PopQueue.due))
    monkeypatch.setattr(pop, "ack_all", failing("ack_all", pop.ack_all))
    monkeypatch.setattr(pop, "start_change", failing("start_change", pop.start_change))
    member = await cluster.member(popped(seen), config=TIMES).start()
    await eventually(lambda: len(seen.done) == 20, seconds=60)
    await eventually(lambda: left(cluster) == 0, seconds=20)
    assert set(failures.values()) == {0}
    assert any("ZeroDivisionError" in one.error for one in member.events if isinstance(one, LoopFailed))
    await asyncio.sleep(60)
    assert {attempt for _, attempt in seen} == {1}
    assert await member.stop()


@in_virtual_time
async def test_popped_messages_count_against_the_memory_of_the_process() -> None:
    cluster, seen = await started(queues=1), Seen(takes=60.0)
    queue = MessageQueue("topic", "broker-a", 0)
    for number in range(60):
        cluster.send(queue, str(number).encode() * 5000)
    config = replace(TIMES, pop_batch_size=1)
    member = await cluster.member(popped(seen, concurrency=1), config=config, cache_bytes=50_000).start()
    await asyncio.sleep(20)
    in_flight = left(cluster)
    assert 3 <= in_flight <= 12, in_flight
    assert any("cache_max_bytes 50000" in one for one in member.consumer.snapshot().blocked.values())
    await member.stop(drain_timeout=1.0)


@in_virtual_time
async def test_a_new_popped_group_starts_where_it_wants_also_with_the_offsets_of_a_plugin() -> None:
    cluster, seen = await started(queues=1, sent=50), Seen()
    member = await cluster.member(popped(seen, start="last"), offset_store=MemoryOffsets(Rows())).start()
    await asyncio.sleep(5)
    cluster.send(MessageQueue("topic", "broker-a", 0), b"new")
    await eventually(lambda: bool(seen), seconds=20)
    assert [body for body, _ in seen] == [b"new"]
    assert await member.stop()


@in_virtual_time
async def test_a_stop_acknowledges_what_was_handled_while_it_was_being_hidden_anew() -> None:
    cluster, seen = LateCluster(), Seen(takes=11.5)
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)
    cluster.send(queue, b"slow")
    cluster.late = 2.0
    member = await cluster.member(popped(seen), config=replace(TIMES, pop_invisible_time=20.0)).start()
    await eventually(lambda: bool(cluster.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)), seconds=15)
    assert seen.done == []
    assert await member.stop()
    assert (seen.done, left(cluster)) == ([b"slow"], 0)


@in_virtual_time
async def test_a_message_is_hidden_from_when_that_was_asked_for_not_from_a_late_answer() -> None:
    cluster, slow, others = LateCluster(), Seen(takes=100.0), Seen()
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)
    cluster.send(queue, b"slow")
    cluster.late = 8.5
    config = replace(TIMES, pop_invisible_time=20.0)
    member = await cluster.member(popped(slow), config=config).start()
    await eventually(lambda: bool(slow))
    other = await cluster.member(popped(others), config=config).start()
    await asyncio.sleep(90)
    assert (len(slow), others) == (1, [])
    assert await member.stop() and await other.stop()


@in_virtual_time
async def test_it_is_said_all_the_time_why_a_dead_letter_cannot_be_stored() -> None:
    cluster = await started(queues=1, sent=1)

    async def refuse(message: Message) -> None:
        raise DeadLetter("no")

    cluster.refuse(RequestCode.SEND_MESSAGE_V2)
    cluster.refuse(RequestCode.CONSUMER_SEND_MSG_BACK)
    member = await cluster.member(popped(refuse), config=TIMES).start()
    await asyncio.sleep(20)
    for _ in range(300):  # it is hidden anew every 5 s meanwhile
        (reason,) = member.consumer.snapshot().blocked.values()
        assert reason.startswith("1 failed message waits to be sent back: "), reason
        await asyncio.sleep(0.1)
    assert len(member.events.of(QueueBlocked)) == 1
    cluster.behave()
    await eventually(lambda: left(cluster) == 0, seconds=60)
    assert member.consumer.snapshot().blocked == {}
    assert await member.stop()


class PartlyDeaf(PopCluster):
    """Of a batch it takes what comes before a message of which it does not want to hear, and answers with `code`."""

    code = ResponseCode.SYSTEM_ERROR
    refuses: frozenset[int] = frozenset()
    """Offsets."""

    def answer(self, name: str, connection: Connection, command: Command) -> Command | None:
        if command.code == RequestCode.ACK_MESSAGE:
            offset = AckRequest.from_fields(command.fields).handle.offset
            if offset in self.refuses:
                return Command.response(command, self.code, remark=f"of offset {offset}")
        if command.code == RequestCode.BATCH_ACK_MESSAGE:
            for group, topic, (handle, offsets) in decode_acks(command.body):
                if not self.refuses.isdisjoint(offsets):
                    return Command.response(command, self.code, remark="of a part of them")
                out = HandedOut(group, topic, handle.kind, name, handle.queue_id, handle.start, handle.popped_ms)
                self.acked(connection, out, offsets)
            return Command.response(command, 0)
        return super().answer(name, connection, command)


@in_virtual_time
async def test_one_message_that_cannot_be_acknowledged_keeps_no_other_from_it() -> None:
    cluster, seen = PartlyDeaf(), Seen()
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)
    cluster.send_many(queue, 20)
    cluster.code, cluster.refuses = ResponseCode.MESSAGE_ILLEGAL, frozenset({7})
    member = await cluster.member(popped(seen), config=replace(TIMES, pop_batch_size=4)).start()
    await eventually(lambda: len(seen) == 20)
    await eventually(lambda: left(cluster) == 1)
    (error,) = [one.error for one in member.events if isinstance(one, LoopFailed)]
    assert error.endswith("of offset 7")
    cluster.refuses = frozenset()
    await eventually(lambda: len(seen) == 21, seconds=30)
    await eventually(lambda: left(cluster) == 0)
    assert seen[20:] == [(b"7", 2)], "what was not acknowledged comes again, and nothing else"
    assert await member.stop()


@in_virtual_time
async def test_a_batch_of_which_the_broker_has_taken_a_part_is_sent_again() -> None:
    cluster, seen = PartlyDeaf(), Seen()
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)
    cluster.send_many(queue, 20)
    cluster.refuses = frozenset({7})
    member = await cluster.member(popped(seen), config=replace(TIMES, pop_batch_size=4)).start()
    await eventually(lambda: len(seen) == 20)
    await eventually(lambda: bool(member.consumer.snapshot().blocked))
    cluster.refuses = frozenset()
    await eventually(lambda: left(cluster) == 0, seconds=3)
    await asyncio.sleep(30)
    assert len(seen) == 20
    assert await member.stop()


@in_virtual_time
async def test_two_members_with_one_client_id_share_the_messages() -> None:
    cluster, one, other = await started(), Seen(takes=1.0), Seen(takes=1.0)
    config = replace(TIMES, pop_max_messages=4, pop_batch_size=4)
    first = cluster.member(popped(one, concurrency=2), config=config, client_id="10.0.0.1@1#1")
    second = cluster.member(popped(other, concurrency=2), config=config, client_id="10.0.0.1@1#1")
    for member in (first, second):
        await member.start()
    for queue in [MessageQueue("topic", "broker-a", number) for number in (0, 1)]:
        cluster.send_many(queue, 20)
    await eventually(lambda: len(one.done) + len(other.done) == 40, seconds=60)
    assert min(len(one), len(other)) >= 10
    assert len(one) + len(other) == 40
    assert await first.stop()
    cluster.send(MessageQueue("topic", "broker-a", 0), b"later")
    await eventually(lambda: b"later" in other.done, seconds=20)
    assert await second.stop()


@pytest.mark.parametrize("fails", [False, True])
def test_what_the_broker_deletes_while_it_is_in_flight_is_handled_and_a_failed_one_is_a_dead_letter(
    fails: bool,
) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, seen = await started(queues=1, sent=3), Seen(takes=30.0)

        async def handle(message: Message) -> None:
            await seen(message)
            if fails:
                raise OSError("the bank is away")

        member = await cluster.member(popped(handle, concurrency=1), config=TIMES).start()
        await eventually(lambda: len(seen) == 1)
        cluster.hidden.clear()
        for asked in ("CHANGE_MESSAGE_INVISIBLETIME", "ACK_MESSAGE", "BATCH_ACK_MESSAGE"):
            cluster.refuse(RequestCode[asked], ResponseCode.NO_MESSAGE)
        await eventually(lambda: len(seen.done) == 3, seconds=120)
        await asyncio.sleep(60)
        assert seen == [(b"0", 1), (b"1", 1), (b"2", 1)]
        assert cluster.bodies("%DLQ%group") == ([b"0", b"1", b"2"] if fails else [])
        assert not member.events.of(QueueBlocked) + member.events.of(LoopFailed)
        assert await member.stop()

    story()
