"""Slaves register with the name server of their master, and learn from it where that is; others when they may."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.broker.request_dispatch import RequestDispatch
from rocketapp.model.route import QueueData
from rocketapp.namesrv.name_server import EXPIRY, MOST_BROKERS, BrokerTable, NameServer
from rocketapp.transport.answers import table_of
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.admin import TopicConfig
from rocketapp.wire.requests.registration import MOST_BODY_BYTES, encode_topics
from rocketapp.wire.requests.routes import decode_cluster_info, decode_route, decode_topic_list
from tests.unit.namesrv.test_name_server import shown
from tests.unit.scripted import in_virtual_time

SLAVE = {"clusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "1", "brokerAddr": "10.0.0.2:10911"}


OTHER = {"clusterName": "other", "brokerName": "broker-b", "brokerId": "0", "brokerAddr": "10.0.0.5:10911"}
TOPICS = encode_topics(
    {"topicConfigTable": {name: TopicConfig(name, 3, 2).to_json() for name in ("orders", "bills")}, "dataVersion": {}}
)
NO_TOPICS = encode_topics({"topicConfigTable": {}, "dataVersion": {}})


class Server:
    """A name server that takes slaves."""

    def __init__(self, *, takes_slaves: bool = True, takes_others: bool = False) -> None:
        self.brokers = BrokerTable(
            lambda: shown()[0],
            asyncio.get_running_loop().time,
            ha_address=lambda: "10.0.0.1:10912" if takes_slaves else "",
            takes_others=takes_others,
        )
        self._dispatch = RequestDispatch(table_of(NameServer(self.brokers.shown), self.brokers), store_sends=None)
        self.connection = Connection(serve=None, max_frame_bytes=1024)

    def ask(self, code: int, body: bytes = b"", **fields: str) -> Command:
        if code == RequestCode.REGISTER_BROKER and not body:
            body = b"topics, which nobody reads" * 1000
        answer = self._dispatch.serve(self.connection, Command(code, fields, body))
        assert answer is not None
        return answer

    def addresses(self) -> dict[int, str]:
        """Where a route leads."""
        return dict(
            decode_route(self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders").body).brokers[0].addresses
        )


@in_virtual_time
async def test_a_slave_learns_where_its_master_is_and_routes_lead_to_both() -> None:
    server = Server()
    assert server.addresses() == {0: "10.0.0.1:9876"}
    answer = server.ask(RequestCode.REGISTER_BROKER, **SLAVE)
    assert answer.fields == {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:9876"}
    assert server.addresses() == {0: "10.0.0.1:9876", 1: "10.0.0.2:10911"}
    (broker,) = decode_cluster_info(server.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert set(broker.addresses) == {0, 1}
    assert server.ask(RequestCode.QUERY_DATA_VERSION, **SLAVE).fields == {"changed": "true"}


@in_virtual_time
async def test_a_slave_is_forgotten_when_it_says_so_is_silent_or_lost() -> None:
    server = Server()
    server.ask(RequestCode.REGISTER_BROKER, **SLAVE)
    server.ask(RequestCode.UNREGISTER_BROKER, **SLAVE | {"brokerAddr": "10.0.0.3:10911"})
    assert 1 in server.addresses()
    server.ask(RequestCode.UNREGISTER_BROKER, **SLAVE)
    assert 1 not in server.addresses()
    server.ask(RequestCode.REGISTER_BROKER, **SLAVE)
    await asyncio.sleep(EXPIRY)
    assert 1 in server.addresses()
    await asyncio.sleep(1)
    assert 1 not in server.addresses()
    server.ask(RequestCode.REGISTER_BROKER, **SLAVE)
    server.brokers.connection_lost(server.connection)
    assert 1 not in server.addresses()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"brokerName": "broker-b"}, "only slaves of broker-a in DefaultCluster are taken"),
        ({"clusterName": "other"}, "only slaves of broker-a in DefaultCluster are taken"),
        ({"brokerId": "0"}, "broker-a has a master, at 10.0.0.1:9876: a slave's brokerId is above 0"),
        ({"brokerAddr": "nowhere"}, "'nowhere' is not host:port or [ipv6]:port"),
    ],
)
@in_virtual_time
async def test_what_is_no_slave_is_refused(change: dict[str, str], said: str) -> None:
    server = Server()
    answer = server.ask(RequestCode.REGISTER_BROKER, **SLAVE | change)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"register broker failed: {said}")
    assert server.addresses() == {0: "10.0.0.1:9876"}


@in_virtual_time
async def test_there_is_an_end_to_how_many_are_noted() -> None:
    server = Server()
    codes = [
        server.ask(
            RequestCode.REGISTER_BROKER, **SLAVE | {"brokerId": str(one + 1), "brokerAddr": f"10.0.0.2:{one + 1}"}
        ).code
        for one in range(MOST_BROKERS + 1)
    ]
    assert codes == [ResponseCode.SUCCESS] * MOST_BROKERS + [ResponseCode.SYSTEM_ERROR]
    assert server.ask(RequestCode.REGISTER_BROKER, **SLAVE).code == ResponseCode.SUCCESS  # again, as each 30 s


@in_virtual_time
async def test_another_broker_is_in_routes_with_its_slaves_until_it_is_gone() -> None:
    server = Server(takes_slaves=False, takes_others=True)

    def register(body: bytes = TOPICS, **change: str) -> Command:
        return server.ask(RequestCode.REGISTER_BROKER, body, **OTHER | change)

    def route(topic: str) -> dict[str, tuple[int, dict[int, str]]]:
        found = decode_route(server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic).body)
        queues = {queue.broker_name: queue.write_queues for queue in found.queues}
        return {one.broker_name: (queues[one.broker_name], dict(one.addresses)) for one in found.brokers}

    assert register(brokerId="1", brokerAddr="10.0.0.6:10911").fields == {"haServerAddr": "", "masterAddr": ""}
    assert register(haServerAddr="10.0.0.5:10912").code == ResponseCode.SUCCESS
    answer = register(NO_TOPICS, brokerId="1", brokerAddr="10.0.0.6:10911")  # its master's count
    assert answer.fields == {"haServerAddr": "10.0.0.5:10912", "masterAddr": "10.0.0.5:10911"}
    addresses = {0: "10.0.0.5:10911", 1: "10.0.0.6:10911"}
    assert set(route("orders")) == {"broker-a", "broker-b"}
    assert route("bills") == {"broker-b": (2, addresses)}
    assert "bills" in decode_topic_list(server.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body)

    def of_cluster(name: str) -> list[str]:
        return decode_topic_list(server.ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster=name).body)

    assert of_cluster("other") == ["bills", "orders"]
    assert of_cluster("DefaultCluster") == ["orders"]
    assert of_cluster("none") == []
    server.ask(RequestCode.UNREGISTER_BROKER, **OTHER)
    assert register(brokerAddr="10.0.0.6:10911").code == ResponseCode.SUCCESS
    assert route("bills") == {"broker-b": (2, {0: "10.0.0.6:10911"})}, "its slave has become the master"
    await asyncio.sleep(EXPIRY + 1)
    assert set(route("orders")) == {"broker-a"}
    assert server.ask(RequestCode.REGISTER_BROKER, **SLAVE).code == ResponseCode.SYSTEM_ERROR


def body_of(topics: bytes) -> bytes:
    return b'{"topicConfigSerializeWrapper":{"topicConfigTable":' + topics + b"}}"


@in_virtual_time
async def test_what_a_registration_leaves_out_has_the_defaults_of_apache() -> None:
    server = Server(takes_others=True)
    server.ask(RequestCode.REGISTER_BROKER, body_of(b'{"bills":{"perm":4,"attributes":null,"more":[1]}}'), **OTHER)
    found = decode_route(server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="bills").body)
    assert found.queues == (QueueData("broker-b", 16, 16, 4),)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"x",
        b"[1]",
        b" " * (MOST_BODY_BYTES + 1),
        b"[" * 100_000,
        b'{"x":' + b"[" * 100_000,
        body_of(b"null"),
        body_of(b"[]"),
        body_of(b'{"bills":null}'),
        body_of(b'{"bills":{"perm":"6"}}'),
        body_of(b'{"bills":{"perm":true}}'),
        body_of(b'{"bills":{"readQueueNums":2147483648}}'),
        body_of(b'{"\xff":{}}'),
    ],
)
@in_virtual_time
async def test_topics_that_cannot_be_read_are_refused(body: bytes) -> None:
    answer = Server(takes_others=True).ask(RequestCode.REGISTER_BROKER, body, **OTHER)
    assert answer.code == ResponseCode.SYSTEM_ERROR
