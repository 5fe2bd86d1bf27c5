"""Name server and broker as one: starting, stopping, and what is refused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketapp.broker.store.files import MemoryFiles
from rocketapp.clock import SystemClock
from rocketapp.config.broker import BrokerConfig
from rocketapp.embedded import embedded
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.errors import ConfigError
from rocketapp.model.event import Event
from rocketapp.transport.connection import Connection
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.transport.tcp import dial_tcp
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.message_id import parse_offset_id
from rocketapp.wire.requests.offsets import OffsetResponse
from rocketapp.wire.requests.routes import decode_route
from rocketapp.wire.requests.send import SendRequest
from tests.cases import cases
from tests.peers.clusters import free_port
from tests.unit.broker.asking import Running, running
from tests.unit.scripted import in_virtual_time


def new(
    tmp_path: Path | None = None, *, options: Mapping[str, Any] = MappingProxyType({}), **more: Any
) -> EmbeddedBroker:
    config = BrokerConfig(dir=str(tmp_path or "unused"), listen="127.0.0.1:0", segment_bytes=1 << 20, **options)
    events: list[Event] = []
    return EmbeddedBroker(config=config, clock=SystemClock(), random=Random(1), observe=events.append, **more)


async def ask(address: str, command: Command) -> Command:
    connection = Connection(serve=None, max_frame_bytes=1 << 24)
    connection.attach(await dial_tcp(address, connection, 3.0))
    try:
        return await connection.start_request(command, timeout=5.0)
    finally:
        await connection.close()


async def test_a_master_that_has_stopped_serves_on_none_of_its_ports(tmp_path: Path) -> None:
    port = free_port(around=(-2, 0, 1))
    broker = new(tmp_path, options={"ha_port": port + 1})
    await broker.start(("127.0.0.1", port))
    for each in (port - 2, port, port + 1):
        socket.create_connection(("127.0.0.1", each)).close()
    await broker.stop()
    for each in (port - 2, port, port + 1):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", each))


async def test_one_port_is_name_server_and_broker(tmp_path: Path) -> None:
    broker = new(tmp_path)
    address = await broker.start()
    try:
        assert not address.endswith(":0")
        send = SendRequest("makers", "orders")
        answer = await ask(address, Command(RequestCode.SEND_MESSAGE_V2, send.to_fields(), b"hello"))
        assert answer.code == ResponseCode.SUCCESS
        route = decode_route(
            (await ask(address, Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}))).body
        )
        assert route.brokers[0].master == address
    finally:
        await broker.stop()
    assert not (tmp_path / "abort").exists()
    assert (tmp_path / "config" / "topics.json").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1"])
async def test_what_other_machines_reach_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match=r"set broker\.authentication, or listen on 127\.0\.0\.1"):
        await new(tmp_path).start((host, 0))


async def test_with_access_keys_it_serves_what_other_machines_reach(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"authentication": True, "admin_user": '{"username":"admin","password":"12345678"}'}
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0 is no address that clients can reach"):
        await new(tmp_path, options=keys).start(("0.0.0.0", 0))
    broker = new(tmp_path, options={**keys, "host": "127.0.0.1"})
    address = await broker.start(("0.0.0.0", 0))
    try:
        assert address.startswith("127.0.0.1:")
        refused = await ask(address, Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, "username cannot be null.")
    finally:
        await broker.stop()


def test_in_memory_it_loses_the_oldest_messages_before_it_takes_more_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "MOST_MEMORY_BYTES", 8 << 20)

    @in_virtual_time
    async def story() -> None:
        broker = Running()
        broker.broker = EmbeddedBroker(
            config=broker.config, clock=broker.clock, random=Random(1), observe=broker.events.append, memory=True
        )
        await broker.start()
        try:
            client = await broker.client()
            for _ in range(60):
                assert (await client.send("orders", bytes(400_000))).code == ResponseCode.SUCCESS
                await asyncio.sleep(1)
            place = {"topic": "orders", "queueId": "0"}
            first = OffsetResponse.from_fields((await client.ask(RequestCode.GET_MIN_OFFSET, place)).fields).offset
            assert 60 - 20 <= first < 60
        finally:
            await broker.broker.stop()

    story()


async def test_a_taken_address_says_what_to_do_and_leaves_the_directory_free(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = new(tmp_path)
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port} \(Address already in use\).*port 0"):
            await broker.start(("127.0.0.1", port))
    again = new(tmp_path)
    await again.start()
    await again.stop()


async def test_a_directory_belongs_to_one_broker(tmp_path: Path) -> None:
    broker = new(tmp_path)
    await broker.start()
    try:
        with pytest.raises(ConfigError, match="in use by another broker"):
            await new(tmp_path).start()
    finally:
        await broker.stop()


async def test_a_directory_of_a_newer_version_is_refused_and_not_changed(tmp_path: Path) -> None:
    for _ in range(2):  # a directory without a format is of the first one
        broker = new(tmp_path)
        await broker.start()
        await broker.stop()
    for written in ("2", "2\n"):  # an editor ends each line
        (tmp_path / "rocketapp.format").write_text(written)
        with pytest.raises(ConfigError, match=r"newer version wrote this directory \(format 2, this version knows 1\)"):
            await new(tmp_path).start()
    assert not (tmp_path / "abort").exists()


async def test_what_is_not_an_address_is_a_matter_of_configuration() -> None:
    broker = EmbeddedBroker(
        config=BrokerConfig(listen="nowhere"), clock=SystemClock(), random=Random(1), observe=print, memory=True
    )
    with pytest.raises(ConfigError, match="nowhere"):
        await broker.start()


@in_virtual_time
async def test_in_memory_nothing_is_left_on_disk_and_a_second_start_is_refused() -> None:
    broker = new(memory=True)
    network = MemoryNetwork()
    address = await broker.start(network)
    with pytest.raises(RuntimeError, match="started already"):
        await broker.start(network)
    await broker.stop()
    await broker.stop()
    assert address.startswith("127.0.0.1:")
    assert not Path("unused").exists()  # noqa: ASYNC240 - a test may look


@in_virtual_time
async def test_stopping_ends_connections_and_held_pulls_and_keeps_what_was_stored() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders", b"kept")
        held = client.pull("orders", 1)
        await asyncio.sleep(1)
        await broker.restart()
        assert client.connection.is_closed
        assert held.exception() is not None
        assert isinstance(broker.files, MemoryFiles)
        client = await broker.client()
        assert [message.body for message in await client.messages("orders")] == [b"kept"]


@in_virtual_time
async def test_a_killed_broker_has_everything_that_it_said_is_stored() -> None:
    async with running() as broker:
        client = await broker.client()
        for number in range(50):
            await client.send("orders", b"%d" % number)
        await client.send("orders", b"late", "DELAY\x013\x02")
        await broker.restart(killed=True)
        client = await broker.client()
        bodies = [message.body for offset in (0, 32) for message in await client.messages("orders", offset)]
        assert bodies == [b"%d" % number for number in range(50)]
        await asyncio.sleep(10.1)
        assert [message.body for message in await client.messages("orders", 50)] == [b"late"]


@cases("code", [0, 25, 103, 318, 323, 329, 513, 3001, 9999, 200056, -1])
def test_what_is_not_offered_is_refused_by_name(code: int) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            answer = await client.ask(code)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert answer.remark == f" request type {code} not supported"

    story()


NAMES = [
    "topic",
    "msgId",
    "queueId",
    "consumerGroup",
    "queueOffset",
    "offset",
    "group",
    "a",
    "b",
    "e",
    "i",
    "perm",
    "timestamp",
]
VALUES = st.sampled_from(
    ["", "-1", "0", "1", "9" * 30, "orders", "TBW102", "\x00", "../x", "true", "\ud800", "%RETRY%"]
)
CODES = [10, 11, 14, 15, 17, 21, 28, 29, 30, 31, 32, 33, 34, 35, 36, 38, 41, 42, 43, 46, 105, 106, 200, 201, 202, 203,
         204, 206, 207, 208, 215, 216, 224, 300, 304, 305, 307, 309, 310, 320, 343, 351, 352, 361]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(CODES),
            st.none() | st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8),
            st.binary(max_size=40) | st.sampled_from([b"{}", b"[]", b"null", b'{"mqSet":[{}]}', b'{"mqSet":3}']),
        ),
        max_size=30,
    )
)
def test_nothing_that_anybody_asks_ends_the_server(requests: list[tuple[int, dict[str, str] | None, bytes]]) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            hostile, client = await broker.client("hostile"), await broker.client()
            for code, fields, body in requests:
                answer = await hostile.ask(code, fields, body)
                assert answer.is_response
                if code in (10, 310, 320):
                    assert answer.fields is not None
                    assert "MSG_REGION" in answer.fields
            assert (await client.send("fine")).code == ResponseCode.SUCCESS
            assert not [path for path in broker.files.paths() if ".." in path]

    story()


async def test_messages_name_a_host_that_can_be_reached(tmp_path: Path) -> None:
    broker = new(tmp_path)
    address = await broker.start(("127.0.0.1", 0))
    port = int(address.rpartition(":")[2])
    try:
        send = SendRequest("makers", "orders")
        command = Command(RequestCode.SEND_MESSAGE_V2, send.to_fields(), b"hello")
        answer = await ask(f"127.0.0.1:{port}", command)
        assert answer.fields is not None
        assert parse_offset_id(answer.fields["msgId"]) == (b"\x7f\x00\x00\x01", port, 0)
    finally:
        await broker.stop()
