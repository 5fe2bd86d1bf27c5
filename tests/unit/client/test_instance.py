"""One process in a cluster: it is known to every broker, whatever happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest

from rocketapp.client.calls import clients
from rocketapp.client.instance import ClientInstance
from rocketapp.clock import SystemClock
from rocketapp.config.client import ClientConfig
from rocketapp.errors import SetupError, TransportError
from rocketapp.model.event import Connected, Disconnected
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import BrokerData, QueueData, TopicRoute
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.admin import RunningInfoRequest
from rocketapp.wire.requests.clients import ConsumerData, OfGroup, UnregisterRequest
from rocketapp.wire.requests.direct import NOT_TAKEN, DirectRequest, DirectResult
from rocketapp.wire.requests.running_info import CLIENT_VERSION, CONSUME_TYPE, STARTED, RunningInfo
from tests.unit.scripted import Cluster, Events, ScriptedBroker, eventually, in_virtual_time, ok, outcome


class Member:
    """A consumer that listens."""

    def __init__(self, group: str = "g") -> None:
        self.group = group
        self.heard: list[str] = []

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(self.group)

    def running_info(self, *, with_stacks: bool = False, brief: bool = False) -> RunningInfo:
        return RunningInfo({CONSUME_TYPE: "CONSUME_PASSIVELY"}, ())

    def done_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return {MessageQueue(topic, "broker-a", 0): 7}

    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        self.heard.append(f"moved to {list(offsets.values())}")

    async def consume_directly(self, request: DirectRequest, record: bytes) -> DirectResult:
        return DirectResult(NOT_TAKEN, f"not {request.offset_message_id}")

    def members_changed(self) -> None:
        self.heard.append("members")

    def routes_changed(self) -> None:
        self.heard.append("routes")

    def broker_lost(self, broker_names: Sequence[str]) -> None:
        self.heard.append("lost")

    def broker_back(self, broker_names: Sequence[str]) -> None:
        self.heard.append("back")


def make(cluster: Cluster, observe: Events | None = None, **config: str) -> ClientInstance:
    return ClientInstance(
        config=ClientConfig(name_server=cluster.name_server.address, **config),  # type: ignore[arg-type]
        dial=cluster.network.dial,
        clock=SystemClock(),
        random=Random(0),
        observe=observe if observe is not None else Events(),
        client_ip="10.0.0.5",
        pid=7,
    )


@asynccontextmanager
async def running(
    cluster: Cluster, observe: Events | None = None, member: Member | None = None
) -> AsyncIterator[ClientInstance]:
    """A started client that has a consumer of group `g` and knows topic `t` on all brokers."""
    client = make(cluster, observe)
    cluster.add_topic("t")
    await client.start()
    client.register_consumer("g", member or Member())
    client.routes.watch("t")
    await client.routes.fetch("t")
    yield client
    await client.stop()
    assert len(asyncio.all_tasks()) == 1


@in_virtual_time
async def test_start_fails_with_every_address_when_there_is_no_name_server_and_may_be_repeated() -> None:
    cluster = Cluster()
    client = make(cluster)
    error = await outcome(client.start())
    assert isinstance(error, TransportError)
    assert cluster.name_server.address in str(error)
    await cluster.start()
    await client.start()
    await client.stop()


@in_virtual_time
async def test_a_heartbeat_tells_every_broker_who_is_here() -> None:
    cluster = await Cluster(brokers=3).start()
    async with running(cluster) as client:
        client.register_producer("p")
        assert len(await client.heartbeat()) == 3
        for broker in cluster.brokers:
            beat = broker.beats()[-1]
            assert beat.client_id == client.client_id
            assert beat.producers == ("p",)
            assert [data.group for data in beat.consumers] == ["g"]


@in_virtual_time
async def test_heartbeats_go_out_every_30_seconds_and_one_dead_broker_delays_no_other() -> None:
    cluster = await Cluster(brokers=3).start()
    async with running(cluster) as client:
        await client.heartbeat()
        cluster.network.hold(cluster.brokers[0].address)
        before = [len(broker.beats()) for broker in cluster.brokers]
        start = asyncio.get_running_loop().time()
        assert await client.heartbeat() == {broker.address for broker in cluster.brokers[1:]}
        assert asyncio.get_running_loop().time() - start < 3.1
        await asyncio.sleep(91)
        after = [len(broker.beats()) for broker in cluster.brokers]
        assert after[0] == before[0]
        assert [each - earlier for each, earlier in zip(after[1:], before[1:], strict=True)] == [4, 4]


@in_virtual_time
async def test_a_broker_hears_a_heartbeat_before_anything_else() -> None:
    cluster = await Cluster().start()
    (broker,) = cluster.brokers
    broker.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = ok
    async with running(cluster) as client:
        address = client.broker_address("broker-a")
        assert address is not None

        async def ask() -> None:
            await (await client.connection(address)).start_request(
                Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP), timeout=3.0
            )

        await asyncio.gather(ask(), ask(), ask())
        codes = broker.codes()
        assert codes[0] == RequestCode.HEART_BEAT
        assert codes.count(RequestCode.HEART_BEAT) == 1


@in_virtual_time
async def test_a_restarted_broker_knows_us_within_about_a_second_without_anybody_asking() -> None:
    cluster = await Cluster().start()
    (broker,) = cluster.brokers
    events = Events()
    async with running(cluster, events) as client:
        await client.heartbeat()
        for outage in (0.0, 5.0, 400.0):
            await broker.stop()
            await asyncio.sleep(outage)
            broker.asked.clear()
            start = asyncio.get_running_loop().time()
            await broker.start()
            await eventually(lambda: len(broker.beats()) == 1)
            assert asyncio.get_running_loop().time() - start <= 1.05
        assert Disconnected(broker.address, "connection reset") in events
        assert events.count(Connected(broker.address)) == 4


@in_virtual_time
async def test_members_hear_that_a_broker_was_lost_and_is_back_but_not_of_the_first_connection() -> None:
    cluster = await Cluster().start()
    broker = cluster.brokers[0]
    cluster.add_topic("t")
    client, member = make(cluster), Member()
    await client.start()
    client.register_consumer("g", member)
    await client.routes.fetch("t")
    await client.heartbeat()
    assert "lost" not in member.heard
    assert "back" not in member.heard
    await broker.stop()
    await eventually(lambda: "lost" in member.heard)
    await asyncio.sleep(10)
    assert "back" not in member.heard
    await broker.start()
    await eventually(lambda: "back" in member.heard, 2.0)
    await client.stop()


@in_virtual_time
async def test_a_broker_that_was_dead_from_the_start_is_joined_when_it_comes() -> None:
    cluster = await Cluster().start()
    (broker,) = cluster.brokers
    await broker.stop()
    async with running(cluster) as client:
        assert not await client.heartbeat()
        await asyncio.sleep(10)
        await broker.start()
        await eventually(lambda: bool(broker.beats()), seconds=1.1)


@in_virtual_time
async def test_a_broker_that_moved_is_found_although_calls_to_its_old_address_hang() -> None:
    cluster = await Cluster().start()
    (broker,) = cluster.brokers
    async with running(cluster) as client:
        await client.heartbeat()
        old = await client.connection(broker.address)
        calls = [old.start_request(Command(RequestCode.UPDATE_CONSUMER_OFFSET), timeout=60.0) for _ in range(50)]
        cluster.network.hold(broker.address)
        moved = await ScriptedBroker(cluster.network, "10.0.9.9:20911").start()
        cluster.name_server.routes["t"] = cluster.route(brokers=[moved])
        client.routes.refresh_soon("t")
        await eventually(lambda: bool(moved.beats()), seconds=1.0)
        assert client.broker_address("broker-a") == moved.address
        await asyncio.sleep(31)
        assert old.is_closed
        assert all([isinstance(await outcome(call), TransportError) for call in calls])


@in_virtual_time
async def test_connections_to_brokers_in_no_route_are_closed() -> None:
    cluster = await Cluster(brokers=2).start()
    gone = cluster.brokers[1]
    async with running(cluster) as client:
        await client.heartbeat()
        assert gone.listener.connections
        cluster.name_server.routes["t"] = cluster.route(brokers=cluster.brokers[:1])
        await asyncio.sleep(61)
        assert not gone.listener.connections
        assert client.broker_address("broker-b") is None
        beats = len(gone.beats())
        await asyncio.sleep(120)
        assert len(gone.beats()) == beats


@in_virtual_time
async def test_a_client_without_members_keeps_the_brokers_that_it_asks_by_their_address() -> None:
    """A command that asks a slave again and again, as a promotion does, knows no route of a topic."""
    cluster = await Cluster().start()
    client = make(cluster)
    await client.start()
    connection = await client.connection(cluster.brokers[0].address)
    await asyncio.sleep(100.0)
    assert not connection.is_closed
    await client.stop()


@in_virtual_time
async def test_a_held_broker_that_no_route_names_keeps_its_connection_and_its_heartbeats() -> None:
    cluster = await Cluster(brokers=2).start()
    held = cluster.brokers[1]
    async with running(cluster) as client:
        client.routes.hold_broker("broker-b")
        await client.heartbeat()
        cluster.name_server.routes["t"] = cluster.route(brokers=cluster.brokers[:1])
        await asyncio.sleep(61)
        assert client.broker_address("broker-b") == held.address
        beats = len(held.beats())
        await asyncio.sleep(61)
        assert len(held.beats()) == beats + 2
        client.routes.release_broker("broker-b")
        await asyncio.sleep(31)
        assert not held.listener.connections


@in_virtual_time
async def test_producers_alone_are_of_no_interest_to_slaves() -> None:
    cluster = await Cluster(brokers=2).start()
    master, slave = cluster.brokers
    broker = BrokerData("C", "broker-a", {0: master.address, 1: slave.address})
    cluster.name_server.routes["u"] = TopicRoute((QueueData("broker-a", 4, 4, 6),), (broker,))
    client = make(cluster)
    await client.start()
    await client.routes.fetch("u")
    assert not await client.heartbeat(), "the broker has no member yet"
    client.register_producer("p")
    assert len(await client.heartbeat()) == 1
    client.register_consumer("g", Member())
    assert len(await client.heartbeat()) == 2
    assert client.broker_address("broker-a", 1) == slave.address
    await client.stop()


@in_virtual_time
async def test_news_of_a_broker_reach_the_member_and_unserved_requests_are_refused() -> None:
    cluster = await Cluster().start()
    client = make(cluster)
    member = Member()
    cluster.add_topic("t")
    await client.start()
    client.register_consumer("g", member)
    await client.routes.fetch("t")
    await client.heartbeat()
    server = cluster.brokers[0].connection()
    server.send_one_way(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, OfGroup("g").to_fields()))
    await eventually(lambda: "members" in member.heard)
    for code in (39, 326):
        assert (await server.start_request(Command(code), timeout=1.0)).code == 3
    assert member.heard == ["routes", "members"]
    await client.stop()


@in_virtual_time
async def test_a_member_tells_administrators_what_it_subscribes() -> None:
    cluster = await Cluster().start()
    async with running(cluster) as client:
        await client.heartbeat()
        server = cluster.brokers[0].connection()

        async def ask(group: str) -> Command:
            request = RunningInfoRequest(group, client.client_id)
            return await server.start_request(Command(307, request.to_fields()), timeout=1.0)

        info = RunningInfo.decode((await ask("g")).body)
        assert info.properties.items() >= {CONSUME_TYPE: "CONSUME_PASSIVELY", CLIENT_VERSION: "V5_3_3"}.items()
        assert int(info.properties[STARTED]) > 1_700_000_000_000
        assert info.subscriptions == ()
        refused = await ask("other")
        assert (refused.code, refused.remark) == (1, "The Consumer Group <other> not exist in this consumer")


@in_virtual_time
async def test_a_member_tells_administrators_how_far_it_is_and_is_moved_without_an_answer() -> None:
    cluster = await Cluster().start()
    member = Member()
    async with running(cluster, member=member) as client:
        await client.heartbeat()
        server = cluster.brokers[0].connection()

        async def status(group: str) -> bytes:
            return (await server.start_request(Command(221, {"topic": "T", "group": group}), timeout=1.0)).body

        assert await status("g") == b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7}}'
        assert await status("other") == b'{"messageQueueTable":{}}'
        body = b'{"offsetTable":[{"brokerName":"broker-a","offset":3,"queueId":0,"topic":"T"}]}'
        for group in ("g", "other"):
            server.send_one_way(Command(220, {"topic": "T", "group": group, "timestamp": "0"}, body))
        await eventually(lambda: "moved to [3]" in member.heard)
        assert member.heard.count("moved to [3]") == 1


@in_virtual_time
async def test_a_group_is_registered_once_and_left_at_every_broker() -> None:
    cluster = await Cluster(brokers=2).start()
    async with running(cluster) as client:
        with pytest.raises(SetupError, match="registered twice"):
            client.register_consumer("g", Member())
        await client.heartbeat()
        await cluster.brokers[1].stop()
        await client.unregister("g")
        goodbye = cluster.brokers[0].asked[-1]
        assert UnregisterRequest.from_fields(goodbye.fields) == UnregisterRequest(client.client_id, None, "g")
        assert not await client.heartbeat()


@in_virtual_time
async def test_leaving_and_stopping_wait_a_second_for_a_frozen_broker_and_for_no_dial() -> None:
    cluster = await Cluster(brokers=3).start()
    frozen, dialled = cluster.brokers[1:]
    await dialled.stop()
    async with running(cluster) as client:
        client.register_producer("p")
        await client.heartbeat()
        frozen.answers.clear()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await client.unregister("g")
        assert frozen.codes()[-1] == cluster.brokers[0].codes()[-1] == RequestCode.UNREGISTER_CLIENT
        await client.unregister_producer("p")
        await client.stop()
        assert loop.time() - begun <= 2.1


@in_virtual_time
async def test_a_broker_that_refuses_heartbeats_may_still_be_asked() -> None:
    cluster = await Cluster().start()
    (broker,) = cluster.brokers
    broker.answers[RequestCode.HEART_BEAT] = lambda command: Command.response(command, 1, remark="busy")
    broker.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda command: Command.response(
        command, 0, body=b'{"consumerIdList":["a","b"]}'
    )
    async with running(cluster) as client:
        assert not await client.heartbeat()
        connection = await client.connection(broker.address)
        assert await clients.member_list(connection, "g", 3.0) == ["a", "b"]


@in_virtual_time
async def test_an_instance_name_makes_the_client_id() -> None:
    cluster = Cluster()
    assert make(cluster, instance_name="left").client_id.startswith("10.0.0.5@left#7#")
    assert make(cluster).client_id.startswith("10.0.0.5@7#")
