"""Messages that the broker hands out one by one: hidden, acknowledged, handed out again, also by the next run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from rocketapp.broker import timers
from rocketapp.broker.pop_checkpoints import Key, PopCheckpoint, revive_topic
from rocketapp.broker.pop_tables import InOrder, PopOrder
from rocketapp.broker.store import reading
from rocketapp.broker.store.files import MemoryFiles
from rocketapp.model.event import LoopFailed
from rocketapp.model.pulled import Acks, Handle
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import Record
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.assignment import (
    ALL_QUEUES,
    POP,
    PULL,
    AssignmentQuestion,
    RequestMode,
    decode_assigned,
)
from rocketapp.wire.requests.pop import (
    FROM_LAST,
    OF_RETRY,
    OF_TOPIC,
    ORDERLY,
    AckRequest,
    PopRequest,
    PopResponse,
    encode_acks,
    handle_in,
    pop_retry_topic,
    renewed,
)
from tests.unit.broker.asking import Client, Running, running
from tests.unit.scripted import in_virtual_time

INVISIBLE = 10.0


class FillingDisk(MemoryFiles):
    """A disk of which this part is used."""

    part = 0.1

    def used(self) -> float:
        return self.part


class Member:
    """Pops as a client does: it builds the handles from the broker's answers."""

    def __init__(self, client: Client, group: str = "billing") -> None:
        self.client, self.group = client, group

    def ask(self, topic: str = "orders", *, poll: float = 0.0, **more: Any) -> asyncio.Future[Command]:
        given: dict[str, Any] = {"queue_id": -1, "max_messages": 32, "invisible_ms": int(INVISIBLE * 1000), **more}
        request = PopRequest(group=self.group, topic=topic, poll_ms=int(poll * 1000), **given)
        command = Command(RequestCode.POP_MESSAGE, request.to_fields())
        return self.client.connection.start_request(command, timeout=900.0)

    async def pop(self, topic: str = "orders", **more: Any) -> list[Popped]:
        return popped(await self.ask(topic, **more))

    async def ack(self, *messages: Popped, topic: str = "orders") -> int:
        for one in messages:
            place = pop_retry_topic(self.group, topic, one.handle.kind)
            answer = await self.client.ask(
                RequestCode.ACK_MESSAGE, AckRequest(self.group, place, one.handle).to_fields()
            )
            if answer.code:
                return answer.code
        return 0

    async def ack_all(self, messages: Sequence[Popped], topic: str = "orders") -> int:
        acks = [Acks(one.handle, [one.handle.offset]) for one in messages]
        body = encode_acks(self.group, topic, "broker-a", acks)
        return (await self.client.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)).code

    async def hide(self, one: Popped, seconds: float, *, suspend: bool = False, topic: str = "orders") -> Popped:
        place = pop_retry_topic(self.group, topic, one.handle.kind)
        request = AckRequest(self.group, place, one.handle, int(seconds * 1000), suspend)
        answer = await self.client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, request.to_fields())
        assert answer.code == ResponseCode.SUCCESS
        return Popped(one.message, renewed(one.handle, answer.fields))


class Popped:
    def __init__(self, message: Message, handle: Handle) -> None:
        self.message, self.handle = message, handle

    def __repr__(self) -> str:
        return f"<{self.message.text()} {self.handle}>"


def popped(answer: Command) -> list[Popped]:
    if answer.code != ResponseCode.SUCCESS:
        assert answer.code == ResponseCode.POLLING_TIMEOUT, answer.remark
        return []
    where = PopResponse.from_fields(answer.fields)
    assert where.starts.keys() == where.offsets.keys()
    found = []
    for message in decode_records(answer.body, None):
        handle = handle_in(message.raw_properties)
        if handle is None:
            start = where.starts[OF_TOPIC, message.queue_id]
            assert message.offset in where.offsets[OF_TOPIC, message.queue_id]
            times = start, where.popped_ms, where.invisible_ms, where.revive_queue
            handle = Handle(*times, OF_TOPIC, "broker-a", message.queue_id, message.offset)
        found.append(Popped(message, handle))
    return found


def texts(messages: Iterable[Popped]) -> list[str]:
    return sorted(one.message.text() for one in messages)


async def member(broker: Running, *bodies: str, tag: str = "") -> Member:
    client = await broker.client()
    for number, body in enumerate(bodies):
        await client.send("orders", body.encode(), f"TAGS\x01{tag}\x02" if tag else "", queue_id=number % 4)
    return Member(client)


@in_virtual_time
async def test_a_popped_message_is_hidden_until_it_is_acknowledged_and_does_not_come_again() -> None:
    async with running() as broker:
        one = await member(broker, "a", "b", "c")
        first = await one.pop(max_messages=2)
        second = await one.pop()
        assert texts(first + second) == ["a", "b", "c"]
        assert await one.pop() == []
        assert await one.ack(*first) == await one.ack_all(second) == 0
        await asyncio.sleep(10 * INVISIBLE)
        assert await one.pop() == []


@in_virtual_time
async def test_what_was_not_acknowledged_comes_again_when_its_time_is_over_as_the_next_attempt() -> None:
    async with running() as broker:
        one = await member(broker, "a", "b", "c")
        first = await one.pop()
        await one.ack_all([first[0], first[2]])
        await asyncio.sleep(INVISIBLE - 0.1)
        assert await one.pop() == []
        await asyncio.sleep(0.2)
        (again,) = await one.pop()
        assert again.message.text() == first[1].message.text()
        assert (again.message.topic, again.message.reconsume_times, again.handle.kind) == ("orders", 1, OF_RETRY)
        assert again.message.properties["1ST_POP_TIME"] == str(first[1].handle.popped_ms)
        await asyncio.sleep(INVISIBLE + 0.1)
        (third,) = await one.pop()
        assert third.message.reconsume_times == 2
        assert third.message.properties["1ST_POP_TIME"] == str(first[1].handle.popped_ms)
        await one.ack(third)
        await asyncio.sleep(10 * INVISIBLE)
        assert await one.pop() == []


@pytest.mark.parametrize("killed", [False, True])
def test_the_next_run_hands_out_what_was_not_acknowledged_and_nothing_else(killed: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            one = await member(broker, *"abcdef")
            first = await one.pop(max_messages=5)
            await one.ack_all(first[:2])
            await one.ack(first[2])
            hidden = await one.hide(first[3], 2 * INVISIBLE)
            await broker.restart(killed=killed)
            one = Member(await broker.client())
            assert len(await one.pop()) == 1
            await one.ack(hidden)
            await asyncio.sleep(INVISIBLE + 0.1)
            again = await one.pop()
            assert first[4].message.text() in texts(again)
            assert not {one.message.text() for one in first[:4]} & set(texts(again))
            await asyncio.sleep(10 * INVISIBLE)
            assert not {one.message.text() for one in first[:4]} & set(texts(await one.pop()))

    story()


@in_virtual_time
async def test_what_was_popped_first_is_read_again_by_every_start_until_it_is_acknowledged() -> None:
    """Each pop is in another revive queue, and after eight of them the first queue has the latest one."""
    async with running() as broker:
        one = await member(broker, *"abcdefghi")
        first = [(await one.pop(max_messages=1, invisible_ms=60_000))[0] for _ in range(9)]
        await one.ack(first[0])
        for _ in range(2):
            await broker.restart(killed=True)
            await asyncio.sleep(6)  # what need not be read again is saved every 5 s
        one = Member(await broker.client())
        await one.ack(*first[2:])
        await asyncio.sleep(60)
        assert texts(await one.pop()) == texts(first[1:2])


@in_virtual_time
async def test_a_crash_repeats_nothing_that_was_stored_again_before() -> None:
    async with running() as broker:
        one = await member(broker, "a")
        await one.pop()
        await asyncio.sleep(INVISIBLE + 0.1)
        await broker.restart(killed=True)
        one = Member(await broker.client())
        await asyncio.sleep(3 * INVISIBLE)
        (again,) = await one.pop()
        assert again.message.reconsume_times == 1
        await one.ack(again)
        await asyncio.sleep(3 * INVISIBLE)
        assert await one.pop() == []


@in_virtual_time
async def test_another_time_counts_from_now_on_and_the_handle_before_counts_no_more() -> None:
    async with running() as broker:
        one = await member(broker, "a", "b")
        first, other = await one.pop()
        later = await one.hide(first, 3 * INVISIBLE)
        assert later.handle.popped_ms > first.handle.popped_ms
        assert await one.ack(first) == 0
        await one.ack(other)
        await asyncio.sleep(3 * INVISIBLE - 0.1)
        assert await one.pop() == []
        await asyncio.sleep(0.2)
        (again,) = await one.pop()
        assert again.message.reconsume_times == 1
        given_back = await one.hide(again, 0, suspend=True)
        await asyncio.sleep(0.1)
        (back,) = await one.pop()
        assert back.message.reconsume_times == 1
        assert await one.ack(given_back) == await one.ack(back) == 0
        await asyncio.sleep(10 * INVISIBLE)
        assert await one.pop() == []


@in_virtual_time
async def test_a_held_pop_is_woken_by_a_message_of_its_tags_and_one_message_wakes_one() -> None:
    async with running() as broker:
        one = await member(broker, "a", tag="x")
        await one.ack_all(await one.pop(expression="*"))
        waiting = [one.ask(poll=20.0, expression="red"), one.ask(poll=20.0, expression="red")]
        other = Member(one.client, "reports").ask(poll=20.0)
        await asyncio.sleep(1)
        await one.client.send("orders", b"blue", "TAGS\x01blue\x02")
        await asyncio.sleep(1)
        assert [each.done() for each in (*waiting, other)] == [False, False, True]
        await one.client.send("orders", b"red", "TAGS\x01red\x02")
        await asyncio.sleep(1)
        assert [each.done() for each in waiting] == [True, False]
        (red,) = popped(waiting[0].result())
        assert red.message.text() == "red"
        await one.ack(red)
        await asyncio.sleep(18)
        assert waiting[1].result().code == ResponseCode.POLLING_TIMEOUT
        assert PopResponse.from_fields(waiting[1].result().fields).popped_ms > 0


@in_virtual_time
async def test_a_pop_that_has_passed_over_many_messages_looks_on_and_waits_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "LEAST_SCANNED", 2)
    async with running() as broker:
        one = await member(broker, *["blue"] * 80, tag="blue")
        for _ in range(4):
            await one.client.send("orders", b"red", "TAGS\x01red\x02")
        began = broker.loop.time()
        assert texts(await one.pop(poll=20.0, expression="red", max_messages=2))[0] == "red"
        assert broker.loop.time() - began < 1


@in_virtual_time
async def test_a_held_pop_is_woken_by_what_comes_again() -> None:
    async with running() as broker:
        one = await member(broker, "a")
        await one.pop()
        waiting = one.ask(poll=60.0)
        await asyncio.sleep(INVISIBLE + 0.1)
        assert texts(popped(waiting.result())) == ["a"]


@in_virtual_time
async def test_a_new_group_begins_with_the_first_message_of_a_young_topic() -> None:
    async with running() as broker:
        one = await member(broker, "a", "b")
        assert texts(await one.pop(init_mode=FROM_LAST)) == ["a", "b"]
        assert texts(await Member(one.client, "reports").pop()) == ["a", "b"]


@in_virtual_time
async def test_a_reset_before_a_crash_is_not_undone_by_what_was_popped_before() -> None:
    async with running() as broker:
        one = await member(broker, "a")
        await one.pop()
        core = {"topic": "orders", "group": "billing", "timestamp": "0", "isForce": "true"}
        assert (await one.client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, core)).code == 0
        await asyncio.sleep(6)  # offsets are saved every 5 s
        await broker.restart(killed=True)
        one = Member(await broker.client())
        assert texts(await one.pop()) == ["a"]


@in_virtual_time
async def test_what_cannot_be_popped_is_refused_with_the_codes_of_apache() -> None:
    async with running() as broker:
        one = await member(broker, "a")
        assert (await one.ask("nowhere")).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await one.ask(max_messages=33)).code == ResponseCode.INVALID_PARAMETER
        assert (await one.ask(queue_id=64)).code == ResponseCode.INVALID_PARAMETER
        assert (await one.ask(born_ms=1, poll=1)).code == ResponseCode.POLLING_TIMEOUT
        illegal = await one.ask(expression="a >", expression_type="SQL92")
        assert illegal.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        handle = Handle(0, 1, 1000, 0, OF_TOPIC, "broker-a", 0, 7)
        for changed, code in (
            (handle, ResponseCode.NO_MESSAGE),
            (handle._replace(queue_id=99), ResponseCode.MESSAGE_ILLEGAL),
            (handle._replace(offset=0), ResponseCode.SUCCESS),
        ):
            request = AckRequest("billing", "orders", changed)
            assert (await one.client.ask(RequestCode.ACK_MESSAGE, request.to_fields())).code == code
        assert (await one.client.ask(RequestCode.BATCH_ACK_MESSAGE, {})).code == ResponseCode.NO_MESSAGE


@in_virtual_time
async def test_held_pops_of_one_group_and_topic_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketapp.broker.processors.pop.MOST_AT_ONE_PLACE", 2)
    async with running() as broker:
        one = await member(broker, "a")
        await one.ack_all(await one.pop())
        waiting = [one.ask(poll=20.0) for _ in range(3)]
        await asyncio.sleep(1)
        assert [each.done() for each in waiting] == [False, False, True]
        assert waiting[2].result().code == ResponseCode.POLLING_FULL
        await asyncio.sleep(20)


@in_virtual_time
async def test_messages_in_flight_of_one_queue_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketapp.broker.pop.MOST_IN_FLIGHT", 2)
    async with running() as broker:
        one = await member(broker)
        for body in (b"a", b"b", b"c"):
            await one.client.send("orders", body, queue_id=0)
        first = await one.pop(max_messages=2)
        assert len(first) == 2
        assert await one.pop() == []
        await one.ack_all(first)
        assert texts(await one.pop()) == ["c"]


@in_virtual_time
async def test_a_start_reads_no_more_than_a_bounded_part_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketapp.broker.pop_log.FARTHEST_BACK", 20)
    async with running() as broker:
        one = await member(broker, "old")
        (old,) = await one.pop(invisible_ms=3_600_000)
        for number in range(400):
            await one.client.send("orders", b"%d" % number, queue_id=0)
            await one.ack_all(await one.pop())
        await asyncio.sleep(6)
        answer = await one.client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert answer.body.count(b"CID_RMQ_SYS_REVIVE_GROUP") >= 1
        await broker.restart(killed=True)
        await asyncio.sleep(3_580)
        one = Member(await broker.client())
        assert await one.pop() == []
        await asyncio.sleep(20)
        assert texts(await one.pop()) == ["old"]
        assert await one.ack(old) == 0


@in_virtual_time
async def test_a_body_that_the_disk_has_altered_costs_itself_before_and_after_it_comes_again() -> None:
    async with running() as broker:
        one, log = await member(broker, "a", "b", "c"), broker.files.open("commitlog/" + "0" * 20)
        assert len(await one.pop()) == 3
        log.write(b"X", log.read(1 << 16, 0).index(b"a\6orders"))
        await asyncio.sleep(INVISIBLE + 0.1)
        log.write(b"X", log.read(1 << 16, 0).index(b"b\x15%RETRY%billing_orders"))
        await one.ask()  # finds it, and its queue is looked through
        await asyncio.sleep(1)
        assert texts(await one.pop()) == ["c"]


@in_virtual_time
async def test_what_was_popped_of_a_deleted_topic_does_not_come_again() -> None:
    async with running() as broker:
        one = await member(broker, "a", "b")
        await one.pop()
        await asyncio.sleep(INVISIBLE + 0.1)
        await one.pop(max_messages=1)  # one came again and is hidden, one waits in the retry topic
        waiting = one.ask(poll=60.0, expression="other")
        await asyncio.sleep(1)
        assert (await one.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})).code == 0
        await asyncio.sleep(1)
        assert waiting.result().code == ResponseCode.TOPIC_NOT_EXIST
        await one.client.send("orders", b"new")
        await asyncio.sleep(3 * INVISIBLE)
        assert texts(await one.pop()) == ["new"]


@in_virtual_time
async def test_what_was_popped_of_a_deleted_topic_counts_for_no_new_one_also_after_a_kill() -> None:
    async with running() as broker:
        one = await member(broker, "old", "older", "oldest")
        await asyncio.sleep(10)
        assert len(await one.pop()) == 3
        assert (await one.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})).code == 0
        for number, body in enumerate([b"a", b"b", b"c"]):
            await one.client.send("orders", body, queue_id=number)
        await broker.restart(killed=True)
        one = Member(await broker.client())
        first = await one.pop()
        assert texts(first) == ["a", "b", "c"]
        await one.ack_all(first)
        await asyncio.sleep(3 * INVISIBLE)
        assert await one.pop() == []


@in_virtual_time
async def test_an_acknowledgement_in_order_of_a_deleted_topic_moves_no_group_in_the_new_one() -> None:
    async with running() as broker:
        client = await broker.client()
        one = Member(client)
        for body in (b"old", b"older"):
            await client.send("orders", body, queue_id=0)
        popped_before = await one.pop(order=True)
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})).code == 0
        for body in (b"a", b"b"):
            await client.send("orders", body, queue_id=0)
        assert await one.ack(popped_before[1]) == 0
        assert texts(await one.pop(order=True)) == ["a", "b"]


@in_virtual_time
async def test_a_message_with_the_longest_properties_is_a_dead_letter_and_keeps_no_other_one() -> None:
    async with running() as broker:
        client = await broker.client()
        one, other = Member(client), Member(client, "mailing")
        length = names.LONGEST
        while (await client.send("orders", b"long", f"K\x01{'x' * length}\x02", queue_id=0)).code:
            length -= 1
        assert len(await one.pop()) == 1
        await client.send("others", b"short", queue_id=0)
        assert len(await other.pop("others")) == 1
        await asyncio.sleep(INVISIBLE + 0.1)
        assert texts(await other.pop("others")) == ["short"]
        assert await one.pop() == []
        assert [message.body for message in await client.messages("%DLQ%billing")] == [b"long"]


@in_virtual_time
async def test_full_timers_keep_no_broker_from_stopping_and_nothing_popped_is_lost() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timers, "MOST_WAITING", 0)
        async with running() as broker:
            one = await member(broker, "a")
            await one.pop(invisible_ms=900_000)
            await broker.restart()
            await asyncio.sleep(901)
            assert texts(await Member(await broker.client()).pop()) == ["a"]


@in_virtual_time
async def test_a_message_whose_count_of_failures_is_at_its_limit_keeps_no_other_one() -> None:
    async with running() as broker:
        one = await member(broker, "good")
        await one.client.send("orders", b"spent", queue_id=1, reconsume_times=2**31 - 1)
        assert texts(await one.pop()) == ["good", "spent"]
        await asyncio.sleep(INVISIBLE + 1)
        again = await one.pop()
        assert {each.message.text(): each.message.reconsume_times for each in again} == {"good": 1, "spent": 2**31 - 1}


@in_virtual_time
async def test_a_message_for_a_connection_that_is_gone_goes_to_another_one() -> None:
    async with running() as broker:
        one = await member(broker, "a")
        await one.ack_all(await one.pop())
        gone = Member(await broker.client("gone"))
        lost = gone.ask(poll=30.0)
        await asyncio.sleep(1)
        waiting = one.ask(poll=30.0)
        await asyncio.sleep(1)
        gone.client.connection.abort("gone")
        await asyncio.sleep(1)
        assert lost.exception() is not None
        await one.client.send("orders", b"b")
        await asyncio.sleep(1)
        assert texts(popped(waiting.result())) == ["b"]


@in_virtual_time
async def test_in_order_nothing_more_comes_until_all_are_done_and_a_failed_one_comes_again() -> None:
    async with running() as broker:
        one = await member(broker)
        for body in b"abcdef":
            await one.client.send("orders", bytes([body]), queue_id=0)
        first = await one.pop(max_messages=3, order=True)
        assert [each.message.text() for each in first] == ["a", "b", "c"]
        assert {each.handle.revive_queue for each in first} == {ORDERLY}
        assert await one.pop(order=True) == []
        await one.ack(first[0], first[2])
        await one.hide(first[1], 4.0)
        waiting = one.ask(order=True, poll=60.0, max_messages=3)
        await asyncio.sleep(3.9)
        assert not waiting.done()
        await asyncio.sleep(0.2)
        second = popped(waiting.result())
        assert [each.message.text() for each in second] == ["b", "c", "d"]
        # As Apache RocketMQ tells it: how often each was handed out before, and the least of the queue.
        assert (waiting.result().fields or {})["orderCountInfo"] == "0 qo0%1 1;0 qo0%2 1;0 0 0"
        assert await one.ack(first[1]) == 0  # of the pop before: counts no more
        waiting = one.ask(order=True, poll=60.0)
        await one.ack_all(second)
        await asyncio.sleep(0.1)
        assert texts(popped(waiting.result())) == ["e", "f"]


@in_virtual_time
async def test_who_repeats_a_request_in_order_gets_the_same_messages() -> None:
    async with running() as broker:
        one = await member(broker)
        for body in b"ab":
            await one.client.send("orders", bytes([body]), queue_id=0)
        assert texts(await one.pop(order=True, attempt_id="one")) == ["a", "b"]
        assert await one.pop(order=True, attempt_id="two") == []
        (again, _) = await one.pop(order=True, attempt_id="one")
        assert again.message.text() == "a"
        unknown = Popped(again.message, again.handle._replace(offset=2))
        assert await one.ack(unknown) == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_hidden_for_longer_in_order_stays_hidden_over_a_restart(killed: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            one = await member(broker)
            await one.client.send("orders", queue_id=0)
            (hidden,) = await one.pop(order=True)
            await asyncio.sleep(6)  # saved every 5 s
            await one.hide(hidden, 600.0)
            await asyncio.sleep(6)
            await broker.restart(killed=killed)
            one = await member(broker)
            assert await one.pop(order=True) == []

    story()


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_popped_in_order_stays_hidden_over_a_restart_as_far_as_it_was_saved(killed: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            one = await member(broker)
            for body in b"ab":
                await one.client.send("orders", bytes([body]), queue_id=0)
            (a, b) = await one.pop(order=True)
            await one.ack(a)
            await asyncio.sleep(6)  # saved every 5 s
            await broker.restart(killed=killed)
            one = Member(await broker.client())
            assert await one.pop(order=True) == []
            await asyncio.sleep(INVISIBLE)
            (again,) = await one.pop(order=True)
            assert again.message.text() == "b" and await one.ack(b) == 0
            await one.ack(again)
            await one.client.send("orders", b"c", queue_id=0)
            assert texts(await one.pop(order=True)) == ["c"]

    story()


def test_what_was_popped_in_order_is_saved_as_apache_rocketmq_does() -> None:
    order, again, place = PopOrder(lambda: 7), PopOrder(lambda: 7), ("billing", "orders", 2)
    order.popped(place, InOrder([5, 6, 9], popped_ms=1000, invisible_ms=500))
    order.ack(place, 6, 1000, done_to=5)
    order.hide(place, 9, 1000, 4000)
    saved = json.loads(json.dumps(order.begin_save(1.0)()))
    own = saved["table"]["orders@billing"]["2"]
    assert {name: own[name] for name in ("popTime", "i", "o", "ot", "cm")} == {
        "popTime": 1000,
        "i": 500,
        "o": [5, 1, 4],
        "ot": {"9": 4000},
        "cm": 2,
    }
    again.load(saved)
    assert (again.position, again.free_ms(place, None)) == (7, 4000)
    assert [again.ack(place, each, 1000, done_to=5) for each in (5, 9)] == [9, 10]


@in_virtual_time
async def test_members_are_told_to_pop_also_after_a_restart_and_share_queues_where_that_was_set() -> None:
    async with running() as broker:
        clients = [await broker.client(name) for name in ("one", "two", "three")]
        await clients[0].send("orders")
        for client in clients:
            await client.heartbeat("billing", "orders")

        async def assigned(client: Client) -> list[tuple[int, str]] | None:
            question = AssignmentQuestion("orders", "billing", client.name).encode()
            answer = await client.ask(RequestCode.QUERY_ASSIGNMENT, {}, question)
            found = decode_assigned(answer.body)
            return None if found is None else [(each.queue.queue_id, each.mode) for each in found]

        async def set_mode(mode: str, share: int, topic: str = "orders") -> int:
            body = RequestMode(topic, "billing", mode, share).encode()
            return (await clients[0].ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, body)).code

        shares = [await assigned(client) for client in clients]
        assert sorted(each for share in shares for each in share or ()) == [(at, PULL) for at in range(4)]
        assert await set_mode(POP, 0) == 0
        assert [await assigned(client) for client in clients] == [[(ALL_QUEUES, POP)]] * 3
        assert await set_mode(POP, 1) == 0
        both = [await assigned(client) for client in clients]
        assert sorted(each for share in both for each in share or ()) == sorted(2 * [(at, POP) for at in range(4)])
        assert await set_mode(POP, 0, "nowhere") == ResponseCode.TOPIC_NOT_EXIST
        assert await set_mode(POP, 0, "%RETRY%billing") == ResponseCode.NO_PERMISSION
        await broker.restart(killed=True)
        client = await broker.client("one")
        assert await assigned(client) is None  # no member has sent a heartbeat
        await client.heartbeat("billing", "orders")
        assert await assigned(client) == [(ALL_QUEUES, POP)]
        answer = await client.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert b'"popShareQueueNum":1' in answer.body


@pytest.mark.parametrize("moment", ["before", "while"])
def test_what_apache_rocketmq_has_left_in_its_timers_arrives_when_it_is_due(moment: str) -> None:
    """`moment`: when its last acknowledgement was made, before the directory came here or later: it comes again."""

    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            one = await member(broker)
            for body in b"abc":
                await one.client.send("orders", bytes([body]), queue_id=0)
            await one.ack_all(await one.pop())  # so that the group has an offset behind them
            now_ms = int(broker.clock.now() * 1000)
            key = Key("billing", "orders", 0, 0, now_ms)
            theirs = PopCheckpoint([0, 1, 2], key=key, invisible_ms=10_000, revive_queue=5)
            topic, due_ms = revive_topic("DefaultCluster"), now_ms + 10_000

            async def put(record: Record, deliver_ms: int) -> None:
                properties = names.decode(record.raw_properties) | {names.TIMER_DELIVER_MS: str(deliver_ms)}
                await one.client.send(topic, record.body, names.encode(properties).decode(), queue_id=5)

            await put(theirs.record(topic, "broker-a", now_ms), due_ms - 1000)
            await put(theirs.record(topic, "broker-a", now_ms, [0]), due_ms)
            if moment == "before":
                await put(theirs.record(topic, "broker-a", now_ms, [2]), due_ms)
            await broker.restart(killed=True)
            one = Member(await broker.client())
            if moment == "while":
                handle = Handle(0, now_ms, 10_000, 5, OF_TOPIC, "broker-a", 0, 2)
                await one.ack(Popped(Message.make(topic="orders", body=b"c"), handle))
            await asyncio.sleep(9)
            assert await one.pop() == []
            await asyncio.sleep(6)
            assert texts(await one.pop()) == (["b"] if moment == "before" else ["b", "c"])

    story()


@in_virtual_time
async def test_a_retry_that_is_far_away_waits_in_the_timers_over_a_stop() -> None:
    async with running() as broker:
        one = await member(broker, "a")
        (a,) = await one.pop()
        await one.hide(a, 3600)
        await broker.restart()
        await broker.restart()
        await asyncio.sleep(3580)
        one = Member(await broker.client())
        assert await one.pop() == []
        await asyncio.sleep(30)
        (again,) = await one.pop()
        assert again.message.reconsume_times == 1


@in_virtual_time
async def test_names_of_group_and_topic_may_be_as_long_as_each_may_be() -> None:
    async with running() as broker:
        one = Member(await broker.client(), "g" * 120)
        topic = "t" * 127
        await one.client.send(topic, b"a", queue_id=0)
        assert texts(await one.pop(topic)) == ["a"]
        await broker.restart(killed=True)
        one = Member(await broker.client(), "g" * 120)
        await asyncio.sleep(INVISIBLE + 0.1)
        (again,) = await one.pop(topic)
        assert again.message.reconsume_times == 1
        assert await one.ack(again, topic=topic) == 0


@in_virtual_time
async def test_what_was_popped_is_acknowledged_on_a_disk_that_is_too_full_for_messages() -> None:
    files = FillingDisk()
    async with running(files, clean_interval=1.0) as broker:
        client = await broker.client()
        member = Member(client)
        await client.send("orders")
        (one,) = await member.pop()
        files.part = 0.99  # which is noticed before the message would come again
        await asyncio.sleep(20)
        assert (await client.send("orders")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert await member.ack(one) == ResponseCode.SUCCESS
        files.part = 0.1
        await asyncio.sleep(3 * INVISIBLE)
        assert await member.pop() == []


@in_virtual_time
async def test_what_a_deleted_group_has_popped_is_stored_nowhere_again() -> None:
    async with running() as broker:
        client = await broker.client()
        member = Member(client)
        await client.send("orders", b"1")
        assert texts(await member.pop()) == ["1"]
        deleted = {"groupName": "billing", "cleanOffset": "true"}
        assert (await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, deleted)).code == ResponseCode.SUCCESS
        await asyncio.sleep(3 * INVISIBLE)
        topics = (await client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body
        assert b"%RETRY%billing" not in topics
        assert not [event for event in broker.events if isinstance(event, LoopFailed)]
        assert texts(await member.pop()) == ["1"]  # a new group of that name begins anew
