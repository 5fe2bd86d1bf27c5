"""A server knows its connections, and ends them when it stops."""

from __future__ import annotations

import pytest

from rocketapp.transport import connection as module
from rocketapp.transport.connection import Connection, Listener
from rocketapp.wire.command import Command
from rocketapp.wire.frame import encode
from tests.unit.scripted import FakeStream, in_virtual_time, ok


@in_virtual_time
async def test_accepted_connections_are_served_known_and_closed() -> None:
    lost: list[tuple[Connection, str]] = []
    listener = Listener(
        serve=lambda _, command: ok(command),
        max_frame_bytes=1 << 20,
        on_lost=lambda connection, reason: lost.append((connection, reason)),
    )
    first_stream, second_stream = FakeStream(), FakeStream()
    first, second = listener.accept(first_stream), listener.accept(second_stream)
    first.received(encode(Command(34)))
    assert len(first_stream.written) == 1
    first.lost("reset")
    assert list(listener.connections) == [second]
    await listener.close()
    assert lost == [(first, "reset"), (second, "the server stops")]
    assert second_stream.ended
    assert not listener.connections


@in_virtual_time
async def test_of_peers_that_together_leave_too_much_unread_the_worst_are_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "KEPT_SUM_BYTES", 1000)
    lost: list[Connection] = []
    listener = Listener(
        serve=lambda _, command: ok(command), max_frame_bytes=1 << 20, on_lost=lambda one, _: lost.append(one)
    )
    streams = [FakeStream() for _ in range(4)]
    connections = [listener.accept(stream) for stream in streams]
    for stream, connection, unsent in zip(streams, connections, (300, 500, 150, 50), strict=True):
        connection.pause()
        stream.unsent = unsent
        connection.reply(Command(0, flag=1))
    assert not lost
    streams[2].unsent = 151
    connections[2].reply(Command(0, flag=1))
    assert lost == [connections[1]]
    assert streams[1].ended == "aborted"
    assert "500 bytes unread" in connections[1].closed_reason


@in_virtual_time
async def test_what_was_read_meanwhile_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_SUM_BYTES", 1000)
    listener = Listener(serve=lambda _, command: ok(command), max_frame_bytes=1 << 20)
    streams = [FakeStream(), FakeStream()]
    connections = [listener.accept(stream) for stream in streams]
    for stream, connection in zip(streams, connections, strict=True):
        connection.pause()
        stream.unsent = 900
        connection.reply(Command(0, flag=1))
        stream.unsent = 0
        connection.resume()
    assert list(listener.connections) == connections


@in_virtual_time
async def test_peers_that_send_long_frames_slowly_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_SUM_BYTES", 400_000)
    listener = Listener(serve=lambda _, command: ok(command), max_frame_bytes=1 << 24)
    connections = [listener.accept(FakeStream()) for _ in range(4)]
    for connection in connections:
        connection.received((1 << 23).to_bytes(4, "big") + bytes(150_000))
    assert len(listener.connections) == 2
    assert sum(connection.kept for connection in connections) <= 400_000


@in_virtual_time
async def test_a_long_frame_that_arrives_is_served_and_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_SUM_BYTES", 400_000)
    listener = Listener(serve=lambda _, command: ok(command), max_frame_bytes=1 << 24)
    frame = encode(Command(310, {}, bytes(300_000)))
    for _ in range(5):
        stream = FakeStream()
        connection = listener.accept(stream)
        connection.received(frame[:200_000])
        connection.received(frame[200_000:])
        assert len(stream.written) == 1
        assert not connection.is_closed


@in_virtual_time
async def test_connections_above_the_most_are_closed_at_once() -> None:
    listener = Listener(serve=lambda _, command: ok(command), max_frame_bytes=1 << 20, most_connections=2)
    streams = [FakeStream() for _ in range(4)]
    connections = [listener.accept(stream) for stream in streams]
    assert list(listener.connections) == connections[:2]
    assert [stream.ended for stream in streams[2:]] == ["aborted", "aborted"]
    connections[0].lost("reset")
    assert not listener.accept(FakeStream()).is_closed
