"""What a disk does to a store at its worst, one promise at a time."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from rocketapp.broker.store.checkpoint import CHECKPOINT, load_hint
from rocketapp.broker.store.files import MemoryFiles, read_whole
from rocketapp.broker.store.store import MessageStore
from rocketapp.errors import StoreError
from rocketapp.model.event import LogCut, RecordDamaged
from tests.unit.broker.store.disk import Disk, disk_of
from tests.unit.broker.store.stores import Events, Watched, bodies, commit, open_store, record


def filled(store: MessageStore, count: int) -> list[bytes]:
    made = [b"%d" % number + bytes(250) for number in range(count)]
    for body in made:
        store.append(record(body))
    return made


def failing(call: str, start: str, code: int = errno.EIO) -> Callable[[int, str, str], None]:
    def fail(number: int, name: str, path: str) -> None:
        if name == call and path.startswith(start):
            raise OSError(code, "injected")

    return fail


def without_hint(files: MemoryFiles) -> MemoryFiles:
    for path in [path for path in files.paths() if path.startswith(("recovery.hint", "consumequeue"))]:
        files.remove(path)
    return files


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_bad_record_behind_a_stale_mark_costs_itself(is_clean: bool) -> None:
    """The mark of the first flush is all that the disk has of the checkpoint, and six segments follow it."""
    files = MemoryFiles()
    store = open_store(files)
    old = read_whole(files, CHECKPOINT)
    expected = filled(store, 1000)
    assert len(files.names("commitlog")) >= 6
    entry = store.entry("T", 0, 100)
    assert entry is not None
    if is_clean:
        store.close()
    assert old is not None
    files.open(CHECKPOINT).write(old, 0)
    files.open("commitlog/00000000000000000000").write(b"ROT", entry[0] + 100)
    events = Events()
    store = open_store(without_hint(files), observe=events)
    assert bodies(store) == expected[:100] + expected[101:]
    assert events.of(RecordDamaged)
    assert not events.of(LogCut)


def test_a_tail_that_is_cut_off_is_kept_beside_the_log() -> None:
    files = MemoryFiles()
    store = open_store(files)
    expected = filled(store, 5)
    torn = store.append(record(b"torn"))
    store.append(record(b"whole, and unsynced"))
    files.open("commitlog/00000000000000000000").write(b"ROT", torn.physical + 90)
    store = open_store(files)
    assert bodies(store) == expected
    (name,) = files.names("cut")
    assert name == f"{torn.physical:020d}.0"
    assert b"whole, and unsynced" in (read_whole(files, f"cut/{name}") or b"")


def test_pages_that_a_failed_sync_dropped_are_never_called_durable() -> None:
    """At a roll too: the segment that is full fails to sync, and everything that follows would succeed."""
    disk = Disk()
    store = open_store(disk)
    expected = filled(store, 120)
    store.flush()
    durable = store.durable_position
    filled(store, 100)
    disk.on_call = failing("sync", "commitlog/00000000000000000000")
    with pytest.raises(StoreError) as failed:
        filled(store, 400)
    assert failed.value.is_unknown
    disk.on_call = None
    store.flush()
    commit(store)
    assert store.durable_position == durable
    for seed in range(10):
        survived = bodies(open_store(disk.without_power(Random(seed))))
        assert survived[:120] == expected


def test_what_a_restart_finds_after_a_failed_sync_is_written_again() -> None:
    """Its pages are in memory, clean, and not on the disk: a sync alone would not bring them there."""
    disk = Disk()
    store = open_store(disk)
    store.append(record(b"a"))
    store.flush()
    store.append(record(b"b"))
    disk.on_call = failing("sync", "commitlog")
    store.flush()
    disk.on_call = None
    store.close()
    store = open_store(disk)
    assert bodies(store) == [b"a", b"b"]
    store.append(record(b"c"))
    commit(store)
    for seed in range(10):
        assert bodies(open_store(disk.without_power(Random(seed)))) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("call", ["open", "sync"])
def test_a_consume_queue_that_cannot_be_synced_does_not_stop_the_log(call: str) -> None:
    disk = Disk(sees_reads=True)
    store = open_store(disk)
    expected = filled(store, 10)
    store.flush()
    expected += filled(store, 10)
    disk.on_call = failing(call, "consumequeue", errno.EMFILE if call == "open" else errno.EIO)
    store.flush()
    disk.on_call = None
    assert store.problem is None
    assert store.durable_position == store.end_position
    expected += filled(store, 10)
    store.flush()
    for seed in range(20):
        assert bodies(open_store(disk.without_power(Random(seed)))) == expected


def test_without_descriptors_a_send_is_refused_and_the_store_goes_on() -> None:
    disk = Disk(sees_reads=True)
    store = open_store(disk)
    disk.on_call = failing("open", "", errno.EMFILE)
    with pytest.raises(StoreError) as refused:
        filled(store, 400)
    assert not refused.value.is_unknown
    disk.on_call = None
    store.append(record(b"again"))
    store.flush()
    assert bodies(open_store(disk.killed()))[-1] == b"again"


@pytest.mark.parametrize("which", ["middle", "last"])
@pytest.mark.parametrize("has_hint", [True, False])
def test_a_sector_that_cannot_be_read_costs_its_messages_and_no_start(which: str, has_hint: bool) -> None:
    files = MemoryFiles()
    store = open_store(files)
    expected = filled(store, 100)
    entry = store.entry("T", 0, 50 if which == "middle" else 99)
    assert entry is not None
    store.close()
    disk = disk_of(files if has_hint else without_hint(files))
    disk.bad = {("commitlog/00000000000000000000", entry[0] // 512)}
    events = Events()
    store = open_store(disk, observe=events)
    survived = bodies(store)
    assert len(survived) >= 97
    assert set(survived) <= set(expected)
    next_offset = store.append(record(b"next")).queue_offset
    assert next_offset == (100 if has_hint or which == "middle" else len(survived))
    assert bodies(store) == [*survived, b"next"]


def test_a_read_that_fails_once_is_repeated() -> None:
    disk = Disk(sees_reads=True)
    store = open_store(disk)
    expected = filled(store, 3)

    def once(number: int, name: str, path: str) -> None:
        if name == "read" and path.startswith("commitlog"):
            disk.on_call = None
            raise OSError(errno.EIO, "injected")

    disk.on_call = once
    assert bodies(store) == expected


@pytest.mark.parametrize("when", ["while it runs", "between two runs"])
@pytest.mark.parametrize("harm", ["zeroed", "another page", "unreadable"])
def test_a_lost_page_of_a_consume_queue_hides_no_message(when: str, harm: str) -> None:
    disk = Disk()
    store = open_store(disk)
    expected = filled(store, 600)
    other = record(b"other", queue_id=1)
    for _ in range(50):
        store.append(other)
    store.flush()
    path = "consumequeue/T/0/00000000000000000000"
    if when == "between two runs":
        store.close()
    queue = disk.open(path)
    if harm == "unreadable":
        disk.bad = {(path, sector) for sector in range(8, 16)}
    else:
        queue.write(queue.read(4096, 0) if harm == "another page" else bytes(4096), 4096)
    if when == "between two runs":
        store = open_store(disk)
    events = Events()
    assert bodies(store) == expected
    assert not events.of(RecordDamaged)
    store.close()
    assert bodies(open_store(disk)) == expected
    assert queue.read(4096, 4096).strip(b"\0")


def test_a_tag_is_found_behind_a_lost_page() -> None:
    disk = Disk()
    store = open_store(disk)
    for number in range(300):
        store.append(record(b"%d" % number, tag="paid"))
    store.flush()
    code = store.entry("T", 0, 0)[2]
    disk.open("consumequeue/T/0/00000000000000000000").write(bytes(4096), 0)
    found = store.read("T", 0, 0, max_messages=32, max_bytes=1 << 20, matches=lambda each: each == code)
    assert found.count == 32


def test_a_damaged_record_is_looked_for_once() -> None:
    files = Watched()
    store = open_store(files)
    expected = filled(store, 300)
    entry = store.entry("T", 0, 150)
    assert entry is not None
    files.open("commitlog/00000000000000000000").write(bytes(30), entry[0])
    assert bodies(store) == expected[:150] + expected[151:]
    files.bytes_read("commitlog")
    assert bodies(store) == expected[:150] + expected[151:]
    assert sum(files.bytes_read("commitlog")) < 2 * store.end_position


def test_a_queue_whose_directory_has_no_room_is_written_later() -> None:
    disk = Disk()
    store = open_store(disk)
    expected = filled(store, 5)
    disk.on_call = failing("create", "consumequeue", errno.ENOSPC)
    store.flush()
    disk.on_call = None
    store.flush()
    hint = load_hint(disk)
    assert hint is not None
    assert hint.position == store.end_position
    assert bodies(open_store(disk.killed())) == expected
