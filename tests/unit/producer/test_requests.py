"""A request gets the reply that belongs to it, from whatever broker, or ends in time."""

from __future__ import annotations

import asyncio

from rocketapp.errors import NoReply, SendRefused, SendUnknown
from rocketapp.model.event import LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outgoing import Outgoing
from rocketapp.producer.producer import Producer
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from rocketapp.wire.requests.replies import PushReply
from rocketapp.wire.requests.send import SendRequest
from tests.unit.producer.producing import producing
from tests.unit.scripted import Cluster, Events, ScriptedBroker, eventually, in_virtual_time, outcome, refuse

REPLY = RequestCode.SEND_REPLY_MESSAGE_V2


async def request(producer: Producer, body: bytes = b"?", timeout: float = 3.0) -> Message:
    await producer.requests.ready("t", timeout / 2)
    deadline = asyncio.get_running_loop().time() + timeout
    with producer.requests.waiting("t", timeout=timeout, deadline=deadline) as waiting:
        sent = await producer.send(Outgoing(topic="t", body=body, marks=waiting.marks))
        return await waiting.reply(sent.message_id, ["17"])


async def push(broker: ScriptedBroker, properties: dict[str, str], body: bytes) -> Command:
    """Hand a reply to the only client of this broker."""
    pushed = PushReply(
        "RG", "R", 0, 0, 1, "10.0.0.7:5", "10.0.1.0:10911", 2, properties=names.encode(properties).decode()
    )
    asked = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed.to_fields(), body)
    return await broker.connection().start_request(asked, timeout=10)


def asked_of(broker: ScriptedBroker) -> list[dict[str, str]]:
    return [names.decode(sent.properties.encode()) for sent, _ in broker.stored]


@in_virtual_time
async def test_each_request_gets_its_own_reply_whatever_their_order() -> None:
    cluster = Cluster()
    broker = cluster.brokers[0]
    async with producing(cluster) as producer:
        waiting = [asyncio.ensure_future(request(producer, body)) for body in (b"a", b"b")]
        await asyncio.sleep(0.5)
        marks = {body: names.decode(sent.properties.encode()) for sent, body in broker.stored}
        for body in (b"b", b"a"):
            taken = await push(broker, marks[body], b"answer to " + body)
            assert taken.code == ResponseCode.SUCCESS
            assert (await push(broker, marks[body], b"a second answer")).code == ResponseCode.SUCCESS
        assert [(await one).body for one in waiting] == [b"answer to a", b"answer to b"]
        assert 0 < int(marks[b"a"]["TTL"]) <= 3000
        assert marks[b"a"]["REPLY_TO_CLIENT"].startswith("10.0.0.5@7#")


@in_virtual_time
async def test_brokers_that_do_not_have_the_topic_can_deliver_the_reply() -> None:
    cluster = Cluster(brokers=2)
    async with producing(cluster) as producer:
        cluster.name_server.routes["t"] = cluster.route(brokers=cluster.brokers[:1])
        cluster.add_topic("DefaultCluster_REPLY_TOPIC")
        waiting = asyncio.ensure_future(request(producer))
        await asyncio.sleep(0.5)
        (marks,) = asked_of(cluster.brokers[0])
        assert cluster.brokers[1].beats()[0].producers == ("p",)
        await push(cluster.brokers[1], marks, b"!")
        assert (await waiting).body == b"!"


@in_virtual_time
async def test_a_broker_that_joins_later_can_deliver_replies_too() -> None:
    cluster = Cluster(brokers=2)
    async with producing(cluster) as producer:
        for topic in ("t", "DefaultCluster_REPLY_TOPIC"):
            cluster.name_server.routes[topic] = cluster.route(brokers=cluster.brokers[:1])
        await outcome(request(producer))
        assert not cluster.brokers[1].beats()
        cluster.add_topic("DefaultCluster_REPLY_TOPIC")
        await asyncio.sleep(60)
        assert cluster.brokers[1].beats()


@in_virtual_time
async def test_routes_of_requests_and_sends_are_asked_for_until_the_producer_stops() -> None:
    cluster = Cluster()
    async with producing(cluster) as producer:
        for _ in range(2):
            await outcome(request(producer))
        await asyncio.sleep(60)
        await producer.stop()
        asked = len(cluster.name_server.topics_asked())
        await asyncio.sleep(200)
        assert asked > 4 and len(cluster.name_server.topics_asked()) == asked


@in_virtual_time
async def test_without_a_reply_it_ends_in_time_and_a_late_one_is_taken_and_dropped() -> None:
    cluster, events = Cluster(), Events()
    async with producing(cluster, events) as producer:
        began = asyncio.get_running_loop().time()
        ended = await outcome(request(producer, timeout=2.0))
        assert isinstance(ended, NoReply)
        assert str(ended) == (
            f"no reply from t within 2 s to {ended.message_id} (key 17): "
            "see that a handler of the topic runs and returns a value, or give a longer timeout="
        )
        assert ended.message_id == asked_of(cluster.brokers[0])[0]["UNIQ_KEY"]
        assert 1.9 < asyncio.get_running_loop().time() - began < 2.1
        await outcome(request(producer, timeout=2.0))
        for marks in asked_of(cluster.brokers[0]):
            assert (await push(cluster.brokers[0], marks, b"late")).code == ResponseCode.SUCCESS
        first, second = events.of(LoopFailed)
        assert first == second  # so the log tells them once


def handled(cluster: Cluster, **properties: str) -> Message:
    """A request as its handler gets it."""
    marks = {"CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "someone", "TTL": "3000", "CLUSTER": "DefaultCluster"}
    message = Message.make(b"?", topic="t", properties={"colour": "red"}, queue=MessageQueue("t", "broker-b", 0))
    message.raw_properties += names.encode({**marks, **properties})
    return message


@in_virtual_time
async def test_a_reply_goes_first_to_the_broker_of_its_request_then_to_the_others() -> None:
    cluster = Cluster(brokers=2)
    async with producing(cluster) as producer:
        cluster.add_topic("DefaultCluster_REPLY_TOPIC")
        first, second = cluster.brokers[1], cluster.brokers[0]
        first.answers[REPLY] = refuse(1, "no channel")
        second.answers[REPLY] = second.store
        await producer.reply(handled(cluster), b"42", {"size": "1"})
        assert first.codes().count(REPLY) == 1
        ((sent, body),) = second.stored
        assert (sent.topic, body) == ("DefaultCluster_REPLY_TOPIC", b"42")
        properties = names.decode(sent.properties.encode())
        del properties["UNIQ_KEY"]
        assert properties == {
            "size": "1",
            "WAIT": "true",
            "MSG_TYPE": "reply",
            "CORRELATION_ID": "c1",
            "REPLY_TO_CLIENT": "someone",
            "TTL": "3000",
        }


@in_virtual_time
async def test_a_reply_that_no_broker_can_deliver_is_unknown() -> None:
    cluster = Cluster()
    async with producing(cluster) as producer:
        cluster.add_topic("DefaultCluster_REPLY_TOPIC")
        cluster.brokers[0].answers[REPLY] = refuse(1, "no channel")
        assert isinstance(await outcome(producer.reply(handled(cluster), b"42", {})), SendUnknown)


@in_virtual_time
async def test_what_is_no_request_is_not_answered() -> None:
    cluster = Cluster()
    async with producing(cluster) as producer:
        message = Message.make(b"?", topic="t", message_id="ID1", keys=["17"])
        refused = await outcome(producer.reply(message, b"42", {}))
        assert isinstance(refused, SendRefused)
        assert "message ID1 (key 17) does not say where a reply goes" in str(refused)
        assert REPLY not in cluster.brokers[0].codes()


def test_both_forms_of_a_reply_are_read() -> None:
    sent = SendRequest("PG", "R", queue_id=1)
    assert SendRequest.from_command(Command(REPLY, sent.to_fields())) == sent


@in_virtual_time
async def test_a_broker_that_is_away_is_waited_for_once() -> None:
    cluster = Cluster(brokers=2)
    async with producing(cluster) as producer:
        loop, away = asyncio.get_running_loop(), cluster.brokers[1]
        await away.stop()
        cluster.network.hold(away.address)
        waited = []
        for _ in range(3):
            began = loop.time()
            await producer.requests.ready("t", 1.5)
            waited.append(loop.time() - began)
        assert waited == [1.5, 0.0, 0.0]
        cluster.network.release(away.address)
        await away.start()
        await eventually(lambda: RequestCode.HEART_BEAT in away.codes(), 10)
        await producer.requests.ready("t", 1.5)
