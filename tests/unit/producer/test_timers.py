"""Exact delays wait on a broker's timer, never on a broker that has none; what waits there can be taken back."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.errors import NotRecalled, SendRefused
from rocketapp.model.outgoing import Outgoing
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.recall import RecallHandle, RecallRequest
from rocketapp.wire.requests.send import SendRequest, SendResponse
from tests.unit.producer.producing import producing
from tests.unit.scripted import Answer, Cluster, ScriptedBroker, in_virtual_time, ok, outcome, refuse

SEND, RECALL = RequestCode.SEND_MESSAGE_V2, RequestCode.RECALL_MESSAGE
LATER = Outgoing(topic="t", body=b"x", delay=45.25)
HANDLE = RecallHandle("t", "broker-b", 1795169734001, "ID").encode()


def with_version(version: int) -> Answer:
    def answer(command: Command) -> Command:
        response = ok(command)
        response.version = version
        return response

    return answer


def timers_of(broker: ScriptedBroker) -> list[str | None]:
    """The timer property of each send that reached a broker."""
    sends = [SendRequest.from_command(each) for each in broker.asked if each.code == SEND]
    return [names.decode(each.properties.encode()).get(names.TIMER_DELAY_MS) for each in sends]


@in_virtual_time
async def test_an_exact_delay_waits_on_the_timer_and_the_result_has_its_handle() -> None:
    cluster = Cluster()
    broker = cluster.brokers[0]

    def store(command: Command) -> Command:
        return Command.response(command, 0, fields=SendResponse("ID", 1, 5, recall_handle=HANDLE).to_fields())

    async with producing(cluster) as producer:
        broker.answers[SEND] = store
        assert (await producer.send(LATER)).recall_handle == HANDLE
        await producer.send_one_way(LATER)
        (result,) = await producer.send_many([LATER])
        assert result.recall_handle == HANDLE
        assert timers_of(broker) == ["45250"] * 3


@pytest.mark.parametrize("answer", [with_version(409), refuse(1, "no heartbeats here")])
@in_virtual_time
async def test_to_a_broker_without_timers_nothing_leaves(answer: Answer) -> None:
    cluster = Cluster()
    cluster.brokers[0].answers[RequestCode.HEART_BEAT] = answer
    async with producing(cluster) as producer:
        for sending in (producer.send(LATER), producer.send_one_way(LATER), producer.send_many([LATER])):
            error = await outcome(sending)
            assert isinstance(error, SendRefused)
            assert "delay=45.25" in str(error) and "the nearest are 30 and 60 s" in str(error)
        level = await outcome(producer.send(Outgoing(topic="t", body=b"x", delay=30.0)))
        assert "30 s is one of them, without recallable" in str(level)
        assert timers_of(cluster.brokers[0]) == []
        await producer.send(Outgoing(topic="t", body=b"x", delay_level=4))


@in_virtual_time
async def test_a_broker_that_does_not_say_its_version_uses_up_no_more_than_the_time_of_the_send() -> None:
    cluster = Cluster()
    beats = cluster.brokers[0].answers
    beats[RequestCode.HEART_BEAT] = refuse(1, "not yet")
    async with producing(cluster, send_timeout=1.0) as producer:
        await producer.send(Outgoing(topic="t", body=b"x"))
        del beats[RequestCode.HEART_BEAT]  # from now on it is silent
        now = asyncio.get_running_loop().time
        for sending in (producer.send(LATER), producer.send_one_way(LATER)):
            began = now()
            error = await outcome(sending)
            assert isinstance(error, SendRefused)
            assert str(error).endswith("10.0.1.0:10911 did not say in time whether it has timers")
            assert now() - began == pytest.approx(1.0)


@in_virtual_time
async def test_among_brokers_of_several_versions_one_with_timers_is_found() -> None:
    cluster = Cluster(brokers=2)
    cluster.brokers[0].answers[RequestCode.HEART_BEAT] = with_version(409)
    cluster.brokers[1].answers[RequestCode.HEART_BEAT] = with_version(413)
    async with producing(cluster) as producer:
        results = [await producer.send(LATER) for _ in range(8)]
        assert {result.queue.broker_name for result in results} == {"broker-b"}


@in_virtual_time
async def test_a_later_attempt_waits_for_what_is_left() -> None:
    cluster = Cluster(brokers=2)
    async with producing(cluster, send_timeout=6.0) as producer:
        await producer.send(Outgoing(topic="t", body=b"x"))
        del cluster.brokers[0].answers[SEND], cluster.brokers[1].answers[SEND]
        for broker in cluster.brokers:
            asyncio.get_running_loop().call_later(1.0, broker.answers.__setitem__, SEND, broker.store)
        await producer.send(LATER)
        sent = sorted(timer for broker in cluster.brokers for timer in timers_of(broker) if timer is not None)
        assert sent == ["43250", "45250"]


@pytest.mark.parametrize(
    ("code", "remark", "is_permanent"),
    [
        (13, "timer message illegal, the delay time should not be bigger than the max delay 259200000ms", True),
        (1, "accurate timer message is not enabled, timerWheelEnable is false", False),
    ],
)
@in_virtual_time
async def test_a_broker_that_refuses_the_time_has_stored_nothing(code: int, remark: str, is_permanent: bool) -> None:
    cluster = Cluster()
    async with producing(cluster) as producer:
        cluster.brokers[0].answers[SEND] = refuse(code, remark)
        error = await outcome(producer.send(LATER))
        assert isinstance(error, SendRefused) and error.is_permanent == is_permanent
        assert remark in str(error) and "the nearest are 30 and 60 s" in str(error)


@in_virtual_time
async def test_a_recall_goes_to_the_broker_that_holds_the_message() -> None:
    cluster = Cluster(brokers=2)
    cluster.brokers[1].answers[RECALL] = ok
    async with producing(cluster) as producer:
        assert await producer.recall("t", HANDLE, 3.0) == "ID"
        (asked,) = [each for each in cluster.brokers[1].asked if each.code == RECALL]
        assert RecallRequest.from_fields(asked.fields) == RecallRequest("t", HANDLE, "p", "broker-b")
        assert RECALL not in cluster.brokers[0].codes()
        in_namespace = RecallHandle("INST%t", "broker-b", 1795169734001, "ID2").encode()
        assert await producer.recall("t", in_namespace, 3.0) == "ID2"


@pytest.mark.parametrize(
    ("topic", "handle", "answer", "perhaps", "text"),
    [
        ("t", HANDLE, refuse(604, "recall failed, timestamp invalid"), False, "timestamp invalid"),
        ("t", HANDLE, None, True, "no answer"),
        ("t", "nonsense", ok, False, "not a recall handle"),
        ("other", HANDLE, ok, False, "of topic t"),
        ("t", RecallHandle("t", "broker-z", 1, "ID").encode(), ok, False, "broker-z"),
    ],
)
@in_virtual_time
async def test_a_recall_that_fails_says_why(
    topic: str, handle: str, answer: Answer | None, perhaps: bool, text: str
) -> None:
    cluster = Cluster(brokers=2)
    if answer is not None:
        cluster.brokers[1].answers[RECALL] = answer
    async with producing(cluster) as producer:
        error = await outcome(producer.recall(topic, handle, 3.0))
        assert isinstance(error, NotRecalled) and error.perhaps == perhaps
        assert text in str(error)
