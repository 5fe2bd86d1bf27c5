"""The network in memory behaves like one, and fails on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from random import Random
from typing import Any

import pytest

from rocketapp.errors import ConnectError
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.transport.stream import WRITE_HIGH_BYTES, Stream
from tests.random_network import RandomNetwork
from tests.unit.scripted import eventually, in_virtual_time, outcome

ADDRESS = "10.0.0.1:10911"


class Recorder:
    def __init__(self) -> None:
        self.stream: Stream
        self.chunks: list[bytes] = []
        self.reasons: list[str] = []
        self.flow: list[str] = []

    def accept(self, stream: Stream) -> Recorder:
        self.stream = stream
        return self

    def received(self, data: bytes) -> None:
        self.chunks.append(data)

    def lost(self, reason: str) -> None:
        self.reasons.append(reason)

    def pause(self) -> None:
        self.flow.append("pause")

    def resume(self) -> None:
        self.flow.append("resume")


async def pair(network: MemoryNetwork) -> tuple[Recorder, Recorder]:
    near, far = Recorder(), Recorder()
    await network.listen("10.0.0.1", 10911, far.accept)
    near.stream = await network.dial(ADDRESS, near, 3.0)
    return near, far


@in_virtual_time
async def test_bytes_arrive_in_order_but_never_during_the_write() -> None:
    near, far = await pair(MemoryNetwork())
    near.stream.write(b"one")
    near.stream.write(b"two")
    assert far.chunks == []
    near.stream.close()
    await asyncio.sleep(1)
    assert far.chunks == [b"one", b"two"]
    assert (far.reasons, near.reasons) == (["closed by the peer"], ["closed here"])


@in_virtual_time
async def test_a_seed_cuts_and_joins_chunks_and_does_so_again() -> None:
    arrived = []
    for _ in range(2):
        near, far = await pair(RandomNetwork(Random(7)))
        for number in range(50):
            near.stream.write(bytes([number]) * 10)
        await asyncio.sleep(1)
        assert b"".join(far.chunks) == b"".join(bytes([number]) * 10 for number in range(50))
        arrived.append(far.chunks)
    assert arrived[0] == arrived[1]
    assert any(len(chunk) % 10 for chunk in arrived[0])


@in_virtual_time
async def test_a_cut_ends_both_sides_and_drops_what_was_under_way() -> None:
    network = MemoryNetwork()
    near, far = await pair(network)
    near.stream.write(b"lost")
    assert network.cut("10.9.9.9:1") == 0
    assert network.cut(ADDRESS) == 2
    await asyncio.sleep(1)
    assert (near.reasons, far.reasons, far.chunks) == (["connection reset"], ["connection reset"], [])


@in_virtual_time
async def test_a_held_address_is_half_open_until_it_is_released() -> None:
    network = MemoryNetwork()
    near, far = await pair(network)
    network.hold(ADDRESS)
    near.stream.write(b"later")
    error = await outcome(network.dial(ADDRESS, Recorder(), 3.0))
    assert isinstance(error, ConnectError)
    assert error.problem == "no connection within 3 s"
    assert (far.chunks, near.reasons, far.reasons) == ([], [], [])
    network.release(ADDRESS)
    await asyncio.sleep(0.1)
    assert far.chunks == [b"later"]


@in_virtual_time
async def test_of_two_held_addresses_one_may_be_released() -> None:
    network = MemoryNetwork()
    await pair(network)
    network.hold(ADDRESS)
    network.hold("10.0.0.2:1")
    dial = asyncio.ensure_future(network.dial(ADDRESS, Recorder(), 3.0))
    await asyncio.sleep(1)
    network.release("10.0.0.2:1")
    await asyncio.sleep(1)
    assert not dial.done()
    network.release(ADDRESS)
    await dial


@in_virtual_time
async def test_an_end_that_closes_while_held_is_not_heard_of() -> None:
    network = MemoryNetwork()
    near, far = await pair(network)
    network.hold(ADDRESS)
    near.stream.abort()
    await asyncio.sleep(60)
    assert (near.reasons, far.reasons) == (["closed here"], [])


@in_virtual_time
async def test_a_reader_that_pauses_pauses_the_writer() -> None:
    near, far = await pair(MemoryNetwork())
    far.stream.pause_reading()
    near.stream.write(bytes(WRITE_HIGH_BYTES))
    assert near.flow == []
    near.stream.write(b"x")
    assert near.flow == ["pause"]
    await asyncio.sleep(1)
    assert (far.chunks, near.stream.unsent) == ([], WRITE_HIGH_BYTES + 1)
    far.stream.resume_reading()
    await asyncio.sleep(1)
    assert near.flow == ["pause", "resume"]
    assert sum(map(len, far.chunks)) == WRITE_HIGH_BYTES + 1


@in_virtual_time
async def test_a_reader_that_pauses_hears_of_the_end_when_it_reads_on() -> None:
    near, far = await pair(MemoryNetwork())
    near.stream.write(b"one")
    await asyncio.sleep(1)
    far.stream.pause_reading()
    near.stream.close()
    await asyncio.sleep(1)
    assert far.reasons == []
    far.stream.resume_reading()
    await asyncio.sleep(1)
    assert far.reasons == ["closed by the peer"]


@pytest.mark.parametrize("unread", [b"", b"more"])
@in_virtual_time
async def test_bytes_that_an_end_has_not_read_before_it_closed_end_the_other_at_once(unread: bytes) -> None:
    near, far = await pair(MemoryNetwork())
    far.stream.pause_reading()
    near.stream.write(unread)
    far.stream.write(bytes(WRITE_HIGH_BYTES + 1))
    near.stream.close()
    await asyncio.sleep(1)
    assert far.reasons == ["closed by the peer"]


@in_virtual_time
async def test_an_address_without_a_listener_and_a_taken_one() -> None:
    network = MemoryNetwork()
    assert "refused" in str(await outcome(network.dial(ADDRESS, Recorder(), 3.0)))
    listening = await network.listen("10.0.0.1", 0, Recorder().accept)
    with pytest.raises(OSError, match="in use"):
        await network.listen("10.0.0.1", int(listening.address.rpartition(":")[2]), Recorder().accept)
    await network.dial(listening.address, Recorder(), 3.0)
    await listening.close()
    assert "refused" in str(await outcome(network.dial(listening.address, Recorder(), 3.0)))


@in_virtual_time
async def test_one_client_of_a_server_is_held_and_cut_without_the_others() -> None:
    network, far = MemoryNetwork(), Recorder()
    await network.listen("10.0.0.1", 10911, far.accept)
    near = {}
    for link in ("one", "two"):
        near[link] = Recorder()
        near[link].stream = await network.dialer(link)(ADDRESS, near[link], 3.0)
    network.hold("one")
    for link, recorder in near.items():
        recorder.stream.write(link.encode())
    await asyncio.sleep(1)
    assert far.chunks == [b"two"]
    assert isinstance(await outcome(network.dialer("one")(ADDRESS, Recorder(), 3.0)), ConnectError)
    network.release("one")
    await asyncio.sleep(1)
    assert far.chunks == [b"two", b"one"]
    assert network.cut("one") == 2
    await asyncio.sleep(1)
    assert (near["one"].reasons, near["two"].reasons) == (["connection reset"], [])


async def seconds_under_way(network: MemoryNetwork) -> float:
    loop = asyncio.get_running_loop()
    near, far = await pair(network)
    began = loop.time()
    for number in range(20):
        near.stream.write(bytes([number]))
    await eventually(lambda: b"".join(far.chunks) == bytes(range(20)))
    return round(loop.time() - began, 6)


@in_virtual_time
async def test_bytes_are_under_way_as_long_as_the_seed_says_and_stay_in_order() -> None:
    first, again = [await seconds_under_way(RandomNetwork(Random(3), latency=0.05)) for _ in range(2)]
    assert 0 < first == again


@in_virtual_time
async def test_each_end_lives_in_the_context_of_who_made_it() -> None:
    network, who, seen = MemoryNetwork(), ContextVar("who", default=""), []

    class Telling(Recorder):
        def received(self, data: bytes) -> None:
            seen.append((who.get(), data))

    async def as_process(name: str, work: Coroutine[Any, Any, Any]) -> Any:
        context = copy_context()
        context.run(who.set, name)
        return await asyncio.get_running_loop().create_task(work, context=context)

    far, near = Telling(), Telling()
    await as_process("server", network.listen("10.0.0.1", 10911, far.accept))
    near.stream = await as_process("client", network.dial(ADDRESS, near, 3.0))
    near.stream.write(b"request")
    far.stream.write(b"response")
    await asyncio.sleep(1)
    assert sorted(seen) == [("client", b"response"), ("server", b"request")]
