from __future__ import annotations

import asyncio
import threading
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketapp.broker.broker import Broker as WholeBroker
from rocketapp.broker.broker import Pace
from rocketapp.broker.delays import BATCH, DelayedMessages, batch_of, delayed, restored
from rocketapp.broker.store.config_files import DELAY_OFFSETS, decode
from rocketapp.broker.store.files import Files, MemoryFiles, read_whole
from rocketapp.broker.store.store import MessageStore
from rocketapp.broker.store.stored import Stored
from rocketapp.config.broker import BrokerConfig
from rocketapp.errors import ConfigError, StoreError
from rocketapp.model.event import RecordDamaged
from rocketapp.model.names import DELAY_SECONDS, SCHEDULE_TOPIC
from rocketapp.transport.connection import Connection
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.java import tags_code
from rocketapp.wire.layout import Record
from rocketapp.wire.requests.send import SendRequest
from tests.unit.broker.store.disk import Disk, Stopped
from tests.unit.broker.store.stores import Events, SetClock, Watched, bodies, messages, open_store, record
from tests.unit.scripted import FakeStream, eventually

START = 1_700_000_000.0


class Broker:
    """A store with its delays, and a clock to set."""

    def __init__(self, files: Files | None = None, clock: SetClock | None = None) -> None:
        self.files = MemoryFiles() if files is None else files
        self.clock = clock or SetClock(START)
        self.events = Events()
        self.store: MessageStore = open_store(self.files, clock=self.clock)
        self.delays = DelayedMessages(self.store, self.files, self.clock, self.events)

    def schedule(self, record: Record, level: int) -> Stored:
        return self.store.append(delayed(record, level))

    def deliver(self) -> int:
        return self.delays.deliver_due(int(self.clock.time * 1000))

    def after(self, seconds: float) -> int:
        self.clock.time += seconds
        return self.deliver()


def test_a_delayed_record_remembers_where_it_belongs() -> None:
    waiting = delayed(record(queue_id=5, tag="paid"), 3)
    assert (waiting.topic, waiting.queue_id) == (SCHEDULE_TOPIC, 2)
    properties = names.decode(waiting.raw_properties)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"], properties["DELAY"]) == ("T", "5", "3")
    assert properties["TAGS"] == "paid"
    back = restored(waiting)
    assert back is not None
    assert (back.topic, back.queue_id, back.raw_properties) == ("T", 5, waiting.raw_properties)


def test_a_level_beyond_the_last_is_the_last() -> None:
    waiting = delayed(record(), 99)
    assert waiting.queue_id == 17
    assert names.decode(waiting.raw_properties)["DELAY"] == "18"


def test_what_the_user_wrote_as_real_topic_does_not_count() -> None:
    forged = record(more=b"REAL_TOPIC\x01Secret\x02REAL_QID\x019")
    back = restored(delayed(forged, 1))
    assert back is not None
    assert (back.topic, back.queue_id) == ("T", 0)


class Refusing(MemoryFiles):
    """A disk that may refuse to rename, and tells which thread asked first."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses = False
        self.renamed_by: dict[str, str] = {}

    def rename(self, old: str, new: str) -> None:
        if self.refuses:
            raise OSError("full")
        super().rename(old, new)
        self.renamed_by.setdefault(new, threading.current_thread().name)


def saved_offsets(files: Files) -> dict[str, int]:
    data = read_whole(files, DELAY_OFFSETS)
    return {} if data is None else dict(decode(data)["offsetTable"])


def test_offsets_are_written_when_the_save_runs_and_again_when_it_failed() -> None:
    files = Refusing()
    broker = Broker(files)
    broker.schedule(record(b"late"), 1)
    broker.after(1)
    save = broker.delays.to_save()
    assert save is not None
    assert saved_offsets(files) == {}
    files.refuses = True
    with pytest.raises(OSError, match="full"):
        save()
    files.refuses = False
    again = broker.delays.to_save()
    assert again is not None
    again()
    assert saved_offsets(files)["1"] == 1
    assert broker.delays.to_save() is None


def test_the_loop_does_not_wait_for_the_disk_that_keeps_the_offsets() -> None:
    files, clock = Refusing(), SetClock(START)

    async def story() -> None:
        broker = WholeBroker(
            files=files,
            config=BrokerConfig(flush_interval=0.01),
            clock=clock,
            random=Random(1),
            observe=Events(),
            in_thread=True,
            pace=Pace(delivered=0.001),
        )
        await broker.start("127.0.0.1:1")
        request = SendRequest("makers", "orders", properties="DELAY\x011\x02")
        sender = Connection(serve=None, max_frame_bytes=1 << 20)
        sender.attach(FakeStream())
        send = broker.table()[RequestCode.SEND_MESSAGE_V2].process
        send(sender, Command(RequestCode.SEND_MESSAGE_V2, request.to_fields(), b"late"))
        broker.store_sends()
        clock.time += 1
        await eventually(lambda: DELAY_OFFSETS in files.renamed_by)
        await broker.stop()

    asyncio.run(story())
    assert files.renamed_by[DELAY_OFFSETS].startswith("rocketapp-broker-disk")


@pytest.mark.parametrize("topic", ["", "../evil", SCHEDULE_TOPIC, "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_a_message_that_may_not_go_anywhere_is_skipped_and_told(topic: str) -> None:
    broker = Broker()
    broker.store.placed = lambda one: one._replace(flag=one.flag)  # nobody looks for a place for what goes nowhere
    raw = names.encode({"REAL_TOPIC": topic, "REAL_QID": "0"})
    broker.store.append(Record(SCHEDULE_TOPIC, b"x", raw, 0))
    broker.schedule(record(b"good"), 1)
    assert broker.after(1) == 2
    assert bodies(broker.store) == [b"good"]
    assert len(broker.events.of(RecordDamaged)) == 1


@pytest.mark.parametrize("level", [1, 2, 3, 10, 18])
def test_a_message_becomes_visible_when_its_delay_is_over_and_not_before(level: int) -> None:
    broker = Broker()
    delay = DELAY_SECONDS[level - 1]
    broker.schedule(record(b"later", queue_id=2, tag="paid"), level)
    assert broker.delays.next_due_ms() == int((START + delay) * 1000)
    assert broker.after(delay - 0.001) == 0
    assert broker.store.max_offset("T", 2) == 0
    assert broker.after(0.001) == 1
    (delivered,) = messages(broker.store, "T", 2)
    assert delivered.body == b"later"
    assert delivered.stored_ms == int((START + delay) * 1000)
    assert delivered.born_ms == 1_600_000_000_000
    assert broker.store.entry("T", 2, 0)[2] == tags_code("paid")
    assert broker.delays.next_due_ms() is None
    assert broker.after(10_000) == 0


def test_levels_do_not_wait_for_each_other_and_keep_their_order() -> None:
    broker = Broker()
    for number in range(6):
        broker.schedule(record(b"%d" % number), 1 if number % 2 else 2)
        broker.clock.time += 0.25
    broker.after(1)
    assert bodies(broker.store) == [b"1", b"3", b"5"]
    broker.after(5)
    assert bodies(broker.store) == [b"1", b"3", b"5", b"0", b"2", b"4"]


def test_one_call_delivers_a_bounded_number() -> None:
    broker = Broker()
    for number in range(300):
        broker.schedule(record(b"%d" % number), 1)
    broker.clock.time += 1
    now_ms = int(broker.clock.time * 1000)
    assert broker.delays.deliver_due(now_ms, limit=100) == 128
    due = broker.delays.next_due_ms()
    assert due is not None
    assert due <= now_ms
    assert broker.deliver() == 172
    assert len(bodies(broker.store)) == 300


def test_offsets_are_saved_where_apache_saves_them_and_found_again() -> None:
    broker = Broker()
    for _ in range(3):
        broker.schedule(record(), 2)
    broker.after(5)
    broker.delays.close()
    broker.store.close()
    assert saved_offsets(broker.files)["2"] == 3
    again = Broker(broker.files, broker.clock)
    assert again.deliver() == 0
    assert len(bodies(again.store)) == 3


def test_what_apache_delivered_meanwhile_is_not_delivered_again() -> None:
    broker = Broker()
    for _ in range(3):
        broker.schedule(record(), 1)
    file = broker.files.open(DELAY_OFFSETS, create=True)
    file.write(b'{\n\t"dataVersion":{"counter":4},\n\t"offsetTable":{1:2\n\t}\n}', 0)
    again = Broker(broker.files, broker.clock)
    assert again.after(1) == 1


@pytest.mark.parametrize("content", [b"", b'{"offsetTable":{"x":1}}', b'{"other":{}}', b'{"offsetTable":[1]}'])
def test_an_unreadable_table_stops_the_start(content: bytes) -> None:
    broker = Broker()
    broker.files.open(DELAY_OFFSETS, create=True).write(content, 0)
    with pytest.raises(ConfigError, match="delayOffset"):
        Broker(broker.files)


def test_a_start_that_is_refused_leaves_no_file_of_the_delays_open() -> None:
    files = Watched()
    broker = Broker(files)
    file = files.open(DELAY_OFFSETS, create=True)
    file.write(b"{", 0)
    file.close()
    opened = list(files.opened)
    with pytest.raises(ConfigError):
        DelayedMessages(broker.store, files, broker.clock)
    assert files.opened == opened


def test_offsets_beyond_the_end_do_not_swallow_new_messages() -> None:
    broker = Broker()
    broker.files.open(DELAY_OFFSETS, create=True).write(b'{"offsetTable":{1:500}}', 0)
    again = Broker(broker.files, broker.clock)
    again.schedule(record(b"new"), 1)
    assert again.after(1) == 1
    assert bodies(again.store) == [b"new"]


def test_a_disk_that_refuses_delays_the_delivery() -> None:
    disk = Disk()
    broker = Broker(disk)
    broker.schedule(record(b"late"), 1)
    broker.clock.time += 1

    def full(number: int, name: str, path: str) -> None:
        if name == "write":
            raise OSError(28, "No space left on device")

    disk.on_call = full
    with pytest.raises(StoreError):
        broker.deliver()
    disk.on_call = None
    assert broker.deliver() == 1
    assert bodies(broker.store) == [b"late"]


@given(st.integers(0, 2**32), st.integers(1, 250), st.booleans())
@settings(max_examples=80, deadline=None)
def test_whatever_crashes_every_message_is_delivered_once_or_twice_and_never_early(
    seed: int, stop_at: int, is_power: bool
) -> None:
    random = Random(seed)

    def stop(number: int, name: str, path: str) -> None:
        if number == stop_at:
            raise Stopped

    disk = Disk(stop)
    clock = SetClock(START)
    accepted: dict[bytes, float] = {}
    durable: set[bytes] = set()
    try:
        broker = Broker(disk, clock)
        for number in range(60):
            level = random.choice((1, 2))
            broker.schedule(record(b"%d/%d" % (number, level)), level)
            accepted[b"%d/%d" % (number, level)] = clock.time + DELAY_SECONDS[level - 1]
            broker.after(random.random())
            if random.random() < 0.3:
                save = broker.delays.to_save()
                broker.store.flush()
                durable = set(accepted)
                if save is not None:
                    save()
    except Stopped:
        pass
    disk.on_call = None
    again = Broker(disk.without_power(random) if is_power else disk.killed(), clock)
    while (due := again.delays.next_due_ms()) is not None:
        clock.time = max(clock.time, due / 1000)
        again.deliver()
    delivered = messages(again.store)
    must_have = durable if is_power else set(accepted)
    assert must_have <= {each.body for each in delivered}
    for body in {each.body for each in delivered}:
        times = [each.stored_ms for each in delivered if each.body == body]
        assert len(times) <= 2
        assert min(times) >= int(accepted.get(body, START) * 1000)


def test_an_unreadable_delayed_record_costs_itself() -> None:
    """It stops neither its level nor those above it."""
    disk = Disk()
    broker = Broker(disk)
    places = [broker.schedule(record(b"%d" % number + bytes(1000)), 1) for number in range(3)]
    broker.schedule(record(b"another level"), 2)
    broker.store.flush()
    disk.bad = {("commitlog/00000000000000000000", places[1].physical // 512 + 1)}
    assert broker.after(6) == 4
    assert [body[:1] for body in bodies(broker.store)] == [b"0", b"2", b"a"]
    assert len(broker.events.of(RecordDamaged)) == 0  # its store has told it
    assert broker.after(60) == 0


def test_a_delayed_record_whose_body_the_disk_has_altered_costs_itself() -> None:
    disk = Disk()
    broker = Broker(disk)
    places = [broker.schedule(record(b"%d" % number), 1) for number in range(3)]
    broker.schedule(record(b"another level"), 2)
    disk.open("commitlog/00000000000000000000").write(b"X", places[1].physical + 88)
    assert broker.after(6) == 4
    assert bodies(broker.store) == [b"0", b"2", b"another level"]


@pytest.mark.parametrize(("number", "harm"), [(0, "zeroed"), (1, "zeroed"), (1, "another entry")])
def test_a_delayed_message_whose_entry_is_damaged_comes_once_and_on_time(number: int, harm: str) -> None:
    disk = Disk()
    broker = Broker(disk)
    for body in (b"0", b"1", b"2", b"3"):
        broker.schedule(record(body), 2)
    broker.store.flush()
    queue = disk.open(f"consumequeue/{SCHEDULE_TOPIC}/1/00000000000000000000")
    queue.write(bytes(20) if harm == "zeroed" else queue.read(20, 0), 20 * number)
    broker.after(4)
    assert bodies(broker.store) == []
    broker.after(2)
    assert bodies(broker.store) == [b"0", b"1", b"2", b"3"]
    broker.after(60)
    assert len(bodies(broker.store)) == 4


def test_a_level_whose_queue_is_being_made_again_keeps_no_other_one() -> None:
    broker = Broker()
    broker.schedule(record(b"first"), 1)
    broker.schedule(record(b"second"), 2)
    broker.store.flush()
    broker.files.open(f"consumequeue/{SCHEDULE_TOPIC}/0/" + "0" * 20).write(b"\0" * 8 + b"\x01" * 4, 0)
    broker.store.repair.later = lambda steps: None  # which takes its time
    with pytest.raises(StoreError, match="made again"):
        broker.after(10)
    assert bodies(broker.store) == [b"second"]


def test_one_write_delivers_a_bounded_number_of_messages_and_of_bytes() -> None:
    large = record(bytes(3_000_000))
    assert batch_of([None, large, large, large]) == (3, [large, large])
    assert batch_of([None] * 100) == (BATCH, [])
