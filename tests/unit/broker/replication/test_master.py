"""A master and its slaves over real sockets: the slave's part is played by what the protocol says, and no more."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketapp.broker.replication import master as masters
from rocketapp.broker.replication.master import MOST_SLAVES, Master
from rocketapp.broker.store.files import DirectoryFiles, Files, MemoryFiles
from rocketapp.broker.store.store import MessageStore
from rocketapp.model.event import SlaveJoined, SlaveLeft
from rocketapp.transport.stream import split_address
from rocketapp.wire.replication import HEAD_BYTES, encode_report, read_head
from tests.unit.broker.store.stores import SEGMENT, Events, open_store, record
from tests.unit.scripted import eventually


class Copy:
    """A slave: its log is what it has received, and begins at `base`."""

    def __init__(self, address: str, log: bytes = b"", base: int = 0) -> None:
        self.address, self.log, self.base = address, bytearray(log), base
        self.heartbeats = 0

    @property
    def end(self) -> int:
        return self.base + len(self.log)

    async def connect(self, source: str = "127.0.0.1") -> Copy:
        """`source`: the host that it is, of this machine."""
        address = split_address(self.address)
        self._reader, self._writer = await asyncio.open_connection(*address, local_addr=(source, 0))
        return self

    def report(self, end: int | None = None) -> None:
        self._writer.write(encode_report(self.end if end is None else end))

    def begin_report(self) -> None:
        """One byte of a report."""
        self._writer.write(b"\0")

    async def follow(self, end: int) -> None:
        """Take blocks and confirm each, until the log ends there."""
        self.report()
        while self.end < end:
            await self.take()
            self.report()

    async def take(self) -> int:
        """Take one block; return its size."""
        position, size = read_head(await self._reader.readexactly(HEAD_BYTES))
        assert position == self.end, "the next block follows the last one"
        assert size <= 32_768
        assert position % SEGMENT + size <= SEGMENT, "a block is part of one file"
        self.log += await self._reader.readexactly(size)
        self.heartbeats += not size
        return size

    async def skip(self, count: int) -> None:
        await self._reader.readexactly(count)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def ended(self) -> bytes:
        """What comes until the master ends the connection."""
        return await self._reader.read()


class Pair:
    """A store with a master, and the events of both."""

    def __init__(self, files: Files) -> None:
        self.files, self.events = files, Events()
        self.store: MessageStore = open_store(files)
        self.master = Master(self.store, self.events, 1.0)
        self.known: set[str] = set()

    async def listen(self) -> Pair:
        await self.master.listen("127.0.0.1", 0, lambda host: host in self.known)
        return self

    def write(self, count: int = 1, size: int = 1000) -> None:
        """Append, and flush."""
        self.store.append_batch([record(b"%d" % number * (size // len(str(number)))) for number in range(count)])
        self.flush()

    def flush(self) -> None:
        self.store.flush()
        self.master.flushed()

    def log(self, begin: int = 0) -> bytes:
        """The durable bytes of the log from there on."""
        parts, position = [], begin
        while position < self.store.durable_position:
            segment = self.store.log.open_segment(position)
            end = min(segment.end, self.store.durable_position)
            parts.append(segment.file.read(end - position, position - segment.start))
            segment.file.close()
            position = end
        return b"".join(parts)

    async def copy(self, log: bytes = b"", base: int = 0) -> Copy:
        return await Copy(f"127.0.0.1:{self.master.port}", log, base).connect()

    async def until(self, event: type[SlaveJoined] | type[SlaveLeft], count: int = 1) -> None:
        await eventually(lambda: len(self.events.of(event)) >= count)


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop waits for no slave that a test has left behind."""
    monkeypatch.setattr(masters, "LAST_PATIENCE", 0.2)


@pytest.fixture(params=["directory", "memory"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    pair = await Pair(DirectoryFiles(str(tmp_path)) if request.param == "directory" else MemoryFiles()).listen()
    yield pair
    await pair.master.finish()
    pair.store.close()


async def test_a_slave_gets_the_log_byte_by_byte_over_the_ends_of_files(pair: Pair) -> None:
    pair.write(200)
    assert pair.store.durable_position > 3 * SEGMENT
    copy = await pair.copy()
    await copy.follow(pair.store.durable_position)
    pair.write(3)
    await copy.follow(pair.store.durable_position)
    assert bytes(copy.log) == pair.log()
    await eventually(lambda: pair.master.replicated == copy.end)
    copy.report(1)  # what it once had it has
    await copy.close()
    await eventually(lambda: not pair.master.slaves)
    assert pair.events.of(SlaveJoined) == [SlaveJoined("127.0.0.1", 0)]
    assert pair.events.of(SlaveLeft) == [SlaveLeft("127.0.0.1", copy.end, "closed by the slave")]


async def test_what_a_loss_of_power_may_take_is_sent_to_nobody(pair: Pair) -> None:
    pair.write(2)
    copy = await pair.copy()
    await copy.follow(pair.store.durable_position)
    pair.store.append(record(b"not flushed"))
    pair.master.flushed()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(copy.take(), 0.05)
    pair.flush()
    await copy.follow(pair.store.durable_position)
    assert b"not flushed" in copy.log
    await copy.close()


async def test_a_copy_that_is_cut_anywhere_goes_on_where_it_ended(pair: Pair) -> None:
    pair.write(100)
    whole = pair.log()
    for end in (1, 11, 12, 13, SEGMENT - 1, SEGMENT, SEGMENT + 1, len(whole) - 1, len(whole)):
        copy = await pair.copy(whole[:end])
        await copy.follow(len(whole))
        assert bytes(copy.log) == whole
        await copy.close()


async def test_a_cut_at_any_byte_of_a_blocks_head_costs_nothing(pair: Pair) -> None:
    pair.write(400)
    copy = Copy(f"127.0.0.1:{pair.master.port}")
    for cut in range(HEAD_BYTES + 1):
        for end_in in (copy.skip(cut), copy.take()):
            await copy.connect()
            copy.report()
            await end_in
            await copy.close()
    assert 0 < copy.end < pair.store.durable_position
    await copy.connect()
    await copy.follow(pair.store.durable_position)
    assert bytes(copy.log) == pair.log()
    await copy.close()
    await eventually(lambda: not pair.master.slaves)


@pytest.mark.parametrize("wrong", [1, None])
async def test_a_slave_of_another_history_is_refused_with_the_position(pair: Pair, wrong: int | None) -> None:
    pair.write(2)
    end = pair.store.durable_position
    copy = await pair.copy()
    said = -1 if wrong is None else end + wrong
    copy.report(said)
    assert await copy.ended() == b""
    reason = f"its log ends at {said}, ours at {end}: it is of another history"
    assert pair.events.of(SlaveLeft) == [SlaveLeft("127.0.0.1", 0, reason)]
    assert (pair.store.durable_position, len(pair.log())) == (end, end)
    await copy.close()


async def test_nobody_confirms_what_was_not_sent(pair: Pair) -> None:
    pair.write(2)
    copy = await pair.copy()
    await copy.follow(pair.store.durable_position)
    await eventually(lambda: pair.master.replicated == copy.end)
    copy.report(copy.end + 1)
    await copy.ended()
    reason = f"its log ends at {copy.end + 1}, it has got bytes up to {copy.end} only: somebody else writes there"
    assert pair.events.of(SlaveLeft) == [SlaveLeft("127.0.0.1", copy.end, reason)]
    await copy.close()


async def test_who_does_not_read_costs_no_memory_and_gets_it_all_later(pair: Pair) -> None:
    for _ in range(16):
        pair.write(200, 5000)
    copy = await pair.copy()
    copy.report()
    await pair.until(SlaveJoined)
    (slave,) = pair.master.slaves
    last = -1
    while slave.position > last:  # until the socket is full
        last = slave.position
        await asyncio.sleep(0.2)
    assert last < pair.store.durable_position
    await copy.follow(pair.store.durable_position)
    assert bytes(copy.log) == pair.log()
    await copy.close()


async def test_an_idle_connection_has_heartbeats_and_a_silent_slave_is_given_up(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masters, "HEARTBEAT", 0.01)
    monkeypatch.setattr(masters, "IDLE", 0.3)
    pair.write()
    copy = await pair.copy()
    await copy.follow(pair.store.durable_position)
    while copy.heartbeats < 2:
        await copy.take()
    await copy.ended()
    reason = "it has said nothing for 0.3 s"
    assert pair.events.of(SlaveLeft) == [SlaveLeft("127.0.0.1", copy.end, reason)]
    await copy.close()


async def test_who_never_says_where_its_log_ends_is_given_up(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masters, "HEARTBEAT", 0.01)
    monkeypatch.setattr(masters, "IDLE", 0.3)
    mute = await pair.copy()
    ended = asyncio.ensure_future(mute.ended())
    for _ in range(7):  # never a whole report
        mute.begin_report()
        await asyncio.wait([ended], timeout=0.1)
    assert ended.done()
    await mute.close()


async def test_who_waits_for_the_slaves_learns_when_all_have_it(pair: Pair) -> None:
    pair.write()
    end = pair.store.durable_position
    assert await pair.master.have(end + 1, 0.0), "without slaves nobody waits"
    first, second = await pair.copy(), await pair.copy()
    for copy in (first, second):
        copy.report()
    await pair.until(SlaveJoined, 2)
    assert not await pair.master.have(end, 0.01)
    await first.follow(end)
    assert not await pair.master.have(end, 0.01)
    waiting = asyncio.gather(pair.master.have(end, 10.0), second.follow(end))
    assert (await waiting)[0]
    await first.close()
    await second.close()


async def test_a_file_that_retention_took_ends_the_copy(pair: Pair) -> None:
    pair.write(200)
    for path in pair.store.log.begin_at(SEGMENT):
        pair.files.remove(path)
    late, empty = await pair.copy(b"x" * 100), await pair.copy(base=SEGMENT)
    late.report()
    assert await late.ended() == b""
    reason = f"its log ends at 100, ours begins at {SEGMENT}: what lies between is deleted"
    assert pair.events.of(SlaveLeft) == [SlaveLeft("127.0.0.1", 0, reason)]
    empty.report(0)
    while empty.end < pair.store.durable_position:
        await empty.take()
        empty.report()
    assert bytes(empty.log) == pair.log(SEGMENT)
    await late.close()
    await empty.close()


async def test_a_file_that_is_too_short_is_sent_to_its_end_and_the_copy_ends_with_the_reason(tmp_path: Path) -> None:
    pair = await Pair(DirectoryFiles(str(tmp_path))).listen()
    pair.write(100)
    whole, (first, *_) = pair.log(), sorted((tmp_path / "commitlog").iterdir())
    os.truncate(first, 700)
    copy = await pair.copy()
    copy.report()
    while copy.end < 700:
        await copy.take()
    assert await copy.ended() == b""
    assert bytes(copy.log) == whole[:700]
    assert pair.events.of(SlaveLeft) == [SlaveLeft("127.0.0.1", 0, "position 700: the file of the log is too short")]
    await copy.close()
    await pair.master.finish()
    pair.store.close()


@pytest.mark.parametrize("turns", [2, 3, 4])
async def test_who_connects_while_the_master_stops_is_left_as_well(tmp_path: Path, turns: int) -> None:
    pair = await Pair(DirectoryFiles(str(tmp_path))).listen()
    with socket.create_connection(("127.0.0.1", pair.master.port)) as late:
        for _ in range(turns):
            await asyncio.sleep(0)
        await pair.master.finish()
        pair.store.close()
        late.setblocking(False)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(late, 1), 1.0) == b""
    assert not pair.master.slaves


async def test_there_is_an_end_to_how_many_slaves_are_served(pair: Pair) -> None:
    copies = [await pair.copy() for _ in range(MOST_SLAVES + 1)]
    assert await copies[-1].ended() == b""
    assert pair.events.of(SlaveLeft) == [SlaveLeft("127.0.0.1", 0, f"there are {MOST_SLAVES} already")]
    assert len(pair.master.slaves) == MOST_SLAVES
    for copy in copies:
        await copy.close()


async def test_another_machine_is_served_only_if_a_slave_has_registered_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masters, "is_loopback", lambda host: False)
    pair = await Pair(DirectoryFiles(str(tmp_path))).listen()
    pair.write()
    stranger = await pair.copy()
    stranger.report()
    assert await stranger.ended() == b""
    reason = "no slave of that host has registered with the name server"
    assert pair.events.of(SlaveLeft) == [SlaveLeft("127.0.0.1", 0, reason)]
    pair.known.add("127.0.0.1")
    slave = await pair.copy()
    await slave.follow(pair.store.durable_position)
    for copy in (stranger, slave):
        await copy.close()
    await pair.master.finish()
    pair.store.close()


async def test_a_stop_gives_the_slaves_what_they_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masters, "LAST_PATIENCE", 10.0)
    pair = await Pair(DirectoryFiles(str(tmp_path))).listen()
    copy = await pair.copy()
    copy.report()
    await pair.until(SlaveJoined)
    pair.store.append_batch([record(b"the last ones")] * 500)
    pair.store.flush()
    end = pair.store.durable_position
    await asyncio.gather(pair.master.finish(), copy.follow(end))
    assert bytes(copy.log) == pair.log()
    assert await copy.ended() == b""
    pair.store.close()
    await copy.close()
