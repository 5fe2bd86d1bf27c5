"""Message trace of what a producer does: written beside it, and never in its way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketapp.model.event import LoopFailed
from rocketapp.model.outgoing import Outgoing
from rocketapp.producer.trace_writer import AT_ONCE, INTERVAL, LOOK
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.message_id import offset_id
from rocketapp.wire.requests.send import SendRequest, SendResponse
from rocketapp.wire.trace import PubRecord, line_of
from tests.golden.traces import TraceRecord, decode
from tests.unit.producer.producing import producing
from tests.unit.scripted import Cluster, Events, in_virtual_time

TRACES = "RMQ_SYS_TRACE_TOPIC"
OFFSET_ID = offset_id(b"\x0a\x00\x01\x00", 10911, 777)


def new_cluster() -> Cluster:
    cluster = Cluster()
    cluster.add_topic(TRACES)
    return cluster


def written(cluster: Cluster) -> list[TraceRecord]:
    sends = [(request, body) for request, body in cluster.brokers[0].stored if request.topic == TRACES]
    assert all(request.producer_group == "_INNER_TRACE_PRODUCER-p" for request, _ in sends)
    return [record for _, body in sends for record in decode(body)]


def answering(cluster: Cluster, **said: Any) -> None:
    """The broker answers sends of topic `t` so."""
    broker = cluster.brokers[0]

    def answer(command: Command) -> Command:
        request = SendRequest.from_command(command)
        if request.topic == TRACES:
            return broker.store(command)
        response = SendResponse(OFFSET_ID, request.queue_id, 5, **said)
        return Command.response(command, ResponseCode.SUCCESS, fields=response.to_fields())

    broker.answers[RequestCode.SEND_MESSAGE_V2] = answer


def test_sends_of_every_kind_leave_a_record_for_each_message() -> None:
    @in_virtual_time
    async def story() -> None:
        cluster = new_cluster()
        answering(cluster)
        async with producing(cluster, trace_topic=TRACES) as producer:
            one = await producer.send(Outgoing(topic="t", body=b"hello", tag="new", keys=["a", "b"]))
            many = await producer.send_many([Outgoing(topic="t", body=bytes(size)) for size in (1, 2)])
            delayed = await producer.send(Outgoing(topic="t", body=b"x", delay_level=3))
            half = await producer.send(Outgoing(topic="t", body=b"x", half=True))
            await producer.send_one_way(Outgoing(topic="t", body=b"lost"))
            await asyncio.sleep(2 * INTERVAL)
            found = written(cluster)
            assert [record.message_id for record in found] == [
                result.message_id for result in (one, *many, delayed, half)
            ]
            pubs = [record for record in found if isinstance(record, PubRecord)]
            assert [record.kind for record in pubs] == [0, 0, 0, 3, 1]
            assert [record.body_bytes for record in pubs] == [5, 1, 2, 1, 1]
            first = pubs[0]
            assert (first.group, first.topic, first.tag, first.keys) == ("p", "t", "new", "a b")
            assert (first.region, first.success) == ("DefaultRegion", True)
            assert (first.store_host, first.offset_message_id) == (cluster.brokers[0].address, OFFSET_ID)
            (request, _), *_ = (each for each in cluster.brokers[0].stored if each[0].topic == TRACES)
            keys = names.decode(request.properties.encode())[names.KEYS].split()
            assert keys[:3] == [one.message_id, "a", "b"]

    story()


@pytest.mark.parametrize("said", [{"trace_on": False}, {"region": None}])
def test_a_broker_that_wants_no_trace_of_a_message_gets_none(said: dict[str, Any]) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster = new_cluster()
        answering(cluster, **said)
        async with producing(cluster, trace_topic=TRACES) as producer:
            await producer.send(Outgoing(topic="t", body=b"hello"))
        assert written(cluster) == []

    story()


def test_messages_that_share_a_request_and_what_waits_at_the_stop_are_written() -> None:
    @in_virtual_time
    async def story() -> None:
        cluster = new_cluster()
        async with producing(cluster, trace_topic=TRACES) as producer:
            results = await producer.send_many([Outgoing(topic="t", body=b"x")] * 3)
            assert written(cluster) == []
        assert [record.message_id for record in written(cluster)] == [result.message_id for result in results]

    story()


def test_many_notes_are_written_long_before_the_pile_is_full() -> None:
    @in_virtual_time
    async def story() -> None:
        cluster = new_cluster()
        async with producing(cluster, trace_topic=TRACES) as producer:
            assert producer.traces is not None
            for number in range(AT_ONCE):
                record = PubRecord(1, "DefaultRegion", "p", "t", f"ID{number}", None, None, "h:1", 4, 7, 0, "x", True)
                producer.traces.add((lambda notes: [line_of(each) for _, each in notes], record))
                if number == AT_ONCE - 2:
                    await asyncio.sleep(2 * LOOK)
                    assert written(cluster) == []
            await asyncio.sleep(2 * LOOK)
            assert len(written(cluster)) == AT_ONCE
            assert 4 * LOOK < INTERVAL

    story()


def test_traces_that_cannot_be_sent_are_told_once_and_hold_nothing_up() -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, events, loop = new_cluster(), Events(), asyncio.get_running_loop()
        broker = cluster.brokers[0]

        def answer(command: Command) -> Command:
            if SendRequest.from_command(command).topic == TRACES:
                return Command.response(command, ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")
            return broker.store(command)

        broker.answers[RequestCode.SEND_MESSAGE_V2] = answer
        async with producing(cluster, events, trace_topic=TRACES) as producer:
            for _ in range(3):
                await producer.send(Outgoing(topic="t", body=b"hello"))
                await asyncio.sleep(10)
            began = loop.time()
        assert loop.time() - began < 6
        (told,) = (event for event in events.of(LoopFailed) if isinstance(event, LoopFailed))
        assert told.loop == "message trace"
        assert "traceTopicEnable=true" in told.error
        assert len(broker.stored) == 3

    story()


def test_without_the_option_nothing_is_written() -> None:
    @in_virtual_time
    async def story() -> None:
        cluster = new_cluster()
        async with producing(cluster) as producer:
            assert producer.traces is None
            await producer.send(Outgoing(topic="t", body=b"hello"))
        assert {request.topic for request, _ in cluster.brokers[0].stored} == {"t"}

    story()
