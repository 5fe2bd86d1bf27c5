"""What one client may ask of a broker that serves others too."""

from __future__ import annotations

import asyncio
import json

import pytest

from rocketapp.broker import half_messages as halves_module
from rocketapp.broker import locks as locks_module
from rocketapp.broker import long_poll
from rocketapp.broker import request_dispatch as dispatch_module
from rocketapp.broker.locks import LockTable
from rocketapp.errors import ConnectionLostError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.locks import LockBody
from rocketapp.wire.requests.pop import PopRequest
from tests.unit.broker.asking import running
from tests.unit.scripted import in_virtual_time


@pytest.mark.parametrize("code", [RequestCode.HEART_BEAT, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, 41])
@pytest.mark.parametrize("body", [b"{" + b"0:0," * 250_000 + b"}", b"[" * 200_000, b'{"a":"' + b"x" * 400_000 + b'"}'])
@in_virtual_time
async def test_a_body_that_would_keep_the_loop_busy_is_refused_before_it_is_read(code: int, body: bytes) -> None:
    async with running() as broker:
        client = await broker.client()
        answer = await client.ask(code, {}, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR


@in_virtual_time
async def test_a_usual_heartbeat_of_many_groups_is_taken() -> None:
    async with running() as broker:
        client = await broker.client()
        topics = [f"a-topic-with-a-long-name-{number}" for number in range(300)]
        assert (await client.heartbeat("billing", *topics)).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_a_request_that_is_too_large_is_told_what_makes_it_smaller() -> None:
    async with running() as broker:
        client = await broker.client()
        answer = await client.heartbeat("billing", *(f"a-topic-with-a-long-name-{number}" for number in range(3_000)))
        assert (answer.remark or "").endswith("bytes, limit 262144: name less at once")
        queues = json.dumps(
            [{"topic": "orders", "brokerName": "broker-a", "queueId": number} for number in range(20_000)]
        )
        body = f'{{"consumerGroup":"billing","clientId":"one","mqSet":{queues}}}'.encode()
        answer = await client.ask(RequestCode.LOCK_BATCH_MQ, {}, body)
        assert (answer.remark or "").endswith(f"has {len(body)} bytes, limit 1048576: name less at once")


@in_virtual_time
async def test_a_configuration_of_a_group_that_is_read_slowly_is_short() -> None:
    async with running() as broker:
        client = await broker.client()
        for topics, code in ((2_000, ResponseCode.SUCCESS), (12_000, ResponseCode.SYSTEM_ERROR)):
            names = ",".join(f'"a{number}"' for number in range(topics))
            body = f'{{"groupName":"billing","attributes":{{"topics":[{names}]}}}}'.encode()
            assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)).code == code


@in_virtual_time
async def test_a_request_for_locks_may_name_very_many_queues_and_not_any_number() -> None:
    async with running() as broker:
        client = await broker.client()
        for count, code in ((12_000, ResponseCode.SUCCESS), (24_000, ResponseCode.SYSTEM_ERROR)):
            body = LockBody("billing", "a", [MessageQueue("orders", "broker-a", number) for number in range(count)])
            assert (await client.ask(RequestCode.LOCK_BATCH_MQ, {}, body.encode())).code == code


@in_virtual_time
async def test_a_request_with_a_header_that_would_keep_the_loop_busy_ends_its_connection() -> None:
    async with running() as broker:
        hostile, client = await broker.client(), await broker.client()
        assert (await client.send("orders", properties="A\x01\x03\x02" * 8_000)).code == ResponseCode.SUCCESS
        with pytest.raises(ConnectionLostError):
            await hostile.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x" * 262_144})
        assert (await client.send("orders")).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_held_pops_and_pulls_of_one_connection_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_poll, "MOST_HELD", 2)
    async with running() as broker:
        greedy, other = await broker.client("greedy"), await broker.client("other")
        for topic in ("one", "two", "three"):
            await greedy.send(topic, queue_id=0)
        pops = [PopRequest("billing", topic, 0, 32, 60_000, 20_000) for topic in ("one", "two", "three")]
        for request in pops:
            await greedy.ask(RequestCode.POP_MESSAGE, request.to_fields())
        held = [asyncio.ensure_future(greedy.ask(RequestCode.POP_MESSAGE, request.to_fields())) for request in pops]
        assert (await held[2]).code == ResponseCode.POLLING_FULL
        taken = asyncio.ensure_future(other.ask(RequestCode.POP_MESSAGE, pops[2].to_fields()))
        pulls = [greedy.pull(topic, 1) for topic in ("one", "two", "three")]
        assert (await pulls[2]).code == ResponseCode.SYSTEM_BUSY
        assert not any(each.done() for each in (*held[:2], taken, *pulls[:2]))
        await asyncio.gather(*held, taken, *pulls)


@in_virtual_time
async def test_held_pulls_are_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_poll, "MOST_HELD_BY_ALL", 2)
    async with running() as broker:
        clients = [await broker.client(str(number)) for number in range(3)]
        await clients[0].send("orders", queue_id=0)
        first, second, third = (client.pull("orders", 1) for client in clients)
        assert (await third).code == ResponseCode.SYSTEM_BUSY
        assert not first.done()
        assert not second.done()


def test_locks_are_bounded_over_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks_module, "MOST_LOCKS", 3)
    table = LockTable(60.0)
    queues = [MessageQueue("T", "b", number) for number in range(5)]
    assert table.lock("A", queues[:2], "a", 0.0) == queues[:2]
    assert table.lock("B", queues, "b", 0.0) == queues[:1]
    assert table.lock("A", queues[:2], "a", 1.0) == queues[:2]


@in_virtual_time
async def test_an_answer_that_would_end_the_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_module, "MOST_ANSWER_BYTES", 10_000)
    async with running() as broker:
        client = await broker.client()
        assert (await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).code == ResponseCode.SUCCESS
        for number in range(60):
            await client.send(f"orders-{number}")
        refused = await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "ask for less" in (refused.remark or "")


@in_virtual_time
async def test_open_transactions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves_module, "MOST_OPEN", 2)
    async with running() as broker:
        client = await broker.client()
        properties = "TRAN_MSG\x01true\x02PGROUP\x01makers\x02"
        codes = [(await client.send("orders", b"x", properties, queue_id=0)).code for _ in range(3)]
        assert codes == [ResponseCode.SUCCESS, ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY]


class Slow:
    """A peer that sends a byte now and then."""

    def __init__(self) -> None:
        self.is_ended = False

    def received(self, data: bytes) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def lost(self, reason: str) -> None:
        self.is_ended = True


@in_virtual_time
async def test_a_thousand_peers_that_never_end_their_frames_are_ended_and_others_are_served() -> None:
    async with running() as broker:
        client = await broker.client()
        slow = [Slow() for _ in range(1000)]
        streams = [await broker.network.dial(broker.address, peer, 3.0) for peer in slow]
        for stream in streams:
            stream.write(b"\x00\x01\x00\x00")  # a frame of 64 KiB begins
        for _ in range(13):
            assert not any(peer.is_ended for peer in slow)
            for stream in streams:
                stream.write(b"\0")
            await asyncio.sleep(9.5)
            assert (await client.send("orders")).code == ResponseCode.SUCCESS
        assert all(peer.is_ended for peer in slow)
