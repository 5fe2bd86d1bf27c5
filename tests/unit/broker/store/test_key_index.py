"""The index files: what Apache RocketMQ reads in them, and what a crash leaves."""

from __future__ import annotations

import contextlib
import errno
import struct
import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.broker.store.files import MemoryFiles, read_whole
from rocketapp.broker.store.key_index import KeyHash, KeyIndex
from rocketapp.broker.store.stored import Stored
from rocketapp.wire.java import string_hash
from rocketapp.wire.layout import TRANSACTION_ROLLBACK
from tests.unit.broker.store.disk import Disk, Stopped, disk_of

LATEST = 2**63 - 1
NOW = 1_700_000_000.0


def stored(number: int, keys: str = "", *, unique: bool = True, sys_flag: int = 0) -> Stored:
    raw = (f"UNIQ_KEY\x01ID{number}\x02" if unique else "") + (f"KEYS\x01{keys}\x02" if keys else "")
    return Stored(number * 100, 100, "T", 0, number, sys_flag, int(NOW * 1000) + number * 1000, raw.encode())


def index_of(files: MemoryFiles | Disk, *, slots: int = 7, items: int = 10) -> KeyIndex:
    return KeyIndex(files, lambda: NOW, slots=slots, items=items)


def numbers(index: KeyIndex, key: str, begin_ms: int = 0, end_ms: int = LATEST) -> list[int]:
    return [physical // 100 for physical in index.find("T", key, begin_ms, end_ms)]


def take(index: KeyIndex, records: list[Stored]) -> None:
    index.follow(records)


def save(index: KeyIndex) -> None:
    for step in index.saving():
        step()


@given(st.text(min_size=1, max_size=20), st.text(max_size=200))
def test_the_hash_is_java_s(topic: str, key: str) -> None:
    hashes = KeyHash()
    expected = abs(string_hash(f"{topic}#{key}"))
    for _ in range(2):
        assert hashes.of(topic, key.encode("utf-8", "replace")) == expected or "?" in key or expected == 1 << 31


@pytest.mark.parametrize("length", [0, 1, 127, 128, 133, 134, 1000])
def test_the_hash_of_a_key_of_any_length_is_java_s(length: int) -> None:
    key = "key-" * 250
    assert KeyHash().of("T", key[:length].encode()) == abs(string_hash(f"T#{key[:length]}"))


def test_many_keys_of_many_records_are_taken_in_several_times_and_are_not_in_memory_twice() -> None:
    index, keys = index_of(MemoryFiles(), items=1 << 20), " ".join(map(str, range(1000)))
    records = (stored(number, keys) for number in range(100))
    tracemalloc.start()
    try:
        taken = [index.follow(records) for _ in range(20)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken == [5] * 20
    assert index.unsaved == 100_100
    assert peak < 5_000_000


def test_a_file_is_what_apache_writes() -> None:
    files = MemoryFiles()
    index = index_of(files)
    take(index, [stored(3, "a", unique=False), stored(5, "a", unique=False)])
    save(index)
    (name,) = files.names("index")
    assert (len(name), name[:4]) == (17, "2023")
    data = read_whole(files, f"index/{name}")
    assert data is not None
    assert len(data) == 40 + 7 * 4 + 10 * 20
    ms = int(NOW * 1000)
    assert struct.unpack_from(">qqqqii", data) == (ms + 3000, ms + 5000, 300, 500, 1, 3)
    key_hash = abs(string_hash("T#a"))
    slots = struct.unpack_from(">7i", data, 40)
    assert slots == tuple(2 if slot == key_hash % 7 else 0 for slot in range(7))
    items = [struct.unpack_from(">iqii", data, 68 + 20 * number) for number in (1, 2)]
    assert items == [(key_hash, 300, 0, 0), (key_hash, 500, 2, 1)]


def test_every_key_leads_to_its_messages_the_newest_first() -> None:
    index = index_of(MemoryFiles())
    take(index, [stored(number, f"all k{number % 3}") for number in range(50)])
    assert numbers(index, "all") == list(range(49, -1, -1))
    assert numbers(index, "k2") == list(range(47, -1, -3))
    assert numbers(index, "ID7") == [7]
    ms = int(NOW * 1000)
    assert numbers(index, "all", ms + 10_000, ms + 12_000) == [12, 11, 10]


def test_what_was_put_is_found_before_it_is_saved_meanwhile_and_then() -> None:
    index = index_of(MemoryFiles(), items=100)
    take(index, [stored(number, "all") for number in range(3)])
    save(index)
    take(index, [stored(number, "all") for number in range(3, 6)])
    assert numbers(index, "all") == [5, 4, 3, 2, 1, 0]
    steps = index.saving()
    next(steps)()
    take(index, [stored(6, "all")])
    assert numbers(index, "all") == [6, 5, 4, 3, 2, 1, 0]
    assert next(steps, None) is None
    assert numbers(index, "all") == [6, 5, 4, 3, 2, 1, 0]
    assert index.unsaved == 2
    save(index)
    assert numbers(index, "all") == [6, 5, 4, 3, 2, 1, 0]


def test_items_are_synced_before_slots_lead_to_them_and_slots_before_the_header_counts_the_items() -> None:
    disk, calls = Disk(), list[str]()
    index = index_of(disk)
    take(index, [stored(1)])
    disk.on_call = lambda number, name, path: calls.append(name)
    save(index)
    assert calls == ["write", "sync_directory", "sync", "write", "sync", "write"]


def test_slots_that_are_far_apart_and_near_ones_are_written() -> None:
    files = MemoryFiles()
    index = index_of(files, slots=1_000_000, items=50_000)
    for begin in range(0, 6000, 2000):
        take(index, [stored(number, f"k{number % 10}") for number in range(begin, begin + 2000)])
        save(index)
    again = index_of(files, slots=1_000_000, items=50_000)
    assert all(numbers(again, f"ID{number}") == [number] for number in range(6000))
    assert numbers(again, "k3") == list(range(5993, -1, -10))


def test_what_was_rolled_back_has_no_key() -> None:
    index = index_of(MemoryFiles())
    take(index, [stored(1, "a", sys_flag=TRANSACTION_ROLLBACK)])
    assert numbers(index, "a") == []
    assert index.position == 200


def test_a_time_that_a_file_cannot_say_is_said_as_that_of_its_first_record() -> None:
    files = MemoryFiles()
    index, first_ms = index_of(files), int(NOW * 1000)
    for number, after_ms in enumerate((0, -5000, 5000, 1000 << 31)):
        take(index, [stored(number)._replace(stored_ms=first_ms + after_ms)])
    save(index)
    data = read_whole(files, f"index/{files.names('index')[0]}")
    assert data is not None
    seconds = [struct.unpack_from(">iqii", data, 40 + 7 * 4 + item * 20)[2] for item in range(1, 5)]
    assert seconds == [0, 0, 5, 0]


def test_files_that_lead_below_the_log_go_and_the_newest_stays() -> None:
    files = MemoryFiles()
    index = index_of(files)
    take(index, [stored(number) for number in range(20)])
    save(index)
    before = files.names("index")
    assert index.begin_at(1200) == [f"index/{before[0]}"]
    assert len(index.begin_at(1 << 40)) == 1
    assert numbers(index, "ID19") == [19]


@pytest.mark.parametrize("before", [2, 3, 4, 9, 1 << 30])
def test_an_item_that_does_not_lead_back_ends_the_search(before: int) -> None:
    files = MemoryFiles()
    index = index_of(files)
    take(index, [stored(number, "all", unique=False) for number in range(4)])
    save(index)
    path = f"index/{files.names('index')[0]}"
    third = 40 + 7 * 4 + 3 * 20
    files.open(path).write(struct.pack(">i", before), third + 16)
    assert numbers(index_of(files), "all") == ([3, 2, 1, 0] if before == 2 else [3, 2])


@pytest.mark.parametrize("before", [4, 5, 1 << 30])
def test_an_item_that_is_not_counted_and_does_not_lead_back_ends_the_start(before: int) -> None:
    files = MemoryFiles()
    index = index_of(files)
    take(index, [stored(number, "all", unique=False) for number in range(4)])
    save(index)
    file = files.open(f"index/{files.names('index')[0]}")
    file.write(struct.pack(">i", 4), 36)  # the last item is not counted
    file.write(struct.pack(">i", before), 40 + 7 * 4 + 4 * 20 + 16)
    again = index_of(files)
    assert numbers(again, "all") == []
    take(again, [stored(number, "all", unique=False) for number in range(4)])
    assert numbers(again, "all") == [3, 2, 1, 0]


@pytest.mark.parametrize("damage", [-5, 2_000_000_000])
def test_a_slot_that_leads_to_no_item_is_an_empty_one(damage: int) -> None:
    files = MemoryFiles()
    index = index_of(files, slots=1)
    take(index, [stored(1, "a", unique=False)])
    save(index)
    file = files.open(f"index/{files.names('index')[0]}")
    file.write(struct.pack(">i", damage), 40)
    assert numbers(index, "a") == []
    take(index, [stored(2, "a", unique=False)])
    save(index)
    assert numbers(index, "a") == [2]
    assert struct.unpack(">i", file.read(4, 40 + 4 + 2 * 20 + 16)) == (0,), "item 2 leads to none before it"


@pytest.mark.parametrize("damage", [b"\xff" * 40, b"\0" * 36 + b"\x7f\0\0\0"])
def test_a_damaged_file_is_left_alone_and_what_it_held_is_taken_in_again(damage: bytes) -> None:
    files = MemoryFiles()
    index = index_of(files)
    take(index, [stored(number) for number in range(12)])
    save(index)
    files.open(f"index/{files.names('index')[-1]}").write(damage, 0)
    again = index_of(files)
    assert again.position == 800  # the last that the file before it leads to
    take(again, [stored(number) for number in range(8, 12)])
    assert [numbers(again, f"ID{number}")[0] for number in range(12)] == list(range(12))


@given(st.integers(1, 60), st.integers(0, 1000), st.booleans())
def test_a_crash_at_any_file_call_loses_no_key(stop_at: int, seed: int, has_power: bool) -> None:
    def stop(number: int, name: str, path: str) -> None:
        if number >= stop_at:
            raise Stopped

    disk = disk_of(MemoryFiles())
    disk.on_call = stop
    with contextlib.suppress(Stopped):
        index = index_of(disk)
        for begin in range(0, 30, 3):
            take(index, [stored(number, "all") for number in range(begin, begin + 3)])
            save(index)
    files = disk.killed() if has_power else disk.without_power(Random(seed))
    again = index_of(files)
    take(again, [stored(number, "all") for number in range(again.position // 100, 30)])
    assert all(number in numbers(again, f"ID{number}") for number in range(30))
    assert set(numbers(again, "all")) == set(range(30))


def test_slots_far_apart_that_lead_behind_the_header_are_taken_back_at_the_next_start() -> None:
    disk = Disk()
    index = index_of(disk, slots=5_000)
    keys = {number: str(number) * number for number in range(1, 9)}
    take(index, [stored(1, keys[1], unique=False)])
    save(index)
    take(index, [stored(number, keys[number], unique=False) for number in range(2, 9)])

    def stop_before_the_header(number: int, name: str, path: str) -> None:
        calls.append(name)
        if calls.count("sync") == 2 and name == "write":
            raise Stopped

    calls = list[str]()
    disk.on_call = stop_before_the_header
    with contextlib.suppress(Stopped):
        save(index)
    disk.on_call = None
    again = index_of(disk, slots=5_000)
    assert [numbers(again, key) for key in keys.values()] == [[1], *[[]] * 7]
    slots = read_whole(disk, f"index/{disk.names('index')[0]}")[40 : 40 + 4 * 5_000]
    assert sum(slots) == 1, "every slot is empty but the one that leads to item 1"


@given(st.integers(1, 60), st.integers(0, 1000))
def test_a_call_that_fails_once_costs_no_key_also_when_the_power_goes_later(fail_at: int, seed: int) -> None:
    def fail(number: int, name: str, path: str) -> None:
        if number == fail_at:
            raise OSError(errno.EIO, "Input/output error", path)

    disk = disk_of(MemoryFiles())
    disk.on_call = fail
    index = index_of(disk)
    for begin in range(0, 30, 3):
        position = index.position
        try:
            take(index, [stored(number, "all") for number in range(begin, begin + 3)])
        except OSError:
            take(index, [stored(number, "all") for number in range(index.position // 100, begin + 3)])
        assert index.position > position
        with contextlib.suppress(OSError):
            save(index)
    again = index_of(disk.without_power(Random(seed)))
    take(again, [stored(number, "all") for number in range(again.position // 100, 30)])
    assert all(number in numbers(again, f"ID{number}") for number in range(30))
    assert set(numbers(again, "all")) == set(range(30))


def test_what_was_taken_in_before_a_file_could_not_be_made_is_not_taken_in_again() -> None:
    def full(number: int, name: str, path: str) -> None:
        if name == "create" and len(disk.names("index")) == 1:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    disk = disk_of(MemoryFiles())
    disk.on_call = full
    index = index_of(disk)
    with pytest.raises(OSError, match="space"):
        take(index, [stored(number, "all") for number in range(6)])
    disk.on_call = None
    assert index.position == 400  # of the record with one key in the full file, and none in the next one
    take(index, [stored(number, "all") for number in range(4, 6)])
    assert numbers(index, "all") == [5, 4, 3, 2, 1, 0]


def test_a_file_that_is_not_saved_stays_although_the_log_begins_behind_it() -> None:
    index = index_of(MemoryFiles())
    take(index, [stored(number) for number in range(20)])
    steps = index.saving()
    assert index.begin_at(1 << 40) == []
    for step in steps:
        step()
    assert len(index.begin_at(1 << 40)) == 2
