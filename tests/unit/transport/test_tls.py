"""TLS over real sockets: who is trusted, and one line that names file and mend for each way it fails."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocketapp.config.client import ClientConfig
from rocketapp.errors import ConfigError, ConnectError, ConnectionLostError
from rocketapp.transport.access import Access
from rocketapp.transport.connection import Connection, Listener
from rocketapp.transport.tcp import TcpStream, dial_tcp, listen_tcp
from rocketapp.transport.tls import Tls, make_tls
from rocketapp.wire.command import Command
from tests.unit.certificates import Authority, Issued
from tests.unit.scripted import ok, outcome


class Papers:
    """What the tests show to each other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.ca = str(self.authority.cert)
        self.address = self.authority.issue("address", names="IP:127.0.0.1")
        self.name = self.authority.issue("name", names="DNS:broker.example")
        self.expired = self.authority.issue("expired", names="IP:127.0.0.1", expired=True)
        self.client = self.authority.issue("client", names="DNS:client.example")


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@asynccontextmanager
async def serving(shown: Issued | None, *, wants_client_of: str = "") -> AsyncIterator[str]:
    """The address of a server that answers every request; without a certificate it speaks plain."""
    listener = Listener(serve=lambda _, command: ok(command), max_frame_bytes=1 << 20)
    if shown is None:
        listening = await listen_tcp("127.0.0.1", 0, listener.accept)
        yield listening.address
        await listening.close()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(shown.cert, shown.key)
        if wants_client_of:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(wants_client_of)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: TcpStream(listener.accept), "127.0.0.1", 0, ssl=context)
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()
    await listener.close()


async def ask(address: str, tls: Tls | None, *, size: int = 300_000) -> Command:
    """The answer to one request on a new connection."""
    connection = Connection(serve=None, max_frame_bytes=1 << 20)
    try:
        connection.attach(await dial_tcp(address, connection, 3.0, tls))
        return await connection.start_request(Command(105, {"topic": "t"}, bytes(size)), timeout=30.0)
    finally:
        await connection.close()


async def test_requests_are_answered_through_tls(papers: Papers) -> None:
    async with serving(papers.address) as address:
        answer = await ask(address, make_tls(ClientConfig(ca_file=papers.ca)))
    assert answer.is_response


async def test_an_address_that_the_certificate_does_not_name_is_reached_by_the_name_that_it_names(
    papers: Papers,
) -> None:
    async with serving(papers.name) as address:
        refused = await outcome(ask(address, make_tls(ClientConfig(ca_file=papers.ca))))
        answer = await ask(address, make_tls(ClientConfig(ca_file=papers.ca, tls_server_name="broker.example")))
    assert isinstance(refused, ConnectError)
    assert refused.problem == (
        "its certificate does not name 127.0.0.1: set client.tls_server_name to a name that it carries"
    )
    assert answer.is_response


async def test_a_client_shows_its_certificate_to_a_server_that_wants_one(papers: Papers) -> None:
    own = {"cert_file": str(papers.client.cert), "key_file": str(papers.client.key)}
    async with serving(papers.address, wants_client_of=papers.ca) as address:
        answer = await ask(address, make_tls(ClientConfig(ca_file=papers.ca, **own)))
        refused = await outcome(ask(address, make_tls(ClientConfig(ca_file=papers.ca)), size=0))
    assert answer.is_response
    assert isinstance(refused, ConnectError | ConnectionLostError)
    assert "client.cert_file" in str(refused)


async def test_an_expired_certificate_is_refused_with_its_mend(papers: Papers) -> None:
    async with serving(papers.expired) as address:
        error = await outcome(ask(address, make_tls(ClientConfig(ca_file=papers.ca))))
    assert isinstance(error, ConnectError)
    assert error.problem == "its certificate has expired: renew it there, or correct the clock here"


async def test_an_unknown_authority_is_refused_and_trusted_only_without_verification(
    papers: Papers, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    async with serving(papers.address) as address:
        error = await outcome(ask(address, make_tls(ClientConfig(ca_file=str(stranger.cert)))))
        answer = await ask(address, make_tls(ClientConfig(ca_file=str(stranger.cert), tls_verify=False)))
    assert isinstance(error, ConnectError)
    assert "set client.ca_file to the authority that issued it" in error.problem
    assert answer.is_response


async def test_a_plain_server_is_named_and_nothing_is_sent_to_it_in_plain(papers: Papers) -> None:
    async with serving(None) as address:
        error = await outcome(ask(address, make_tls(ClientConfig(ca_file=papers.ca))))
    assert isinstance(error, ConnectError)
    assert error.problem.endswith("switch TLS on there (tls.server.mode), or leave out client.tls")


async def test_a_server_that_wants_tls_and_is_spoken_to_in_plain_is_named(papers: Papers) -> None:
    async with serving(papers.address) as address:
        error = await outcome(ask(address, None))
    assert isinstance(error, ConnectionLostError)
    assert error.problem.endswith("before it answered: does it want TLS (client.tls, client.cert_file)?")


async def test_a_connection_with_tls_that_a_server_refuses_is_not_asked_whether_it_wants_tls(papers: Papers) -> None:
    told: list[str] = []
    access = Access(tls=make_tls(ClientConfig(ca_file=papers.ca)))
    connection = Connection(serve=None, max_frame_bytes=1024, access=access, on_lost=lambda _, why: told.append(why))
    connection.lost("it refuses our certificate, unknown ca: set client.cert_file")
    assert told == ["it refuses our certificate, unknown ca: set client.cert_file"]


def test_files_that_cannot_be_used_are_named_with_their_option(papers: Papers) -> None:
    no_pem = papers.folder / "no.pem"
    no_pem.write_text("not a certificate")
    missing = str(papers.folder / "missing.pem")
    cert, key, other = str(papers.client.cert), str(papers.client.key), str(papers.name.key)
    for given, place, words in (
        ({"ca_file": missing}, "client.ca_file", f"{missing} cannot be read: no such file or directory"),
        ({"ca_file": str(papers.folder)}, "client.ca_file", "is a directory"),
        ({"ca_file": str(no_pem)}, "client.ca_file", "holds no certificate in PEM"),
        ({"cert_file": missing, "key_file": key}, "client.cert_file", missing),
        ({"cert_file": cert, "key_file": missing}, "client.key_file", missing),
        ({"cert_file": cert, "key_file": other}, "client.key_file", f"{other} is not the key of the certificate"),
        ({"cert_file": cert, "key_file": str(no_pem)}, "client.cert_file", "both must be PEM"),
    ):
        with pytest.raises(ConfigError) as raised:
            make_tls(ClientConfig(**{"ca_file": papers.ca, **given}))
        assert raised.value.place == place, given
        assert words in raised.value.problem, given


def test_a_key_with_a_password_is_opened_by_it_and_no_question_is_asked_at_the_terminal(
    papers: Papers, tmp_path: Path
) -> None:
    import subprocess

    closed = tmp_path / "closed.key"
    encrypt = ["openssl", "pkcs8", "-topk8", "-in", str(papers.client.key), "-passout", "pass:opens", "-out"]
    subprocess.run([*encrypt, str(closed)], check=True, capture_output=True, timeout=60)
    own = {"ca_file": papers.ca, "cert_file": str(papers.client.cert), "key_file": str(closed)}
    assert make_tls(ClientConfig(**own, key_password="opens"))
    for wrong in ("", "other"):
        with pytest.raises(ConfigError, match=r"client\.key_password must open the key"):
            make_tls(ClientConfig(**own, key_password=wrong))
