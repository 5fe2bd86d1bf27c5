"""A port that serves with TLS and without it: the first byte of a connection tells which it is."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocketapp.config.broker import BrokerConfig
from rocketapp.config.client import ClientConfig
from rocketapp.errors import ConfigError, ConnectError, ConnectionLostError
from rocketapp.transport.connection import Connection, Listener
from rocketapp.transport.tcp import dial_tcp, listen_tcp
from rocketapp.transport.tls import Tls, make_tls
from rocketapp.transport.tls_server import server_tls_of
from rocketapp.wire.command import Command
from rocketapp.wire.frame import encode
from tests.unit.certificates import Authority, Issued
from tests.unit.scripted import FakeStream, in_virtual_time, outcome


class Papers:
    """What the server shows, and what clients trust."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        self.shown: Issued = authority.issue("server", names="IP:127.0.0.1")
        self.other: Issued = authority.issue("other", names="IP:127.0.0.1")
        self.trust: Tls = make_tls(ClientConfig(ca_file=str(authority.cert)))

    def config(self, mode: str = "permissive") -> BrokerConfig:
        return BrokerConfig(tls=mode, cert_file=str(self.shown.cert), key_file=str(self.shown.key))


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@asynccontextmanager
async def serving(config: BrokerConfig, lost: list[str]) -> AsyncIterator[str]:
    """The address of a server that answers each request with its body."""
    listener = Listener(
        serve=lambda _, command: Command.response(command, 0, body=command.body),
        max_frame_bytes=1 << 25,
        on_lost=lambda _, reason: lost.append(reason),
    )
    listening = await listen_tcp("127.0.0.1", 0, listener.accept, server_tls_of(config))
    try:
        yield listening.address
    finally:
        await listening.close()
        await listener.close()


async def ask(address: str, tls: Tls | None, *sizes: int) -> list[int]:
    """The sizes of the answers to requests of these sizes, asked at once on one connection."""
    connection = Connection(serve=None, max_frame_bytes=1 << 25)
    try:
        connection.attach(await dial_tcp(address, connection, 3.0, tls))
        asked = [connection.start_request(Command(105, {}, bytes(size)), timeout=20.0) for size in sizes]
        return [len((await answer).body) for answer in asked]
    finally:
        await connection.close()


async def test_one_port_serves_with_tls_and_without_it(papers: Papers) -> None:
    lost: list[str] = []
    async with serving(papers.config(), lost) as address:
        sizes = (0, 10, 300_000, 20_000_000, 1)
        assert await ask(address, papers.trust, *sizes) == list(sizes)
        assert await ask(address, None, *sizes) == list(sizes)


@pytest.mark.parametrize(("count", "turns"), [(500, []), (1_200, [500, 1_000])])
@pytest.mark.parametrize("is_end_later", [False, True])
@in_virtual_time
async def test_what_arrives_with_the_end_of_tls_is_served_before_the_connection_ends(
    papers: Papers, count: int, turns: list[int], is_end_later: bool
) -> None:
    stream, served, tls, seen = FakeStream(), list[Command](), server_tls_of(papers.config()), list[int]()
    assert tls is not None
    listener = Listener(serve=lambda _, command: served.append(command), max_frame_bytes=1 << 25)
    server = tls.around(listener.accept)(stream)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    coded = papers.trust.context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    for _ in range(2):
        with contextlib.suppress(ssl.SSLWantReadError):
            coded.do_handshake()
        server.received(outgoing.read())
        incoming.write(b"".join(stream.written))
        stream.written.clear()
    coded.write(encode(Command(105, flag=2)) * count)
    arriving = outgoing.read() if is_end_later else b""
    with contextlib.suppress(ssl.SSLWantReadError):
        coded.unwrap()
    server.received(arriving or outgoing.read())
    while len(served) < count:
        seen.append(len(served))
        assert (stream.reading, stream.ended) == (False, "")
        await asyncio.sleep(0)
    if is_end_later:
        assert (stream.reading, stream.ended) == (True, "")
        server.received(outgoing.read())
    assert (seen, stream.ended) == (turns, "closed")


async def test_older_and_newer_tls_is_spoken_and_what_is_too_old_is_not(papers: Papers) -> None:
    async with serving(papers.config(), []) as address:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            tls = make_tls(ClientConfig(tls_verify=False))
            tls.context.minimum_version = tls.context.maximum_version = version
            assert await ask(address, tls, 1000) == [1000]


async def test_where_tls_is_wanted_what_comes_without_it_is_ended(papers: Papers) -> None:
    lost: list[str] = []
    async with serving(papers.config("enforcing"), lost) as address:
        assert await ask(address, papers.trust, 5) == [5]
        assert isinstance(await outcome(ask(address, None, 5)), ConnectionLostError)
    assert "it speaks without TLS" in lost


@pytest.mark.parametrize("sent", [b"\x16", b"\x16\x03\x01\x00\x05hello", b"\x16\x03\x01\x40\x00" + b"\x00" * 70_000])
async def test_what_only_looks_like_tls_ends_its_connection_and_no_other(papers: Papers, sent: bytes) -> None:
    lost: list[str] = []
    async with serving(papers.config(), lost) as address:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert await ask(address, papers.trust, 5) == [5]


async def test_a_client_that_does_not_trust_the_server_disturbs_no_other(papers: Papers) -> None:
    async with serving(papers.config(), []) as address:
        assert isinstance(await outcome(ask(address, make_tls(ClientConfig()), 5)), ConnectError)
        assert await ask(address, papers.trust, 5) == [5]


def test_files_that_cannot_be_used_are_named_with_their_option(papers: Papers) -> None:
    assert server_tls_of(BrokerConfig()) is None
    assert server_tls_of(papers.config("disabled")) is None
    cases = [
        (BrokerConfig(tls="enforcing"), "broker.cert_file"),
        (BrokerConfig(key_file="key.pem"), "broker.cert_file"),
        (BrokerConfig(cert_file="/nowhere/cert.pem"), "broker.cert_file"),
        (BrokerConfig(cert_file=str(papers.shown.cert), key_file=str(papers.other.key)), "broker.key_file"),
    ]
    for config, option in cases:
        with pytest.raises(ConfigError) as refused:
            server_tls_of(config)
        assert refused.value.place == option
