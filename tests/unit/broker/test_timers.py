"""Timers to the second: when they come, what a recall and a crash do to them, and what Apache RocketMQ finds."""

from __future__ import annotations

import asyncio
import struct
from copy import deepcopy
from typing import Any

import pytest

from rocketapp.broker import timers as module
from rocketapp.broker.store.files import Files, MemoryFiles, read_whole
from rocketapp.broker.timers import CHECKPOINT, LONGEST_MS, TimedMessages, slot_ms, timed
from rocketapp.errors import BrokerError
from rocketapp.model.event import LoopFailed, RecordDamaged
from rocketapp.model.names import TIMER_TOPIC
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.recall import RecallHandle, RecallRequest
from rocketapp.wire.requests.send import SendResponse
from tests.turns import Turns
from tests.unit.broker.asking import Client, Running, running
from tests.unit.broker.store.stores import Events, SetClock, bodies, open_store, record
from tests.unit.scripted import in_virtual_time

START = 1_700_000_000.0
START_MS = int(START * 1000)


class Timers:
    """A store with its timers, and a clock to set."""

    def __init__(self, files: Files | None = None, clock: SetClock | None = None) -> None:
        self.files = MemoryFiles() if files is None else files
        self.clock = clock or SetClock(START)
        self.events = Events()
        self.store = open_store(self.files, clock=self.clock)
        self.timers = TimedMessages(self.store, self.files, self.clock, self.events)

    def add(self, *seconds: float, **more: str) -> None:
        """A message for each number of seconds from the start; its body says the number, and so does its key."""
        for delay in seconds:
            own = names.encode({"UNIQ_KEY": f"{delay:g}", **more})
            due = slot_ms(START_MS + int(delay * 1000), int(self.clock.time * 1000))
            self.timers.schedule(record(f"{delay:g}".encode(), more=own), due)

    def recall(self, delay: float) -> None:
        own = names.encode({"UNIQ_KEY": f"{delay:g}", names.TIMER_DEL_UNIQKEY: f"{delay:g}"})
        self.timers.schedule(record(b"0", more=own), slot_ms(START_MS + int(delay * 1000), START_MS))

    def at(self, seconds: float) -> int:
        self.clock.time = START + seconds
        return self.timers.deliver_due(int(self.clock.time * 1000))

    def save(self) -> None:
        save = self.timers.to_save()
        if save is not None:
            self.store.flush()
            save()

    def restarted(self, *, killed: bool = False) -> Timers:
        files = self.files
        if killed:
            assert isinstance(files, MemoryFiles)
            self.store.flush()
            files = deepcopy(files)
        else:
            self.close()
        self.store.close()
        return Timers(files, self.clock)

    def close(self) -> None:
        for _ in self.timers.close():
            pass

    def came(self) -> list[bytes]:
        return bodies(self.store)


def test_a_message_comes_at_the_end_of_its_second_and_never_early() -> None:
    broker = Timers()
    broker.add(0.4, 2, 2.001, 70)
    assert [broker.at(seconds) for seconds in (0.999, 1, 1.999, 2, 2.999, 3, 69.9, 70)] == [0, 1, 0, 1, 0, 1, 0, 1]
    assert broker.came() == [b"0.4", b"2", b"2.001", b"70"]
    assert broker.timers.next_due_ms() is None


def test_the_next_one_says_when_it_is_due() -> None:
    broker = Timers()
    assert broker.timers.next_due_ms() is None
    broker.add(30, 5)
    assert broker.timers.next_due_ms() == START_MS + 5000


def test_many_are_delivered_in_turns() -> None:
    broker = Timers()
    broker.add(*[5.0] * 300)
    broker.clock.time = START + 5
    assert broker.timers.deliver_due(START_MS + 5000, limit=100) == 128
    assert len(broker.came()) == 128
    assert broker.at(5) == 172
    assert broker.at(5) == 0


def test_a_long_queue_is_read_in_turns_and_nothing_comes_before_its_recall_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_READ", 32)
    broker = Timers()
    broker.add(1, *[5.0] * 100)
    broker.recall(1)
    broker = broker.restarted(killed=True)
    turns = 0
    while not broker.at(2):
        turns += 1
        assert broker.came() == []
        assert broker.timers.next_due_ms() in (0, START_MS + 1000)
    assert turns > 1
    assert broker.came() == []


def test_what_is_recalled_does_not_come_and_its_neighbour_does() -> None:
    broker = Timers()
    broker.add(3, 2.5, 4)
    broker.recall(2.5)
    broker.at(10)
    assert broker.came() == [b"3", b"4"]


@pytest.mark.parametrize("killed", [False, True])
def test_after_a_start_what_waits_comes_once_and_what_came_does_not(killed: bool) -> None:
    broker = Timers()
    broker.add(600, 1, 2, 3, 50)
    broker.recall(50)
    broker.at(2)
    broker.save()
    broker = broker.restarted(killed=killed)
    assert broker.timers.next_due_ms() == START_MS + 3000
    broker.add(4)
    broker.at(1000)
    assert broker.came() == [b"1", b"2", b"3", b"4", b"600"]
    broker = broker.restarted(killed=killed)
    broker.at(2000)
    assert len(broker.came()) == (5 if not killed else 8)  # the position was not saved since


def test_a_message_whose_second_is_over_when_it_is_read_comes_at_once() -> None:
    broker = Timers()
    broker.at(100)
    broker.save()
    broker.timers.schedule(record(b"late"), START_MS + 5000)
    assert broker.at(100) == 1


def test_a_position_is_not_saved_while_nothing_changes() -> None:
    broker = Timers()
    assert broker.timers.to_save() is None
    broker.add(1)
    assert broker.timers.next_due_ms() is not None
    broker.save()
    assert broker.timers.to_save() is None
    broker.at(1)
    assert broker.timers.to_save() is not None


def test_a_position_that_was_not_saved_is_saved_the_next_time() -> None:
    broker = Timers()
    broker.add(1)
    broker.at(1)
    assert broker.timers.to_save() is not None  # and the log could not be flushed
    broker.save()
    assert checkpoint(broker.files) == (START_MS + 1000, 0, 1, 1)


def test_a_full_disk_keeps_no_broker_from_starting() -> None:
    class Full(MemoryFiles):
        is_full = True

        def rename(self, old: str, new: str) -> None:
            if self.is_full and CHECKPOINT in new:
                raise OSError("full")
            super().rename(old, new)

    files = Full()
    broker = Timers(files)
    assert len(broker.events.of(LoopFailed)) == 1
    files.is_full = False
    broker.save()
    assert read_whole(files, CHECKPOINT) is not None


@pytest.mark.parametrize(
    "properties",
    [{}, {"TIMER_OUT_MS": "soon"}, {"TIMER_OUT_MS": str(START_MS), "REAL_TOPIC": TIMER_TOPIC, "REAL_QID": "0"}],
)
def test_a_damaged_record_costs_itself(properties: dict[str, str]) -> None:
    broker = Timers()
    broker.store.append(record(b"x", topic=TIMER_TOPIC)._replace(raw_properties=names.encode(properties)))
    broker.add(1)
    broker.at(5)
    assert broker.came() == [b"1"]
    assert len(broker.events.of(RecordDamaged)) == 1


@pytest.mark.parametrize("is_recalled", [False, True])
def test_what_apache_has_put_again_comes_once_or_not_at_all_where_it_was_taken_back(is_recalled: bool) -> None:
    broker = Timers()
    broker.add(5)
    if is_recalled:
        broker.recall(5)
    again = names.encode({"UNIQ_KEY": "5", names.TIMER_ROLL_TIMES: "1"})
    broker.store.append(timed(record(b"5 again", more=again), slot_ms(START_MS + 5000, START_MS)))
    broker.at(5)
    assert broker.came() == ([] if is_recalled else [b"5 again"])


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    broker = Timers()
    broker.add(1, 2)
    assert broker.timers.next_due_ms() is not None
    with pytest.raises(BrokerError, match="flow control"):
        broker.add(3)
    broker.at(2)
    broker.add(3)


def checkpoint(files: Files) -> tuple[int, int, int, int]:
    """Read time, end of the log of timers, and two offsets: as Apache RocketMQ reads the file."""
    data = read_whole(files, CHECKPOINT)
    assert data is not None
    assert len(data) == 4096
    found: tuple[int, int, int, int] = struct.unpack_from(">qqqq", data)
    return found


def test_a_running_broker_tells_apache_the_first_that_waits_and_a_stopped_one_all_of_them() -> None:
    broker = Timers()
    broker.add(1, 600, 2, 600, 700)
    broker.recall(700)
    broker.at(3)
    broker.save()
    assert checkpoint(broker.files) == (START_MS + 3000, 0, 6, 1)
    broker.close()
    assert checkpoint(broker.files) == (START_MS + 3000, 3 * 52, 6, 6)
    log = read_whole(broker.files, "timerlog/00000000000000000000")
    assert log is not None
    assert len(log) == 104_857_600
    entries = [struct.unpack_from(">iqiqiqiiq", log, at) for at in range(0, 4 * 52, 52)]
    told = [(size, before, magic, begin + wait, physical) for size, before, magic, begin, wait, physical, *_ in entries]
    where = [(broker.store.entry(TIMER_TOPIC, 0, offset) or (-1,))[0] for offset in range(6)]
    first = START_MS + 599_000
    assert told == [
        (52, -1, 1, first, where[1]),
        (52, 0, 1, first, where[3]),
        (52, -1, 1, START_MS + 3000 - 60_000, where[5]),
        (0, 0, 0, 0, 0),
    ]
    broker = broker.restarted()
    assert broker.files.names("timerlog") == []
    assert checkpoint(broker.files) == (START_MS + 3000, 0, 6, 1)


def test_a_stop_writes_many_of_them_in_turns() -> None:
    async def story() -> None:
        with Turns() as turns:
            for _ in broker.timers.close():
                await asyncio.sleep(0)
        assert turns.longest < 0.05

    broker, count = Timers(), 100_000
    due = slot_ms(START_MS + 600_000, START_MS)
    broker.store.append_batch([timed(record(), due + number % 7 * 1000) for number in range(count)])
    asyncio.run(story())
    assert checkpoint(broker.files) == (START_MS, (count + 1) * 52, count, count)
    assert len(broker.restarted().timers) == count


def test_a_slave_forgets_what_its_master_has_delivered_and_keeps_the_rest_over_a_start() -> None:
    broker = Timers()
    broker.add(5, 6, 100)
    broker.add(6)
    broker.clock.time = START + 50
    broker.timers.take_over(START_MS + 7000, 3)
    assert len(broker.timers) == 2, "the master had not read the fourth, which is of the same second as the second"
    broker.save()
    broker = broker.restarted(killed=True)
    assert broker.at(101) == 2
    assert broker.came() == [b"6", b"100"]


def test_what_a_master_has_delivered_is_left_out_of_a_queue_that_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_READ", 4)
    broker = Timers()
    broker.add(*range(10, 30))
    broker = broker.restarted()
    broker.timers.take_over(START_MS + 20_000, 20)
    assert len(broker.timers) == 20, "a round of the master's tables reads nothing: a queue of any length keeps nobody"
    assert len(list(broker.timers.read())) == 4
    assert len(broker.timers) == 9, "those that were due before the second 20 are left out"
    broker.save()
    monkeypatch.undo()
    broker = broker.restarted(killed=True)
    assert (broker.at(100), broker.came()) == (9, [b"%d" % seconds for seconds in range(21, 30)])


@in_virtual_time
async def test_a_slave_reads_its_timers_though_it_delivers_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_READ", 4)
    broker = Timers()
    broker.add(*range(10, 30))
    broker.store.close()
    async with running(broker.files, role="slave", id=1, master="127.0.0.1:1") as slave:
        assert checkpoint(slave.files)[2] == 0
        await asyncio.sleep(3)
        assert checkpoint(slave.files)[2:] == (20, 0)


def test_where_apache_has_gone_on_nothing_comes_twice() -> None:
    broker = Timers()
    broker.add(1, 600, 2, 3)
    broker.at(1)
    broker.close()
    data = read_whole(broker.files, CHECKPOINT)
    assert data is not None
    file = broker.files.open(CHECKPOINT)
    file.write(struct.pack(">qqqq", START_MS + 3000, 5 * 52, 4, 4), 0)  # it has delivered those of 2 and 3 s
    file.close()
    broker.store.close()
    broker = Timers(broker.files, broker.clock)
    broker.at(1000)
    assert broker.came() == [b"1", b"600"]


async def send_timed(client: Client, seconds: float, topic: str = "orders") -> SendResponse:
    properties = f"{names.TIMER_DELAY_MS}\x01{int(seconds * 1000)}\x02"
    return SendResponse.from_fields((await client.send(topic, properties=properties)).fields)


async def recall(client: Client, topic: str, handle: str) -> Any:
    request = RecallRequest(topic, handle, "makers")
    return await client.ask(RequestCode.RECALL_MESSAGE, request.to_fields())


async def ends_at(broker: Running, client: Client, topic: str) -> float:
    """When a held pull of the topic brings its next message."""
    answer = await client.pull(topic, suspend_ms=500_000)
    assert answer.code == ResponseCode.SUCCESS
    return broker.clock.now()


def test_the_broker_delivers_and_takes_back() -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            began = broker.clock.now()
            kept, gone = await send_timed(client, 30.2), await send_timed(client, 20)
            assert kept.recall_handle
            assert gone.recall_handle
            assert (await recall(client, "orders", gone.recall_handle)).code == ResponseCode.SUCCESS
            came = await ends_at(broker, client, "orders") - began
            assert 30.2 <= came <= 31.7
            late = await recall(client, "orders", kept.recall_handle)
            assert (late.code, late.remark) == (ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")

    story()


def test_a_recall_that_cannot_be_is_refused() -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            handle = (await send_timed(client, 30)).recall_handle or ""
            await client.send("other")
            due = RecallHandle.decode(handle).due_ms
            elsewhere = RecallHandle("orders", "broker-b", due, "ID").encode()
            for topic, text, code, remark in (
                ("nowhere", handle, ResponseCode.TOPIC_NOT_EXIST, "not exist"),
                ("other", handle, ResponseCode.ILLEGAL_OPERATION, "topic not match"),
                ("orders", "!", ResponseCode.ILLEGAL_OPERATION, "is not a recall handle"),
                ("orders", elsewhere, ResponseCode.ILLEGAL_OPERATION, "broker service not available"),
            ):
                answer = await recall(client, topic, text)
                assert answer.code == code
                assert remark in answer.remark

    story()


@pytest.mark.parametrize(
    "properties",
    [
        f"{names.TIMER_DELAY_MS}\x01{LONGEST_MS + 1000}\x02",
        f"{names.TIMER_DELAY_SEC}\x01soon\x02",
        f"{names.TIMER_DELAY_SEC}\x0160\x02TRAN_MSG\x01true\x02",
    ],
)
def test_a_timer_that_cannot_be_is_refused(properties: str) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            assert (await client.send("orders", properties=properties)).code == ResponseCode.MESSAGE_ILLEGAL

    story()


@pytest.mark.parametrize(
    ("properties", "seconds"),
    [
        (f"{names.TIMER_DELIVER_MS}\x015000\x02", 0),
        (f"{names.TIMER_DELAY_SEC}\x0160\x02{names.TIMER_OUT_MS}\x015000\x02", 0),
        (f"{names.TIMER_DELAY_SEC}\x0160\x02DELAY\x012\x02", 5),
        (f"{names.TIMER_DELAY_MS}\x019000\x02{names.TIMER_DELAY_SEC}\x0160\x02", 60),
    ],
)
def test_what_counts_among_several_properties(properties: str, seconds: int) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            began = broker.clock.now()
            await client.send("orders", properties=properties)
            assert seconds <= await ends_at(broker, client, "orders") - began <= seconds + 2

    story()


def test_the_broker_goes_on_with_them_after_a_stop_and_a_kill() -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            began = broker.clock.now()
            await send_timed(client, 30, "first")
            await send_timed(client, 60, "second")
            await broker.restart()
            client = await broker.client()
            assert 30 <= await ends_at(broker, client, "first") - began <= 31.5
            await broker.restart(killed=True)
            client = await broker.client()
            assert 60 <= await ends_at(broker, client, "second") - began <= 61.5

    story()
