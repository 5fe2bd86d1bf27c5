"""What a slave asks of an embedded master, and when it is answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from rocketapp.clock import SystemClock
from rocketapp.config.broker import BrokerConfig
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.errors import ConfigError
from rocketapp.model.event import unobserved
from rocketapp.transport.connection import Connection
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.transport.stream import split_address
from rocketapp.transport.tcp import dial_tcp
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.replication import HEAD_BYTES, encode_report, read_head
from rocketapp.wire.requests.offsets import CommitRequest
from rocketapp.wire.requests.replication import decode_timer_checkpoint
from rocketapp.wire.requests.send import SendRequest
from tests.peers.clusters import free_port
from tests.unit.broker.replication.test_master import Copy

SLAVE = {"clusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "1", "brokerAddr": "127.0.0.1:1"}
HELD = (RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.GET_TIMER_CHECK_POINT)


def new(directory: Path, port: int, ha_port: int) -> EmbeddedBroker:
    config = BrokerConfig(dir=str(directory), listen=f"127.0.0.1:{port}", ha_port=ha_port, segment_bytes=1 << 20)
    return EmbeddedBroker(config=config, clock=SystemClock(), random=Random(1), observe=unobserved)


@contextlib.asynccontextmanager
async def asking(address: str) -> AsyncIterator[Connection]:
    connection = Connection(serve=None, max_frame_bytes=1 << 24)
    connection.attach(await dial_tcp(address, connection, 3.0))
    try:
        yield connection
    finally:
        await connection.close()


async def ask(connection: Connection, code: int, body: bytes = b"", **fields: str) -> Command:
    return await connection.start_request(Command(code, fields, body), timeout=10.0)


def ha_address(master: EmbeddedBroker) -> str:
    host, port = split_address(master.address)
    return f"{host}:{port + 1}"


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[EmbeddedBroker]:
    port = free_port(around=(-2, 0, 1))
    broker = new(tmp_path, port, port + 1)
    await broker.start()
    yield broker
    await broker.stop()


async def test_a_slave_finds_its_master_and_asks_on_both_ports(master: EmbeddedBroker) -> None:
    host, port = split_address(master.address)
    async with asking(master.address) as connection:
        answer = await ask(connection, RequestCode.REGISTER_BROKER, **SLAVE)
        assert answer.fields == {"haServerAddr": f"{host}:{port + 1}", "masterAddr": master.address}
    async with asking(f"{host}:{port - 2}") as connection:
        topics = json.loads((await ask(connection, RequestCode.GET_ALL_TOPIC_CONFIG)).body)
        assert "TBW102" in topics["topicConfigTable"]
        metrics = json.loads((await ask(connection, RequestCode.GET_TIMER_METRICS)).body)
        assert metrics["timingCount"] == {}


async def test_an_answer_waits_until_the_slave_has_the_log_that_it_describes(master: EmbeddedBroker) -> None:
    host, port = split_address(master.address)
    async with asking(master.address) as connection:
        send = SendRequest("makers", "orders")
        assert (await ask(connection, RequestCode.SEND_MESSAGE_V2, b"one", **send.to_fields())).code == 0
        commit = CommitRequest("billing", "orders", 0, 1)
        assert (await ask(connection, RequestCode.UPDATE_CONSUMER_OFFSET, **commit.to_fields())).code == 0
        for code in HELD:  # there is no slave that could know too much
            assert (await ask(connection, code)).code == ResponseCode.SUCCESS
        reader, writer = await asyncio.open_connection(host, port + 1)
        writer.write(encode_report(0))
        position, size = read_head(await reader.readexactly(HEAD_BYTES))
        waiting = [connection.start_request(Command(code, {}), timeout=10.0) for code in HELD]
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        await reader.readexactly(size)
        writer.write(encode_report(position + size))
        offsets, delays, timers = await asyncio.gather(*waiting)
        assert json.loads(offsets.body)["offsetTable"] == {"orders@billing": {"0": 1}}
        assert set(json.loads(delays.body)["offsetTable"].values()) == {0}
        assert decode_timer_checkpoint(timers.body)[1] == 0
        assert (await ask(connection, RequestCode.SEND_MESSAGE_V2, b"two", **send.to_fields())).code == 0
        status = json.loads((await ask(connection, RequestCode.GET_BROKER_HA_STATUS)).body)
        (slave,) = status.pop("haConnectionInfo")
        assert (slave["addr"], slave["slaveAckOffset"], slave["inSync"]) == ("127.0.0.1", position + size, True)
        assert status["masterCommitLogMaxOffset"] == position + size + slave["diff"] > position + size
        assert (status["master"], status["inSyncSlaveNums"]) == (True, 1)
        late = await ask(connection, RequestCode.GET_ALL_CONSUMER_OFFSET)  # and this slave confirms no more
        assert late.code == ResponseCode.SYSTEM_BUSY
        assert (late.remark or "").startswith("the slave does not have the log up to ")
        writer.close()
        await writer.wait_closed()


async def test_a_slave_that_has_everything_is_answered_whatever_a_slave_of_another_host_lacks(
    master: EmbeddedBroker,
) -> None:
    address = ha_address(master)
    async with asking(master.address) as connection:
        send = SendRequest("makers", "orders")
        assert (await ask(connection, RequestCode.SEND_MESSAGE_V2, b"one", **send.to_fields())).code == 0
        full = await Copy(address).connect("127.0.0.2")  # it reports, and takes nothing
        full.report(0)
        good = await Copy(address).connect()
        good.report()
        waiting = [connection.start_request(Command(code, {}), timeout=10.0) for code in HELD]
        await good.take()
        good.report()
        assert [each.code for each in await asyncio.gather(*waiting)] == [ResponseCode.SUCCESS] * 3
        await full.close()
        await good.close()


async def test_a_slave_whose_copy_is_interrupted_is_told_no_progress(master: EmbeddedBroker) -> None:
    async with asking(master.address) as connection:
        assert (await ask(connection, RequestCode.REGISTER_BROKER, **SLAVE)).code == 0
        assert [(await ask(connection, code)).code for code in HELD[:2]] == [ResponseCode.SYSTEM_BUSY] * 2
        copy = await Copy(ha_address(master)).connect()
        copy.report()
        assert [(await ask(connection, code)).code for code in HELD[:2]] == [ResponseCode.SUCCESS] * 2
        await copy.close()


async def test_without_the_port_nobody_registers_or_asks(tmp_path: Path) -> None:
    broker = new(tmp_path, 0, 0)
    async with asking(await broker.start()) as connection:
        for code in (RequestCode.REGISTER_BROKER, RequestCode.QUERY_DATA_VERSION, *HELD[1:]):
            assert (await ask(connection, code, **SLAVE)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    await broker.stop()


@pytest.mark.parametrize("port", [1, 2])
async def test_a_port_without_one_two_below_it_is_refused(port: int) -> None:
    config = BrokerConfig(listen=f"127.0.0.1:{port}", ha_port=free_port())
    broker = EmbeddedBroker(config=config, clock=SystemClock(), random=Random(1), observe=unobserved, memory=True)
    with pytest.raises(ConfigError, match="choose one from 3 on") as refused:
        await broker.start(MemoryNetwork())
    assert refused.value.place == "broker.listen"


async def test_a_port_that_is_taken_is_named(master: EmbeddedBroker, tmp_path: Path) -> None:
    _, taken = split_address(master.address)
    port = free_port(around=(-2, 0))
    with pytest.raises(
        ConfigError, match=rf"cannot serve on 127\.0\.0\.1:{taken} \(.*\): slaves need it and port {port - 2};"
    ):
        await new(tmp_path / "other", port, taken).start()
    again = new(tmp_path / "other", 0, 0)  # nothing of it is left open
    await again.start()
    await again.stop()
