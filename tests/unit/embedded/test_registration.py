"""The embedded broker at name servers of others: it is told there, and goes from there at once."""

from __future__ import annotations

import asyncio
import zlib

import pytest

from rocketapp.errors import ConfigError
from rocketapp.model.event import BrokerRegistered, LoopFailed
from rocketapp.model.route import BrokerData
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.lenient_json import loads
from rocketapp.wire.requests.routes import encode_cluster_info
from tests.unit.broker.asking import Running
from tests.unit.scripted import ScriptedServer, in_virtual_time

FIRST, SECOND = "127.0.0.1:9001", "127.0.0.1:9002"


class NameServer(ScriptedServer):
    """Takes every broker, and says that it knows these."""

    def __init__(self, network: MemoryNetwork, address: str, known: tuple[BrokerData, ...] = ()) -> None:
        super().__init__(network, address)
        self.known = known
        self.answers = {
            RequestCode.GET_BROKER_CLUSTER_INFO: lambda asked: Command.response(
                asked, 0, body=encode_cluster_info(self.known)
            ),
            RequestCode.REGISTER_BROKER: lambda asked: Command.response(asked, 0),
            RequestCode.UNREGISTER_BROKER: lambda asked: Command.response(asked, 0),
        }

    def told(self, code: int = RequestCode.REGISTER_BROKER) -> list[Command]:
        return [command for command in self.asked if command.code == code]


def _topics(command: Command) -> set[str]:
    return set(loads(command.body)["topicConfigSerializeWrapper"]["topicConfigTable"])


@in_virtual_time
async def test_a_name_server_is_told_at_the_start_then_every_half_minute_and_when_a_topic_is_made() -> None:
    broker = Running(name_server=FIRST)
    server = await NameServer(broker.network, FIRST).start()
    await broker.start()
    await asyncio.sleep(5.0)
    (first,) = server.told()
    expected = {
        "clusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": "0",
        "brokerAddr": broker.address,
        "haServerAddr": "",
        "compressed": "false",
        "bodyCrc32": str(zlib.crc32(first.body) & 0x7FFFFFFF),
    }
    assert (first.fields, "TBW102" in _topics(first)) == (expected, True)
    assert BrokerRegistered("broker-a", broker.address, FIRST) in broker.events
    client = await broker.client()
    await client.send("orders")
    await asyncio.sleep(2.0)
    assert ["orders" in _topics(each) for each in server.told()] == [False, True]
    versions = [loads(each.body)["topicConfigSerializeWrapper"]["dataVersion"] for each in server.told()]
    assert versions[0] != versions[1]
    await asyncio.sleep(60.0)
    assert len(server.told()) == 4
    await broker.broker.stop()
    (gone,) = server.told(RequestCode.UNREGISTER_BROKER)
    assert gone.fields == {name: expected[name] for name in ("clusterName", "brokerName", "brokerId", "brokerAddr")}
    await server.stop()


@in_virtual_time
async def test_one_that_is_away_delays_no_other_and_is_told_when_it_is_back() -> None:
    broker = Running(name_server=f"{FIRST};{SECOND}")
    second = await NameServer(broker.network, SECOND).start()
    await broker.start()
    await asyncio.sleep(1.0)
    assert len(second.told()) == 1
    assert any(isinstance(event, LoopFailed) and FIRST in event.loop for event in broker.events)
    first = await NameServer(broker.network, FIRST).start()
    await asyncio.sleep(6.0)
    assert len(first.told()) == 1
    await second.stop()  # it forgets the broker, and comes back
    await second.start()
    await asyncio.sleep(7.0)
    assert (len(first.told()), len(second.told())) == (1, 2)
    first.answers.clear()  # it answers nothing any more
    before = broker.loop.time()
    await broker.broker.stop()
    assert broker.loop.time() - before < 3.0
    assert len(second.told(RequestCode.UNREGISTER_BROKER)) == 1
    for server in (first, second):
        await server.stop()


@in_virtual_time
async def test_it_takes_no_other_brokers_place() -> None:
    broker = Running(name_server=FIRST)
    other = BrokerData("DefaultCluster", "broker-a", {0: "127.0.0.1:10911"})
    server = await NameServer(broker.network, FIRST, (other,)).start()
    await broker.start()
    await asyncio.sleep(60.0)
    assert not server.told()
    (problem,) = {event.error for event in broker.events if isinstance(event, LoopFailed)}
    assert "knows a broker broker-a at 127.0.0.1:10911: stop that one, or choose another name" in problem
    server.known = (BrokerData("DefaultCluster", "broker-a", {0: broker.address}),)  # ours, from before a crash
    await asyncio.sleep(6.0)
    assert len(server.told()) == 1
    await broker.broker.stop()
    await server.stop()


@in_virtual_time
async def test_an_address_of_this_machine_alone_is_not_told_elsewhere() -> None:
    with pytest.raises(ConfigError, match=r"clients of 192\.0\.2\.1 would look for this broker at 127\.0\.0\.1:9876"):
        await Running(name_server=f"{FIRST};192.0.2.1:9876").start()
    with pytest.raises(ConfigError, match="name server: "):
        await Running(name_server="nowhere").start()


@in_virtual_time
async def test_a_slave_registers_with_its_number_and_learns_where_its_master_is() -> None:
    broker = Running(role="slave", id=2, name_server=FIRST)
    master = BrokerData("DefaultCluster", "broker-a", {0: "127.0.0.1:9003"})
    server = await NameServer(broker.network, FIRST, (master,)).start()
    answer = {"haServerAddr": "127.0.0.1:9004", "masterAddr": "127.0.0.1:9003"}
    server.answers[RequestCode.REGISTER_BROKER] = lambda asked: Command.response(asked, 0, fields=answer)
    asked = await ScriptedServer(broker.network, "127.0.0.1:9003").start()
    await broker.start()
    await asyncio.sleep(20.0)
    assert (server.told()[0].fields or {})["brokerId"] == "2"
    assert RequestCode.GET_BROKER_HA_STATUS in [command.code for command in asked.asked]
    await broker.broker.stop()
    (gone,) = server.told(RequestCode.UNREGISTER_BROKER)
    assert (gone.fields or {})["brokerId"] == "2"
    for each in (server, asked):
        await each.stop()
