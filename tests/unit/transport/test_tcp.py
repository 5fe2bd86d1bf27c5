"""The same streams over real sockets."""

from __future__ import annotations

import asyncio
import socket
from random import Random

import pytest

from rocketapp.errors import ConnectError
from rocketapp.transport.connection import Connection, Listener
from rocketapp.transport.pool import Pool
from rocketapp.transport.stream import Stream
from rocketapp.transport.tcp import READ_BYTES, TcpListening, dial_tcp, listen_tcp
from rocketapp.wire.command import Command
from tests.unit.scripted import eventually, ok, outcome


class Recorder:
    """A receiver that remembers."""

    def __init__(self) -> None:
        self.stream: Stream
        self.data = b""
        self.reason = ""
        self.paused = False
        self.pauses = 0
        self.largest = 0
        """Bytes of the largest piece that has arrived."""

    def accept(self, stream: Stream) -> Recorder:
        self.stream = stream
        return self

    def received(self, data: bytes) -> None:
        self.data += data
        self.largest = max(self.largest, len(data))

    def lost(self, reason: str) -> None:
        self.reason = reason

    def pause(self) -> None:
        self.paused = True
        self.pauses += 1

    def resume(self) -> None:
        self.paused = False


async def pair() -> tuple[TcpListening, Recorder, Recorder]:
    near, far = Recorder(), Recorder()
    listening = await listen_tcp("127.0.0.1", 0, far.accept)
    near.stream = await dial_tcp(listening.address, near, 3.0)
    await eventually(lambda: hasattr(far, "stream"))
    return listening, near, far


async def test_bytes_arrive_and_the_end_is_told_to_both() -> None:
    listening, near, far = await pair()
    assert near.stream.peer == listening.address == far.stream.local
    assert near.stream.local == far.stream.peer
    near.stream.write(b"hello")
    near.stream.close()
    near.stream.write(b"too late")
    await eventually(lambda: bool(far.reason and near.reason))
    assert (far.data, far.reason, near.reason) == (b"hello", "closed by the peer", "closed here")
    await listening.close()


async def test_a_slow_reader_pauses_the_writer_and_loses_nothing() -> None:
    listening, near, far = await pair()
    far.stream.pause_reading()
    sent = bytes(range(256)) * 4096 * 16
    near.stream.write(sent)
    assert near.paused
    assert near.stream.unsent > 0
    far.stream.resume_reading()
    await eventually(lambda: len(far.data) == len(sent))
    assert far.data == sent
    assert (near.paused, near.pauses, near.stream.unsent) == (False, 1, 0)
    near.stream.close()
    await eventually(lambda: bool(far.reason and near.reason))
    await listening.close()


async def test_the_log_says_nothing_of_what_is_written_to_a_peer_that_has_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listening, near, far = await pair()
    far.stream.pause_reading()  # so that it hears of the end by its writes
    near.stream.pause_reading()
    far.stream.write(b"unread, so that the end is a reset")
    await eventually(lambda: not far.stream.unsent)
    near.stream.abort()
    await eventually(lambda: near.reason)
    for _ in range(20):
        far.stream.write(b"answer")
    await eventually(lambda: far.reason)
    assert caplog.messages == []
    await listening.close()


async def test_an_address_without_a_listener_is_a_connect_error_with_address_and_reason() -> None:
    listening = await listen_tcp("127.0.0.1", 0, Recorder().accept)
    await listening.close()
    error = await outcome(dial_tcp(listening.address, Recorder(), 3.0))
    assert isinstance(error, ConnectError)
    assert error.address == listening.address
    assert "refused" in error.problem.lower()


async def test_a_dial_that_hangs_ends_with_its_timeout() -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        for queued in (first, second):  # They fill the queue of a listener that accepts no connection.
            queued.setblocking(False)
            queued.connect_ex(address)
        error = await outcome(dial_tcp(f"127.0.0.1:{address[1]}", Recorder(), 0.05))
        assert isinstance(error, ConnectError)
        assert error.problem == "no connection within 0.05 s"


@pytest.mark.parametrize(
    "address", ["nowhere", "host:", ":1", "host:99999", "host:http", "[::1", "::1]:1", "[]:1", "[a[b]:1"]
)
async def test_what_is_no_address_is_named(address: str) -> None:
    error = await outcome(dial_tcp(address, Recorder(), 3.0))
    assert isinstance(error, ConnectError)
    assert error.problem == f"{address!r} is not host:port or [ipv6]:port"


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "a\0b"])
async def test_what_is_no_host_name_is_a_connect_error(host: str) -> None:
    error = await outcome(dial_tcp(f"{host}:80", Recorder(), 3.0))
    assert isinstance(error, ConnectError)
    assert error.problem.startswith(f"{host!r} cannot be the name of a host: ")


async def test_a_taken_port_is_an_os_error() -> None:
    listening = await listen_tcp("127.0.0.1", 0, Recorder().accept)
    with pytest.raises(OSError, match="in use"):
        await listen_tcp("127.0.0.1", int(listening.address.rpartition(":")[2]), Recorder().accept)
    await listening.close()


async def test_connections_talk_over_sockets_and_a_dying_server_fails_waiting_calls() -> None:
    held: list[Command] = []

    def serve(connection: Connection, command: Command) -> Command | None:
        return ok(command) if command.code == 34 else held.append(command)

    listener = Listener(serve=serve, max_frame_bytes=1 << 20)
    listening = await listen_tcp("127.0.0.1", 0, listener.accept)
    connection = Connection(serve=None, max_frame_bytes=1 << 20)
    connection.attach(await dial_tcp(listening.address, connection, 3.0))
    answers = await asyncio.gather(*(connection.start_request(Command(34), timeout=30.0) for _ in range(200)))
    assert {answer.code for answer in answers} == {0}
    call = connection.start_request(Command(11), timeout=30.0)
    await eventually(lambda: bool(held))
    await listening.close()
    await listener.close()
    assert "closed by the peer" in str(await outcome(call))
    assert not listener.connections


async def test_no_read_allocates_a_buffer_that_the_c_library_would_map_and_unmap() -> None:
    listening, near, far = await pair()
    near.stream.write(bytes(8 * READ_BYTES))
    await eventually(lambda: len(far.data) == 8 * READ_BYTES)
    assert far.largest <= READ_BYTES
    near.stream.abort()
    await eventually(lambda: bool(far.reason and near.reason))
    await listening.close()


async def test_a_name_is_looked_up_anew_at_each_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = Recorder(), Recorder()
    first = await listen_tcp("127.0.0.1", 0, before.accept)
    port = int(first.address.rpartition(":")[2])
    second = await listen_tcp("127.0.0.2", port, after.accept)
    addresses = iter(["127.0.0.1", "127.0.0.2"])
    asked: list[str] = []

    async def resolve(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(addresses), port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    address = f"broker.example:{port}"
    pool = Pool(dial=dial_tcp, dial_timeout=30.0, max_frame_bytes=1 << 20, random=Random(0))
    assert (await pool.get(address)).peer == first.address
    await eventually(lambda: hasattr(before, "stream"))
    before.stream.close()
    await eventually(lambda: pool.peek(address) is None)
    assert (await pool.get(address)).peer == second.address
    assert asked == ["broker.example", "broker.example"]
    await pool.close()
    await first.close()
    await second.close()
