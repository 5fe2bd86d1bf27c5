"""Slaves register with the name server of their master, and learn from it where that is."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.broker.request_dispatch import RequestDispatch
from rocketapp.namesrv.name_server import NameServer
from rocketapp.namesrv.slaves import EXPIRY, MOST_SLAVES, RegistrationProcessor, SlaveTable
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.routes import decode_cluster_info, decode_route
from tests.unit.namesrv.test_name_server import Source
from tests.unit.scripted import in_virtual_time

SLAVE = {"clusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "1", "brokerAddr": "10.0.0.2:10911"}


class Server:
    """A name server that takes slaves."""

    def __init__(self) -> None:
        self.slaves = SlaveTable(asyncio.get_running_loop().time)
        source = Source()
        names = NameServer(source, self.slaves.addresses).table()
        registration = RegistrationProcessor(self.slaves, lambda: source.brokers()[0], lambda: "10.0.0.1:10912")
        self._dispatch = RequestDispatch(names, registration.table())
        self.connection = Connection(serve=None, max_frame_bytes=1024)

    def ask(self, code: int, **fields: str) -> Command:
        body = b"topics, which nobody reads" * 1000 if code == RequestCode.REGISTER_BROKER else b""
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
    server.slaves.connection_lost(server.connection)
    assert 1 not in server.addresses()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"brokerName": "broker-b"}, "only slaves of broker-a in DefaultCluster are taken"),
        ({"clusterName": "other"}, "only slaves of broker-a in DefaultCluster are taken"),
        ({"brokerId": "0"}, "broker-a has a master, at 10.0.0.1:9876: a slave's brokerId is above 0"),
        ({"brokerAddr": "nowhere"}, "'nowhere' is not host:port"),
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
        server.ask(RequestCode.REGISTER_BROKER, **SLAVE | {"brokerId": str(one + 1)}).code
        for one in range(MOST_SLAVES + 1)
    ]
    assert codes == [ResponseCode.SUCCESS] * MOST_SLAVES + [ResponseCode.SYSTEM_ERROR]
    assert server.ask(RequestCode.REGISTER_BROKER, **SLAVE).code == ResponseCode.SUCCESS  # again, as each 30 s
