from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import pytest

from rocketapp.broker.store.consume_queue import ENTRY_BYTES
from rocketapp.broker.store.files import DirectoryFiles, MemoryFiles, read_whole
from rocketapp.broker.store.stored import Stored
from rocketapp.errors import ProtocolError, StoreError
from rocketapp.model.event import StoreReadOnly
from rocketapp.wire.java import tags_code
from rocketapp.wire.layout import Record, decode_record
from tests.unit.broker.store.disk import Disk
from tests.unit.broker.store.stores import Events, SetClock, bodies, commit, delete_topic, messages, open_store, record


def test_a_message_is_stored_with_its_offsets_and_time() -> None:
    clock = SetClock(1_700_000_000.123)
    store = open_store(clock=clock)
    first = store.append(record(b"one", tag="paid"))
    second = store.append(record(b"two", queue_id=1))
    third = store.append(record(b"three"))
    assert (first.physical, first.queue_offset, first.stored_ms) == (0, 0, 1_700_000_000_123)
    assert (second.physical, second.queue_offset) == (first.size, 0)
    assert (third.physical, third.queue_offset) == (first.size + second.size, 1)
    data = store.record_at(third.physical)
    assert data is not None
    assert decode_record(data) == record(b"three")._replace(
        queue_offset=1, physical_offset=third.physical, stored_ms=1_700_000_000_123
    )
    assert store.entry("T", 0, 0)[2] == tags_code("paid")
    assert (store.queue_ids("T"), store.topics()) == ([0, 1], {"T"})


@pytest.mark.parametrize(("flush", "is_ahead"), [("async", False), ("sync", True)])
def test_zeros_are_written_ahead_where_each_message_is_synced(tmp_path: Path, flush: str, is_ahead: bool) -> None:
    store = open_store(DirectoryFiles(str(tmp_path)), flush=flush, segment_bytes=1 << 24)
    store.append(record())
    assert ((tmp_path / "commitlog" / f"{0:020d}").stat().st_blocks * 512 >= 1 << 20) is is_ahead
    store.close()


def test_a_batch_is_stored_like_its_messages_one_by_one() -> None:
    records = [record(b"%d" % number * 50, queue_id=number % 3) for number in range(40)]
    one, other = MemoryFiles(), MemoryFiles()
    single, batched = open_store(one), open_store(other)
    assert [single.append(each) for each in records] == batched.append_batch(records)
    assert single.append_batch([]) == []
    log = "commitlog/00000000000000000000"
    assert one.open(log).read(65_536, 0) == other.open(log).read(65_536, 0)


def test_a_batch_lies_in_one_segment_where_that_has_room_for_it() -> None:
    files = MemoryFiles()
    store = open_store(files)
    store.append(record(bytes(60_000)))
    pair = [record(b"commit" * 700), record(b"end" * 700)]
    assert [each.physical // 65_536 for each in store.append_batch(pair)] == [1, 1]
    assert bodies(store)[1:] == bodies(open_store(files))[1:] == [each.body for each in pair]


def test_the_entries_of_a_full_segment_are_in_their_files() -> None:
    files = MemoryFiles()
    store = open_store(files)
    for _ in range(7):
        store.append(record(bytes(10_000)))
    written = read_whole(files, "consumequeue/T/0/00000000000000000000") or b""
    assert (store.end_position > 65_536, -(-len(written.rstrip(b"\0")) // ENTRY_BYTES)) == (True, 6)


@pytest.mark.parametrize("failing", ["create", "write"])
def test_a_batch_that_begins_a_segment_is_stored_whole_or_not_at_all(failing: str) -> None:
    disk = Disk()
    store = open_store(disk)
    store.append(record(bytes(60_000)))
    calls = list[str]()

    def fail(number: int, name: str, path: str) -> None:
        if path.startswith("commitlog"):
            calls.append(name)
            if name == failing and path.endswith("65536"):
                raise OSError(28, "No space left on device")

    disk.on_call = fail
    for _ in range(2):
        with pytest.raises(StoreError, match="No space left"):
            store.append_batch([record(b"commit" * 700), record(b"end" * 700)])
    disk.on_call = None
    assert len(bodies(store)) == len(bodies(open_store(disk.killed()))) == 1, calls


def test_a_batch_may_be_larger_than_a_segment() -> None:
    files = MemoryFiles()
    store = open_store(files)
    records = [record(b"%d" % number * 1000) for number in range(99)]
    done = store.append_batch(records)
    assert len({each.physical // 65_536 for each in done}) > 1
    assert bodies(store) == [each.body for each in records]
    assert bodies(open_store(files)) == [each.body for each in records]


@pytest.mark.parametrize("room", [1, 2])
def test_a_batch_larger_than_a_segment_is_perhaps_stored_when_the_disk_is_full_behind_its_first_messages(
    room: int,
) -> None:
    def full(number: int, name: str, path: str) -> None:
        if name == "create" and path.startswith("commitlog") and int(path[10:]) > room * 65_536:
            raise OSError(28, "No space left on device")

    disk = Disk(full)
    store = open_store(disk)
    store.append(record(bytes(60_000)))
    if room == 1:
        store.append(record(bytes(60_000)))
    with pytest.raises(StoreError, match="No space left") as error:
        store.append_batch([record(b"%d" % number + bytes(6_000)) for number in range(30)])
    assert (error.value.is_unknown, len(bodies(store)) > 2) == ((room == 2,) * 2)


def test_a_record_larger_than_a_segment_is_refused() -> None:
    store = open_store()
    least = store.append(record(b"x")).size - 1
    assert store.append(record(bytes(65_536 - 8 - least))).size == 65_528
    with pytest.raises(StoreError, match=r"broker\.segment_bytes"):
        store.append(record(bytes(65_536 - 7 - least)))


def test_readers_are_told_of_each_message() -> None:
    told: list[list[tuple[str, int, int, bytes]]] = []
    store = open_store()

    def follow(records: Sequence[Stored]) -> None:
        assert all(store.entry(one.topic, one.queue_id, one.queue_offset) for one in records)
        told.append([(one.topic, one.queue_id, one.queue_offset, one.body) for one in records])

    store.followers.append(follow)
    store.append(record(b"1"))
    store.append_batch([record(b"2"), record(b"3", queue_id=1)])
    assert told == [[("T", 0, 0, b"1")], [("T", 0, 1, b"2"), ("T", 1, 0, b"3")]]


@pytest.mark.parametrize("sys_flag", [4, 12])
def test_prepared_and_rolled_back_transactions_are_logged_but_not_seen(sys_flag: int) -> None:
    files = MemoryFiles()
    store = open_store(files)
    store.append(record(b"half", sys_flag=sys_flag))
    store.append_batch([record(b"half", sys_flag=sys_flag), record(b"committed", sys_flag=8)])
    assert bodies(store) == [b"committed"]
    assert bodies(open_store(files)) == [b"committed"]


def test_store_times_never_go_back() -> None:
    files, clock = MemoryFiles(), SetClock(2000.0)
    store = open_store(files, clock=clock)
    store.append(record())
    clock.time = 1000.0
    assert store.append(record()).stored_ms == 2_000_000
    assert open_store(files, clock=clock).append(record()).stored_ms == 2_000_000


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (record(topic="../evil"), "only letters"),
        (record(topic="a/b"), "only letters"),
        (record(topic=""), "needs a name"),
        (record(topic="x" * 128), "at most 127"),
        (record(queue_id=-1), "negative"),
        (record(more=b"k\x01\0\x02"), "NUL"),
    ],
)
def test_what_cannot_be_kept_is_refused(bad: Record, text: str) -> None:
    files = MemoryFiles()
    store = open_store(files)
    with pytest.raises(StoreError, match=text) as refused:
        store.append(bad)
    assert not refused.value.is_unknown
    with pytest.raises(StoreError, match=text):
        store.append_batch([record(), bad])
    assert store.end_position == 0
    assert store.max_offset("T", 0) == 0
    assert store.append(record()).queue_offset == 0


def test_a_batch_with_one_impossible_message_stores_none() -> None:
    store = open_store()
    store.append(record(b"before"))
    end = store.end_position
    with pytest.raises(ProtocolError):
        store.append_batch([record(bytes(60_000)), record(bytes(60_000)), record(more=bytes(0) + b"x" * 40_000)])
    assert (store.end_position, bodies(store)) == (end, [b"before"])
    with pytest.raises(StoreError, match="do not fit"):
        store.append_batch([record(bytes(60_000)), record(bytes(70_000))])
    assert (store.end_position, bodies(store)) == (end, [b"before"])


def test_a_full_disk_refuses_and_recovers_by_itself() -> None:
    disk = Disk()
    store = open_store(disk)
    store.append(record(b"before"))

    def full(number: int, name: str, path: str) -> None:
        if name == "write":
            raise OSError(28, "No space left on device")

    for _ in range(3):
        disk.on_call = full
        for _ in range(3):
            with pytest.raises(StoreError, match="No space left") as refused:
                store.append(record(b"lost"))
            assert not refused.value.is_unknown
        assert bodies(store)[0] == b"before"
        store.flush()
        disk.on_call = None
        store.append(record(b"after"))
        store.flush()
    assert bodies(store) == [b"before", b"after", b"after", b"after"]
    assert bodies(open_store(disk.killed())) == bodies(store)


@pytest.mark.parametrize("log_only", [True, False])
def test_after_a_failed_sync_nothing_is_acknowledged_any_more(log_only: bool) -> None:
    disk, events = Disk(), Events()
    store = open_store(disk, observe=events)
    store.append(record(b"kept"))
    store.flush()

    def fail_once(number: int, name: str, path: str) -> None:
        if name == "sync" and path.startswith("commitlog"):
            disk.on_call = None
            raise OSError(5, "Input/output error")

    disk.on_call = fail_once
    durable = store.durable_position
    store.append(record(b"perhaps"))
    commit(store) if log_only else store.flush()
    assert store.durable_position == durable
    for _ in range(2):
        with pytest.raises(StoreError, match="read-only since: sync failed") as refused:
            store.append(record(b"never"))
        assert not refused.value.is_unknown
        with pytest.raises(StoreError, match="read-only"):
            store.append_batch([record(b"never")])
    assert len(events.of(StoreReadOnly)) == 1
    assert store.problem is not None
    assert bodies(store)[0] == b"kept"
    store.close()
    assert "abort" in disk.names("")
    assert b"never" not in bodies(open_store(disk.killed()))


def test_a_closed_store_takes_nothing_and_closes_once() -> None:
    store = open_store()
    store.append(record())
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.append(record())


def test_a_deleted_topic_begins_anew_and_never_comes_back() -> None:
    files = MemoryFiles()
    store = open_store(files)
    for topic in ("T", "U"):
        for number in range(5):
            store.append(record(b"old %d" % number, topic=topic))
    store.flush()
    delete_topic(store, "T", files)
    delete_topic(store, "unknown", files)
    assert [path for path in files.paths() if path.startswith("consumequeue/T")] == []
    assert store.max_offset("T", 0) == 0
    assert bodies(open_store(deepcopy(files))) == []
    assert store.append(record(b"new")).queue_offset == 0
    again = open_store(files)
    assert bodies(again) == [b"new"]
    assert len(bodies(again, "U")) == 5


def test_a_topic_stays_if_the_disk_does_not_let_it_go() -> None:
    disk = Disk()
    store = open_store(disk)
    store.append(record(b"here"))

    def full(number: int, name: str, path: str) -> None:
        if path.startswith("recovery.hint"):
            raise OSError(28, "No space left on device")

    disk.on_call = full
    with pytest.raises(StoreError, match="not deleted"):
        delete_topic(store, "T", disk)
    assert bodies(store) == [b"here"]
    disk.on_call = None
    delete_topic(store, "T", disk)
    assert bodies(open_store(disk.killed())) == []


def test_a_topic_that_is_being_deleted_takes_no_message_and_no_older_flush_brings_it_back() -> None:
    files = MemoryFiles()
    store = open_store(files)
    for topic in ("T", "U"):
        store.append(record(b"old", topic=topic))
    older = store.begin_flush(everything=True)
    assert older is not None
    doomed = store.begin_delete({"T": math.inf})
    assert bodies(store) == []
    with pytest.raises(StoreError, match="being deleted"):
        store.append(record())
    store.append(record(b"meanwhile", topic="U"))
    older.run()
    store.end_flush(older)
    store.distrust_hint()
    store.flush()
    for path in store.end_delete(doomed):
        files.remove(path)
    assert bodies(open_store(deepcopy(files))) == []
    store.deleted(doomed)
    assert store.append(record(b"new")).queue_offset == 0
    again = open_store(files)
    assert bodies(again) == [b"new"]
    assert bodies(again, "U") == [b"old", b"meanwhile"]


def test_entries_do_not_pile_up_in_memory() -> None:
    files = MemoryFiles()
    store = open_store(files, segment_bytes=1 << 30)
    for _ in range(70):
        store.append_batch([record(b"")] * 1000)
    written = read_whole(files, "consumequeue/T/0/00000000000000000000") or b""
    assert len(written.rstrip(b"\0")) // ENTRY_BYTES > 70_000 - 65_536
    assert len(messages(store)) == 70_000


def test_a_broker_that_continues_a_store_finds_everything() -> None:
    files = MemoryFiles()
    expected: list[bytes] = []
    for round_ in range(5):
        store = open_store(files)
        assert bodies(store) == expected
        for number in range(20):
            body = b"%d/%d" % (round_, number)
            store.append(record(body))
            expected.append(body)
        if round_ % 2:
            store.close()


def test_store_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(StoreError("disk full", True)))
    assert (str(error), error.is_unknown) == ("perhaps stored: disk full", True)
    assert str(StoreError("disk full")) == "not stored: disk full"
