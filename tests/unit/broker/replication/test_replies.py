"""A synchronous master answers when a slave has the message, and says so when none has it in time."""

from __future__ import annotations

import asyncio
import contextlib
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
from rocketapp.transport.stream import split_address
from rocketapp.transport.tcp import dial_tcp
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.replication import HEAD_BYTES, encode_report, read_head
from rocketapp.wire.requests.admin import TopicConfig, UpdateTopicRequest
from rocketapp.wire.requests.send import SendRequest
from rocketapp.wire.requests.send_back import SendBackRequest
from tests.peers.clusters import free_port


class Master:
    """A synchronous master, and a producer of it."""

    def __init__(self, broker: EmbeddedBroker, producer: Connection) -> None:
        self.broker, self.producer = broker, producer

    def send(self, body: bytes) -> asyncio.Future[Command]:
        fields = SendRequest("makers", "orders", queue_id=0).to_fields()
        return self.producer.start_request(Command(RequestCode.SEND_MESSAGE_V2, fields, body), timeout=10.0)

    def ask(self, code: int, fields: dict[str, str]) -> asyncio.Future[Command]:
        return self.producer.start_request(Command(code, fields), timeout=10.0)

    async def slave(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = split_address(self.broker.address)
        reader, writer = await asyncio.open_connection(host, port + 1)
        writer.write(encode_report(0))
        return reader, writer


@contextlib.asynccontextmanager
async def running(directory: Path, slave_timeout: float = 10.0) -> AsyncIterator[Master]:
    port = free_port(around=(-2, 0, 1))
    options = {"listen": f"127.0.0.1:{port}", "ha_port": port + 1, "slave_timeout": slave_timeout}
    config = BrokerConfig(dir=str(directory), role="sync_master", segment_bytes=1 << 20, **options)
    broker = EmbeddedBroker(config=config, clock=SystemClock(), random=Random(1), observe=unobserved)
    producer = Connection(serve=None, max_frame_bytes=1 << 24)
    producer.attach(await dial_tcp(await broker.start(), producer, 3.0))
    try:
        yield Master(broker, producer)
    finally:
        await producer.close()
        await broker.stop()


async def take(reader: asyncio.StreamReader) -> int:
    """Take a block; return where it ends."""
    position, size = read_head(await reader.readexactly(HEAD_BYTES))
    await reader.readexactly(size)
    return position + size


async def test_a_send_is_answered_when_a_slave_has_it(tmp_path: Path) -> None:
    async with running(tmp_path) as master:
        alone = await master.send(b"alone")
        assert (alone.code, alone.remark) == (ResponseCode.SLAVE_NOT_AVAILABLE, "SLAVE_NOT_AVAILABLE")
        assert (alone.fields or {})["queueOffset"] == "0"  # it is stored, and says where
        reader, writer = await master.slave()
        end = await take(reader)
        writer.write(encode_report(end))
        sent = [master.send(b"%d" % number) for number in range(20)]
        while not all(each.done() for each in sent):
            new = await take(reader)
            assert not any(each.done() for each in sent[-1:])
            writer.write(encode_report(new))
            done, _ = await asyncio.wait(sent, timeout=0.05)
            assert all(each.result().code == ResponseCode.SUCCESS for each in done)
        writer.close()
        await writer.wait_closed()


async def test_sends_of_one_read_are_answered_when_a_slave_has_the_last_of_them(tmp_path: Path) -> None:
    async with running(tmp_path) as master:
        await master.send(b"1")
        reader, writer = await master.slave()
        size = await take(reader)
        writer.write(encode_report(size))
        sent = [master.send(b"2"), master.send(b"3")]
        while await take(reader) < 3 * size:
            pass
        writer.write(encode_report(2 * size))
        await asyncio.wait(sent, timeout=0.1)
        assert not sent[1].done()
        writer.write(encode_report(3 * size))
        assert [(await each).code for each in sent] == [ResponseCode.SUCCESS] * 2
        writer.close()
        await writer.wait_closed()


async def test_whatever_was_stored_waits_for_a_slave_and_what_only_changed_a_table_does_not(tmp_path: Path) -> None:
    async with running(tmp_path) as master:
        await master.send(b"alone")
        back = SendBackRequest(0, "billing", 3).to_fields()
        answer = await master.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        reader, writer = await master.slave()
        await take(reader)
        waits = master.send(b"nobody has it")
        topic = UpdateTopicRequest(TopicConfig("stock", 4, 4)).to_fields()
        assert (await master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)).code == ResponseCode.SUCCESS
        assert not waits.done()
        waits.cancel()
        writer.close()
        await writer.wait_closed()


async def test_a_slave_that_is_late_costs_no_more_than_the_option_says(tmp_path: Path) -> None:
    async with running(tmp_path, slave_timeout=0.2) as master:
        reader, writer = await master.slave()
        began = asyncio.get_running_loop().time()
        late = await asyncio.gather(*(master.send(b"%d" % number) for number in range(20)))
        assert {each.code for each in late} == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
        assert sorted(int((each.fields or {})["queueOffset"]) for each in late) == list(range(20))
        assert asyncio.get_running_loop().time() - began >= 0.2
        end = await take(reader)
        again = master.send(b"again")
        while not again.done():
            end = await take(reader)
            writer.write(encode_report(end))
            await asyncio.wait([again], timeout=0.05)
        assert again.result().code == ResponseCode.SUCCESS
        writer.close()
        await writer.wait_closed()


async def test_a_synchronous_master_needs_the_port_of_its_slaves(tmp_path: Path) -> None:
    config = BrokerConfig(dir=str(tmp_path), listen="127.0.0.1:0", role="sync_master")
    broker = EmbeddedBroker(config=config, clock=SystemClock(), random=Random(1), observe=unobserved)
    with pytest.raises(ConfigError, match=r"a sync_master waits for a slave: set broker\.ha_port"):
        await broker.start()
