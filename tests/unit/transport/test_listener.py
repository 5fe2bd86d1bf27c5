"""A server knows its connections, and ends them when it stops."""

from __future__ import annotations

from rocketapp.transport.connection import Connection
from rocketapp.transport.listener import Listener
from rocketapp.wire.command import Command, encode
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
