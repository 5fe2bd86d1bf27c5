"""Half messages are committed or rolled back where they are, and brokers that ask are answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketapp.errors import SendRefused
from rocketapp.model.event import LoopFailed
from rocketapp.model.outgoing import Outgoing
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.message_id import offset_id
from rocketapp.wire.record import Message
from rocketapp.wire.requests.send import SendRequest, SendResponse
from rocketapp.wire.requests.transactions import CheckTransaction, EndTransaction
from tests.unit.producer.producing import producing
from tests.unit.scripted import Cluster, Events, ScriptedBroker, eventually, in_virtual_time, outcome

HALF = Outgoing(topic="t", body=b"hello", half=True)


def store_half(broker: ScriptedBroker) -> None:
    """Answer as Apache RocketMQ does: with the place among the half messages."""

    def store(command: Command) -> Command:
        request = SendRequest.from_command(command)
        broker.stored.append((request, command.body))
        stored = SendResponse(offset_id(b"\x0a\x00\x01\x00", 10911, 777), request.queue_id, 5)
        return Command.response(command, ResponseCode.SUCCESS, fields=stored.to_fields())

    broker.answers[RequestCode.SEND_MESSAGE_V2] = store


def ends(broker: ScriptedBroker) -> list[EndTransaction]:
    """What the broker was told of transactions. The producer takes no answer, so each must have been one-way."""
    found = [command for command in broker.asked if command.code == RequestCode.END_TRANSACTION]
    assert all(command.is_one_way for command in found)
    return [EndTransaction.from_fields(command.fields) for command in found]


def ask(
    broker: ScriptedBroker, *, message_id: str = "ID", topic: str = "t", group: str = "p", half_offset: int = 9
) -> None:
    """Ask the only client how the transaction of a half message ended."""
    properties = {names.UNIQ_KEY: message_id, names.TRAN_MSG: "true", names.PGROUP: group}
    record = Record(topic=topic, body=b"hello", raw_properties=names.encode(properties), queue_offset=half_offset)
    question = CheckTransaction(half_offset, half_offset * 100, message_id, message_id, "OID", "HALF", "broker-a")
    broker.connection().send_one_way(
        Command(RequestCode.CHECK_TRANSACTION_STATE, question.to_fields(), encode_record(record))
    )


class Said:
    """A check that says what it is told to, and remembers what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[Message]()
        self.may_go = asyncio.Event()
        self.may_go.set()

    async def __call__(self, message: Message) -> bool | None:
        self.asked.append(message)
        await self.may_go.wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]


@in_virtual_time
async def test_a_half_message_says_what_it_is_and_whose() -> None:
    cluster = Cluster()
    store_half(cluster.brokers[0])
    async with producing(cluster) as producer:
        half = await producer.send(HALF)
        ((request, body),) = cluster.brokers[0].stored
        properties = names.decode(request.properties.encode())
        assert (body, request.sys_flag, request.batch) == (b"hello", 4, False)
        assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "p")
        assert (half.queue_offset, half.message_id) == (5, properties["UNIQ_KEY"])


@pytest.mark.parametrize(("commit", "decision"), [(True, 8), (False, 12)])
def test_its_end_goes_to_its_broker_and_names_its_place(commit: bool, decision: int) -> None:
    @in_virtual_time
    async def run() -> None:
        cluster = Cluster(brokers=2)
        for broker in cluster.brokers:
            store_half(broker)
        async with producing(cluster) as producer:
            half = await producer.send(HALF)
            producer.transactions.begin(half)
            await producer.transactions.end(half, commit=commit, timeout=3)
            (there,) = [broker for broker in cluster.brokers if broker.name == half.queue.broker_name]
            await eventually(lambda: bool(ends(there)))
            assert ends(there) == [
                EndTransaction(
                    "p", "t", 5, 777, decision, half.message_id, half.message_id, broker_name=half.queue.broker_name
                )
            ]

    run()


@in_virtual_time
async def test_a_half_message_travels_alone_is_not_delayed_and_needs_an_answer() -> None:
    cluster = Cluster()
    store_half(cluster.brokers[0])
    async with producing(cluster) as producer:
        await producer.send_many([HALF, Outgoing(topic="t", body=b"x"), HALF])
        assert [request.sys_flag for request, _ in cluster.brokers[0].stored].count(4) == 2
        delayed = await outcome(producer.send(Outgoing(topic="t", body=b"x", half=True, delay_level=3)))
        assert isinstance(delayed, SendRefused) and "cannot be delayed" in delayed.reason
        assert isinstance(await outcome(producer.send_one_way(HALF)), SendRefused)


@in_virtual_time
async def test_a_broker_can_ask_a_member_that_has_never_sent() -> None:
    cluster, check = Cluster(), Said(True)
    async with producing(cluster) as producer:
        producer.transactions.answer("t", check)
        await eventually(lambda: bool(cluster.brokers[0].beats()))
        assert cluster.brokers[0].beats()[0].producers == ("p",)
        ask(cluster.brokers[0])
        await eventually(lambda: bool(ends(cluster.brokers[0])))
        assert ends(cluster.brokers[0]) == [EndTransaction("p", "HALF", 9, 900, 8, "ID", "ID", True, "broker-a")]
        assert (check.asked[0].topic, check.asked[0].body) == ("t", b"hello")


@in_virtual_time
async def test_a_broker_that_gets_no_answer_asks_again() -> None:
    cluster, events, check = Cluster(), Events(), Said(None, ValueError("no database"), False)
    async with producing(cluster, events) as producer:
        producer.transactions.answer("t", check)
        await eventually(lambda: bool(cluster.brokers[0].beats()))
        for number in range(3):
            ask(cluster.brokers[0], half_offset=number)
            await eventually(lambda number=number: len(check.asked) == number + 1)  # type: ignore[misc]
        await eventually(lambda: bool(ends(cluster.brokers[0])))
        assert [(end.half_offset, end.decision) for end in ends(cluster.brokers[0])] == [(2, 12)]
        assert [event.error for event in events if isinstance(event, LoopFailed)] == [
            "its check raised ValueError: no database"
        ]


@pytest.mark.parametrize("asked", [{"topic": "other"}, {"group": "others"}])
def test_what_is_not_ours_stays_open_for_those_that_know_it(asked: dict[str, str]) -> None:
    @in_virtual_time
    async def run() -> None:
        cluster, events, check = Cluster(), Events(), Said(True)
        async with producing(cluster, events) as producer:
            producer.transactions.answer("t", check)
            await eventually(lambda: bool(cluster.brokers[0].beats()))
            ask(cluster.brokers[0], **asked)
            await eventually(lambda: bool(events.of(LoopFailed)))
            assert (check.asked, ends(cluster.brokers[0])) == ([], [])

    run()


@in_virtual_time
async def test_while_the_function_runs_no_check_is_asked_and_the_end_goes_to_the_newest_copy() -> None:
    cluster, check = Cluster(), Said()
    broker = cluster.brokers[0]
    store_half(broker)
    async with producing(cluster) as producer:
        producer.transactions.answer("t", check)
        half = await producer.send(HALF)
        producer.transactions.begin(half)
        for half_offset in (20, 30):
            ask(broker, message_id=half.message_id, half_offset=half_offset)
        await asyncio.sleep(1)
        await producer.transactions.end(half, commit=True, timeout=3)
        await eventually(lambda: bool(ends(broker)))
        (end,) = ends(broker)
        assert (end.half_offset, end.physical_offset, end.decision, end.from_check) == (30, 3000, 8, True)
        assert check.asked == []


@in_virtual_time
async def test_a_check_that_ran_before_the_function_does_not_decide_against_it() -> None:
    """A send that was tried again may take longer than a broker waits before it asks about the first copy."""
    cluster, check = Cluster(), Said(False)
    broker = cluster.brokers[0]
    store_half(broker)
    check.may_go.clear()
    async with producing(cluster) as producer:
        producer.transactions.answer("t", check)
        half = await producer.send(HALF)
        ask(broker, message_id=half.message_id)
        await eventually(lambda: bool(check.asked))
        producer.transactions.begin(half)
        check.may_go.set()
        await asyncio.sleep(1)
        ask(broker, message_id=half.message_id, half_offset=20)
        await asyncio.sleep(1)
        assert (len(check.asked), ends(broker)) == (1, [])
        await producer.transactions.end(half, commit=True, timeout=3)
        await eventually(lambda: bool(ends(broker)))
        assert [(end.half_offset, end.decision) for end in ends(broker)] == [(20, 8)]


@in_virtual_time
async def test_a_slow_check_is_asked_once_and_its_answer_goes_to_the_newest_copy() -> None:
    cluster, check = Cluster(), Said(True)
    check.may_go.clear()
    async with producing(cluster) as producer:
        producer.transactions.answer("t", check)
        await eventually(lambda: bool(cluster.brokers[0].beats()))
        for half_offset in (20, 30):
            ask(cluster.brokers[0], half_offset=half_offset)
        await asyncio.sleep(1)
        check.may_go.set()
        await eventually(lambda: bool(ends(cluster.brokers[0])))
        assert [end.half_offset for end in ends(cluster.brokers[0])] == [30]
        assert len(check.asked) == 1


@in_virtual_time
async def test_an_end_that_cannot_be_told_is_reported_and_left_to_the_broker() -> None:
    cluster, events = Cluster(), Events()
    store_half(cluster.brokers[0])
    async with producing(cluster, events) as producer:
        half = await producer.send(HALF)
        producer.transactions.begin(half)
        await cluster.brokers[0].stop()
        await asyncio.sleep(0.1)
        await producer.transactions.end(half, commit=True, timeout=1)
        (event,) = events.of(LoopFailed)
        assert isinstance(event, LoopFailed)
        assert event.loop == f"transaction {half.message_id}"
        assert event.error.startswith("committed, but ") and event.error.endswith("the broker will ask")


@in_virtual_time
async def test_a_stop_names_what_is_open() -> None:
    cluster, events = Cluster(), Events()
    store_half(cluster.brokers[0])
    async with producing(cluster, events) as producer:
        half = await producer.send(HALF)
        producer.transactions.begin(half)
        await producer.transactions.stop()
        (event,) = events.of(LoopFailed)
        assert isinstance(event, LoopFailed)
        assert event.loop == f"transaction {half.message_id}" and event.error.startswith("open at the stop")


@in_virtual_time
async def test_a_question_about_the_copy_of_another_broker_does_not_say_where_ours_is() -> None:
    """A send that was tried twice may have left two half messages with one id."""
    cluster = Cluster(brokers=2)
    for broker in cluster.brokers:
        store_half(broker)
    async with producing(cluster) as producer:
        producer.transactions.answer("t", Said())
        await eventually(lambda: all(broker.beats() for broker in cluster.brokers))
        half = await producer.send(HALF)
        (there,) = [broker for broker in cluster.brokers if broker.name == half.queue.broker_name]
        (other,) = [broker for broker in cluster.brokers if broker is not there]
        producer.transactions.begin(half)
        ask(other, message_id=half.message_id, half_offset=30)
        await asyncio.sleep(1)
        await producer.transactions.end(half, commit=True, timeout=3)
        await eventually(lambda: bool(ends(there)))
        assert [(end.half_offset, end.physical_offset) for end in ends(there)] == [(5, 777)]


@in_virtual_time
async def test_a_check_answers_the_broker_whose_question_is_the_newest() -> None:
    cluster, check = Cluster(brokers=2), Said(True)
    first, second = cluster.brokers
    check.may_go.clear()
    async with producing(cluster) as producer:
        producer.transactions.answer("t", check)
        await eventually(lambda: all(broker.beats() for broker in cluster.brokers))
        ask(first, half_offset=20)
        await eventually(lambda: bool(check.asked))
        ask(second, half_offset=30)
        await asyncio.sleep(1)
        check.may_go.set()
        await asyncio.sleep(1)
        assert {end.half_offset for end in ends(first)} <= {20}
        assert {end.half_offset for end in ends(second)} <= {30}
        assert ends(first) or ends(second)
