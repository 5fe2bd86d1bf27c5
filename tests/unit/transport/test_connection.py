"""Connections: every waiting call ends exactly once, and one bad request harms no other."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.errors import ConnectionLostError, RequestTimeoutError
from rocketapp.transport import connection as module
from rocketapp.transport.connection import Connection
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.wire.command import Command
from rocketapp.wire.frame import FrameReader, encode
from tests.random_network import RandomNetwork
from tests.unit.scripted import FakeStream, ScriptedServer, eventually, in_virtual_time, ok, outcome
from tests.virtual import run_virtual

ADDRESS = "10.0.0.1:10911"


def connection_on(stream: FakeStream, **arguments: object) -> Connection:
    defaults = {"serve": None, "max_frame_bytes": 1 << 20}
    connection = Connection(**(defaults | arguments))  # type: ignore[arg-type]
    connection.attach(stream)
    return connection


async def connected(network: MemoryNetwork, **arguments: object) -> Connection:
    connection = Connection(**({"serve": None, "max_frame_bytes": 1 << 20} | arguments))  # type: ignore[arg-type]
    connection.attach(await network.dial(ADDRESS, connection, 3.0))
    return connection


def commands_in(data: bytes) -> list[Command]:
    return FrameReader(1 << 20).feed(data)


@in_virtual_time
async def test_responses_in_any_order_find_their_requests() -> None:
    stream = FakeStream()
    connection = connection_on(stream)
    calls = [connection.start_request(Command(code), timeout=3.0) for code in (10, 11, 12)]
    assert [request.code for request in commands_in(stream.written[0])] == [10]  # alone, it waits for no other
    await asyncio.sleep(0)  # the others leave together, in the next turn
    assert len(stream.written) == 2
    requests = commands_in(b"".join(stream.written))
    for request in reversed(requests):
        connection.received(encode(Command.response(request, 0, remark=f"for {request.code}")))
    assert [(await call).remark for call in calls] == ["for 10", "for 11", "for 12"]


@in_virtual_time
async def test_a_response_with_an_error_code_is_a_response() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    server.answers[11] = lambda command: Command.response(command, 24, remark="no")
    connection = await connected(server.network)
    response = await connection.start_request(Command(11), timeout=1.0)
    assert (response.code, response.remark) == (24, "no")


@in_virtual_time
async def test_an_answer_may_have_a_header_that_no_request_may_have() -> None:
    stream = FakeStream()
    connection = connection_on(stream)
    call = connection.start_request(Command(320), timeout=3.0)
    [request] = commands_in(stream.written[0])
    connection.received(encode(Command.response(request, 0, fields={"msgId": "7F" * 200_000})))
    assert len(((await call).fields or {})["msgId"]) == 400_000


@in_virtual_time
async def test_late_and_unknown_responses_are_dropped() -> None:
    stream = FakeStream()
    connection = connection_on(stream)
    call = connection.start_request(Command(10), timeout=0.5)
    await asyncio.sleep(0)
    (request,) = commands_in(stream.written[0])
    assert isinstance(await outcome(call), RequestTimeoutError)
    connection.received(encode(Command.response(request, 0)))
    connection.received(encode(Command(0, opaque=4711, flag=1)))
    assert not connection.is_closed
    answered = connection.start_request(Command(10), timeout=0.5)
    await asyncio.sleep(0)
    (request,) = commands_in(stream.written[1])
    connection.received(encode(Command.response(request, 0)))
    connection.received(encode(Command.response(request, 1)))
    assert (await answered).code == 0


@in_virtual_time
async def test_a_cancelled_call_leaves_no_trace() -> None:
    stream = FakeStream()
    connection = connection_on(stream)
    call = connection.start_request(Command(10), timeout=3.0)
    call.cancel()
    await asyncio.sleep(0)
    connection.received(encode(Command.response(commands_in(stream.written[0])[0], 0)))
    assert "0 waiting" in repr(connection)


@in_virtual_time
async def test_each_call_times_out_at_its_own_deadline_with_one_timer() -> None:
    loop = asyncio.get_running_loop()
    stream = FakeStream()
    connection = connection_on(stream)
    timers: list[asyncio.TimerHandle] = []
    call_at = loop.call_at
    loop.call_at = lambda *given, **more: timers.append(call_at(*given, **more)) or timers[-1]  # type: ignore[func-returns-value, method-assign]
    ended: list[tuple[float, float]] = []
    for timeout in (3.0, 0.2, 30.0, 0.7):
        call = connection.start_request(Command(11), timeout=timeout)
        call.add_done_callback(lambda done, t=timeout: (ended.append((t, loop.time())), done.exception()))
    assert len([timer for timer in timers if not timer.cancelled()]) <= 1
    talk = asyncio.ensure_future(_keep_talking(connection))
    await asyncio.sleep(31)
    talk.cancel()
    assert [timeout for timeout, _ in ended] == [0.2, 0.7, 3.0, 30.0]
    assert all(at == pytest.approx(timeout, abs=0.02) for timeout, at in ended)


async def _keep_talking(connection: Connection) -> None:
    while True:
        connection.received(encode(Command(0, opaque=0, flag=1)))
        await asyncio.sleep(0.1)


@in_virtual_time
async def test_waiting_calls_fail_at_once_when_the_connection_dies() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    connection = await connected(server.network)
    call = connection.start_request(Command(11), timeout=30.0)
    await eventually(lambda: bool(server.asked))
    start = asyncio.get_running_loop().time()
    server.network.cut(ADDRESS)
    error = await outcome(call)
    assert isinstance(error, ConnectionLostError)
    assert error.address == ADDRESS
    assert asyncio.get_running_loop().time() - start < 0.001


@in_virtual_time
async def test_a_call_on_a_dead_connection_fails_and_leaves_nothing_waiting() -> None:
    connection = connection_on(FakeStream())
    connection.lost("reset")
    assert isinstance(await outcome(connection.start_request(Command(11), timeout=1.0)), ConnectionLostError)
    with pytest.raises(ConnectionLostError, match="reset"):
        connection.send_one_way(Command(15))
    connection.reply(Command(0, flag=1))


@in_virtual_time
async def test_a_timed_out_connection_whose_peer_is_silent_is_closed_as_half_open() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    server.answers[34] = ok
    connection = await connected(server.network)
    await connection.start_request(Command(34), timeout=3.0)
    server.network.hold(ADDRESS)
    pull = connection.start_request(Command(11), timeout=30.0)
    error = await outcome(connection.start_request(Command(34), timeout=3.0))
    assert isinstance(error, RequestTimeoutError)
    assert connection.is_closed
    assert "half-open" in connection.closed_reason
    assert isinstance(await outcome(pull), ConnectionLostError)
    assert asyncio.get_running_loop().time() == pytest.approx(3.0, abs=0.1)


@in_virtual_time
async def test_a_timeout_does_not_close_a_connection_whose_peer_talks() -> None:
    connection = connection_on(FakeStream())
    talk = asyncio.ensure_future(_keep_talking(connection))
    assert isinstance(await outcome(connection.start_request(Command(11), timeout=3.0)), RequestTimeoutError)
    talk.cancel()
    assert not connection.is_closed


@in_virtual_time
async def test_a_very_short_timeout_alone_is_no_reason_to_close() -> None:
    connection = connection_on(FakeStream())
    assert isinstance(await outcome(connection.start_request(Command(310), timeout=0.05)), RequestTimeoutError)
    assert not connection.is_closed


@in_virtual_time
async def test_two_minutes_without_a_word_end_a_connection() -> None:
    stream = FakeStream()
    connection = connection_on(stream)
    await asyncio.sleep(100)
    connection.send_one_way(Command(15))
    await asyncio.sleep(100)
    assert not connection.is_closed
    await asyncio.sleep(21)
    assert connection.closed_reason == "idle for 120 s"
    assert stream.ended == "aborted"


@in_virtual_time
async def test_a_peer_that_sends_half_a_frame_byte_by_byte_is_idle() -> None:
    connection = connection_on(FakeStream())
    connection.received((1000).to_bytes(4, "big"))
    for _ in range(130):
        connection.received(b"x")
        await asyncio.sleep(1)
    assert connection.closed_reason == "idle for 120 s"


@in_virtual_time
async def test_a_request_that_raises_is_answered_with_code_1_and_the_next_one_is_served() -> None:
    def serve(connection: Connection, command: Command) -> Command | None:
        if command.code == 1:
            raise ValueError("broken")
        return ok(command)

    stream = FakeStream()
    connection = connection_on(stream, serve=serve)
    connection.received(encode(Command(1, opaque=1)) + encode(Command(2, opaque=2)))
    first, second = commands_in(b"".join(stream.written))
    assert (first.code, first.remark, first.opaque) == (1, "ValueError: broken", 1)
    assert (second.code, second.opaque) == (0, 2)


@in_virtual_time
async def test_an_unserved_request_is_refused_by_number_and_a_one_way_one_never_answered() -> None:
    stream = FakeStream()
    connection = connection_on(stream)
    connection.received(encode(Command(309, opaque=5)) + encode(Command(309, flag=2)))
    (response,) = commands_in(b"".join(stream.written))
    assert (response.code, response.remark, response.opaque) == (3, " request type 309 not supported", 5)


@in_virtual_time
async def test_replies_to_one_chunk_leave_with_one_write() -> None:
    stream = FakeStream()
    connection = connection_on(stream, serve=lambda _, command: ok(command))
    connection.received(b"".join(encode(Command(10, opaque=number)) for number in range(50)))
    assert len(stream.written) == 1
    assert [command.opaque for command in commands_in(stream.written[0])] == list(range(50))


@in_virtual_time
async def test_others_have_their_turn_while_a_server_serves_a_read_of_very_many_requests() -> None:
    stream, served = FakeStream(), []
    connection = connection_on(stream, serve=lambda _, command: served.append(command.opaque), is_server=True)
    requests = [encode(Command(10, opaque=number)) for number in range(1_300)]
    connection.received(b"".join(requests[:1_200]))
    turns = []
    while len(served) < 1_200:
        turns.append((len(served), stream.reading))
        await asyncio.sleep(0)
    assert [done for done, _ in turns] == [500, 1_000]
    assert not any(is_reading for _, is_reading in turns)
    assert stream.reading
    connection.received(b"".join(requests[1_200:]))
    assert served == list(range(1_300))


@in_virtual_time
async def test_others_have_their_turn_while_a_server_answers_with_very_many_bytes_that_are_read_at_once() -> None:
    stream, served = FakeStream(), []

    def serve(_: Connection, command: Command) -> Command:
        served.append(command.opaque)
        return Command.response(command, 0, body=bytes(100_000))

    connection = connection_on(stream, serve=serve, is_server=True)
    connection.received(b"".join(encode(Command(11, opaque=number)) for number in range(25)))
    turns = []
    while len(served) < 25:
        turns.append((len(served), len(stream.written), stream.reading))
        await asyncio.sleep(0)
    assert turns == [(11, 11, False), (22, 22, False)]
    assert [command.opaque for command in commands_in(b"".join(stream.written))] == served == list(range(25))
    assert stream.reading


@in_virtual_time
async def test_replies_that_come_later_in_one_turn_leave_with_one_write() -> None:
    stream = FakeStream()
    waiting: list[Command] = []
    connection = connection_on(stream, serve=lambda _, command: waiting.append(command), is_server=True)
    connection.received(b"".join(encode(Command(10, opaque=number)) for number in range(50)))
    assert not stream.written
    for command in waiting:
        connection.reply(ok(command))
    await asyncio.sleep(0)
    assert len(stream.written) == 1
    assert [command.opaque for command in commands_in(stream.written[0])] == list(range(50))


@in_virtual_time
async def test_a_request_may_be_answered_later_and_in_the_peers_form() -> None:
    waiting: list[Command] = []

    def serve(connection: Connection, command: Command) -> Command | None:
        waiting.append(command)
        return None

    stream = FakeStream()
    connection = connection_on(stream, serve=serve)
    connection.received(encode(Command(11, {"topic": "t"}, opaque=3, serializer=1)))
    assert stream.written == []
    connection.reply(Command.response(waiting[0], 19))
    await asyncio.sleep(0)
    assert stream.written[0][4] == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x00\x00\x08\x00\x00\x00\x04nope", "header"),
        (b"\x7f\xff\xff\xff", "limit 1048576: see client.max_frame_bytes"),
        (b"\xff\xff\xff\xff", "-1 bytes"),
    ],
)
@in_virtual_time
async def test_a_broken_or_oversized_frame_closes_the_connection_and_says_why(data: bytes, reason: str) -> None:
    lost: list[str] = []
    stream = FakeStream()
    connection = connection_on(stream, on_lost=lambda _, why: lost.append(why))
    call = connection.start_request(Command(11), timeout=9.0)
    connection.received(data)
    assert reason in connection.closed_reason
    assert lost == [connection.closed_reason]
    assert stream.ended
    await asyncio.sleep(0)
    connection.received(encode(Command.response(commands_in(stream.written[0])[0], 0)))
    assert isinstance(await outcome(call), ConnectionLostError)


@in_virtual_time
async def test_a_server_serves_no_further_request_of_a_peer_that_reads_no_replies() -> None:
    served: list[int] = []

    def serve(command: Command) -> Command:
        served.append(command.opaque)
        return Command.response(command, 0, body=bytes(300_000))

    network = RandomNetwork(Random(1))
    server = ScriptedServer(network, ADDRESS)
    server.answers[11] = serve
    await server.start()
    connection = Connection(serve=None, max_frame_bytes=1 << 24)
    near = await network.dial(ADDRESS, connection, 3.0)
    connection.attach(near)
    near.pause_reading()
    calls = [connection.start_request(Command(11), timeout=60.0) for _ in range(100)]
    await asyncio.sleep(1)
    assert len(served) < 15
    near.resume_reading()
    responses = await asyncio.gather(*calls)
    assert all(len(response.body) == 300_000 for response in responses)
    assert served == list(range(1, 101))


@in_virtual_time
async def test_a_peer_that_leaves_too_much_unread_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNSENT_LIMIT_BYTES", 1000)
    stream = FakeStream()
    connection = connection_on(stream, is_server=True)
    connection.pause()
    stream.unsent = 900
    connection.reply(Command(0, flag=1))
    assert not connection.is_closed
    stream.unsent = 1001
    connection.reply(Command(0, flag=1))
    assert connection.closed_reason == "the peer leaves 1001 bytes unread"


@in_virtual_time
async def test_a_client_may_queue_as_much_as_its_callers_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNSENT_LIMIT_BYTES", 1000)
    stream = FakeStream()
    connection = connection_on(stream)
    connection.pause()
    stream.unsent = 5000
    connection.start_request(Command(310), timeout=1.0).cancel()
    assert not connection.is_closed
    assert stream.reading


@in_virtual_time
async def test_closing_sends_what_was_written_and_fails_who_waits() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    connection = await connected(server.network)
    call = connection.start_request(Command(11), timeout=30.0)
    connection.send_one_way(Command(15))
    await connection.close("done")
    assert isinstance(await outcome(call), ConnectionLostError)
    await eventually(lambda: server.codes() == [11, 15])
    assert not server.listener.connections


@in_virtual_time
async def test_a_retired_connection_ends_when_its_last_answer_came() -> None:
    stream = FakeStream()
    connection = connection_on(stream)
    call = connection.start_request(Command(11), timeout=30.0)
    connection.retire()
    assert isinstance(await outcome(connection.start_request(Command(12), timeout=1.0)), ConnectionLostError)
    assert not connection.is_closed
    await asyncio.sleep(0)
    connection.received(encode(Command.response(commands_in(stream.written[0])[0], 0)))
    assert (await call).code == 0
    assert connection.is_closed


@given(st.integers(0, 2**32), st.lists(st.binary(max_size=3000), min_size=1, max_size=20))
def test_however_the_bytes_arrive_everyone_gets_his_own_answer(seed: int, bodies: list[bytes]) -> None:
    async def main() -> None:
        server = ScriptedServer(RandomNetwork(Random(seed)), ADDRESS)
        server.answers[10] = lambda command: Command.response(command, 0, body=command.body)
        await server.start()
        connection = await connected(server.network)
        calls = [connection.start_request(Command(10, None, body), timeout=3.0) for body in bodies]
        assert [(await call).body for call in calls] == bodies
        await connection.close()

    run_virtual(main)
