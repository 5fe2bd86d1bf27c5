from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.broker.store.consume_queue import ENTRY, FILE_BYTES, FILE_ENTRIES, HOLE, ConsumeQueue, QueueFiles
from rocketapp.broker.store.files import MemoryFiles
from tests.unit.broker.store.disk import Disk
from tests.unit.broker.store.stores import Watched

FIRST = "consumequeue/T/0/00000000000000000000"
SECOND = "consumequeue/T/0/00000000000006000000"


def queue_of(files: MemoryFiles | Disk) -> ConsumeQueue:
    return ConsumeQueue("T", 0, QueueFiles(files))


def put(queue: ConsumeQueue, count: int) -> None:
    for _ in range(count):
        number = queue.max_offset
        queue.put(number * 100, 100, number % 7)


def listed(queue: ConsumeQueue, start: int, count: int) -> list[int]:
    return [physical // 100 for physical, _, _ in ENTRY.iter_unpack(queue.entries(start, count))]


def test_an_entry_is_what_apache_writes() -> None:
    assert ENTRY.pack(0, 0xD1, 0x27A807).hex() == "0000000000000000000000d1000000000027a807"
    assert HOLE.hex() == "00000000000000007fffffff0000000000000000"


def test_entries_wait_in_memory_until_they_are_written() -> None:
    files = MemoryFiles()
    queue = queue_of(files)
    put(queue, 10)
    assert files.names("consumequeue") == []
    assert (queue.min_offset, queue.max_offset) == (0, 10)
    queue.write()
    assert files.open(FIRST).size() == FILE_BYTES
    assert files.open(FIRST).read(20, 180) == ENTRY.pack(900, 100, 2)


@given(st.integers(0, 30), st.integers(0, 30), st.data())
def test_entries_are_read_alike_from_memory_and_files(written: int, more: int, data: st.DataObject) -> None:
    queue = queue_of(MemoryFiles())
    put(queue, written)
    queue.write()
    put(queue, more)
    start = data.draw(st.integers(0, written + more))
    count = data.draw(st.integers(0, written + more - start))
    assert listed(queue, start, count) == list(range(start, start + count))


def test_a_queue_goes_on_in_the_next_file() -> None:
    files = MemoryFiles()
    queue = queue_of(files)
    put(queue, FILE_ENTRIES + 5)
    queue.write()
    assert files.names("consumequeue/T/0") == [FIRST[-20:], SECOND[-20:]]
    put(queue, 3)
    assert listed(queue, FILE_ENTRIES - 2, 9) == list(range(FILE_ENTRIES - 2, FILE_ENTRIES + 7))
    queue.write()
    queue.cut(FILE_ENTRIES - 1)
    queue.zero_behind()
    assert files.names("consumequeue/T/0") == [FIRST[-20:]]
    assert files.open(FIRST).read(40, FILE_BYTES - 40) == ENTRY.pack(
        (FILE_ENTRIES - 2) * 100, 100, (FILE_ENTRIES - 2) % 7
    ) + bytes(20)


def test_what_is_cut_leaves_the_file_and_the_queue_goes_on_there() -> None:
    files = MemoryFiles()
    queue = queue_of(files)
    put(queue, 10)
    queue.write()
    queue.cut(4)
    queue.zero_behind()
    assert queue.max_offset == 4
    assert files.open(FIRST).read(100, 80) == bytes(100)
    put(queue, 2)
    assert listed(queue, 0, 6) == [0, 1, 2, 3, 4, 5]


def test_a_queue_that_begins_late_has_holes_in_front() -> None:
    files = MemoryFiles()
    queue = queue_of(files)
    queue.begin_at(FILE_ENTRIES + 2)
    put(queue, 3)
    queue.write()
    assert files.names("consumequeue/T/0") == [SECOND[-20:]]
    assert files.open(SECOND).read(60, 0) == HOLE * 2 + ENTRY.pack(
        (FILE_ENTRIES + 2) * 100, 100, (FILE_ENTRIES + 2) % 7
    )
    again = queue_of(files)
    assert again.open(FILE_ENTRIES + 5)
    again.find_min(0)
    assert (again.min_offset, again.max_offset) == (FILE_ENTRIES + 2, FILE_ENTRIES + 5)


def test_the_first_offset_is_that_of_the_first_message_that_the_log_still_has() -> None:
    queue = queue_of(MemoryFiles())
    put(queue, 20)
    for log_min, expected in ((0, 0), (1, 1), (700, 7), (1900, 19), (5000, 20)):
        queue.find_min(log_min)
        assert queue.min_offset == expected


def test_a_first_entry_that_points_behind_the_last_one_does_not_keep_a_queue_from_dropping_its_front() -> None:
    queue = queue_of(MemoryFiles())
    put(queue, 20)
    queue.replace(0, 1 << 60, 100, 0)  # one bit of it was lost
    queue.find_min(700)
    assert queue.min_offset == 7


@pytest.mark.parametrize("harm", ["missing", "short", "long", "gap"])
def test_a_queue_whose_files_are_not_complete_is_recognised(harm: str) -> None:
    files = MemoryFiles()
    for path in (FIRST, SECOND, "consumequeue/T/0/00000000000012000000"):
        files.open(path, create=True).truncate(FILE_BYTES)
    assert queue_of(files).open(700_000)
    if harm == "missing":
        files.remove("consumequeue/T/0/00000000000012000000")
    elif harm == "gap":
        files.remove(SECOND)
    else:
        files.open(SECOND).truncate(30 if harm == "short" else FILE_BYTES + 1)
    assert not queue_of(files).open(700_000)


def test_entries_of_deleted_segments_are_kept_as_numbers() -> None:
    files = MemoryFiles()
    queue = queue_of(files)
    put(queue, 20)
    queue.write()
    again = queue_of(files)
    again.open()
    again.keep_below(1200)
    assert again.max_offset == 12


def test_an_entry_whose_size_did_not_reach_the_disk_is_behind_the_end() -> None:
    files = MemoryFiles()
    queue = queue_of(files)
    put(queue, 3)
    queue.write()
    queue.replace(2, 200, 0, 0)
    again = queue_of(files)
    assert again.open()
    again.keep_below(1 << 40)
    assert (again.max_offset, again.last_physical) == (2, 100)


def test_what_the_disk_refuses_stays_in_memory() -> None:
    disk = Disk()
    queue = queue_of(disk)
    put(queue, 5)

    def fail(number: int, name: str, path: str) -> None:
        raise OSError(28, "No space left on device")

    disk.on_call = fail
    with pytest.raises(OSError, match="No space"):
        queue.write()
    assert listed(queue, 0, 5) == [0, 1, 2, 3, 4]
    disk.on_call = None
    queue.write()
    assert disk.open(FIRST).read(20, 80) == queue.entries(4, 1)


def test_few_files_are_open_at_once() -> None:
    files = Watched()
    opened = QueueFiles(files)
    queues = [ConsumeQueue("T", number, opened) for number in range(300)]
    for queue in queues:
        put(queue, 3)
        queue.write()
    assert len(files.opened) <= 128
    assert all(listed(queue, 0, 3) == [0, 1, 2] for queue in queues)
    assert len(opened.take_unsynced()) == 300
    assert opened.take_unsynced() == {}
    opened.close()
    assert not files.opened


def test_a_removed_queue_leaves_nothing() -> None:
    files = MemoryFiles()
    queue = queue_of(files)
    put(queue, 3)
    queue.write()
    queue.remove()
    assert list(files.paths()) == []


def test_a_queue_drops_the_files_that_hold_only_old_entries_and_never_the_last() -> None:
    files = MemoryFiles()
    queue = queue_of(files)
    queue.begin_at(FILE_ENTRIES - 10)
    put(queue, 20)
    queue.write()
    assert queue.drop_front((FILE_ENTRIES + 3) * 100) == [FIRST]
    files.remove(FIRST)
    assert (queue.min_offset, queue.max_offset) == (FILE_ENTRIES + 3, FILE_ENTRIES + 10)
    assert queue.drop_front(1 << 40) == []
    assert (queue.min_offset, queue.max_offset) == (FILE_ENTRIES + 10, FILE_ENTRIES + 10)
    again = queue_of(files)
    assert again.open(FILE_ENTRIES + 10)
    again.find_min((FILE_ENTRIES + 3) * 100)
    assert listed(again, again.min_offset, 7) == list(range(FILE_ENTRIES + 3, FILE_ENTRIES + 10))
