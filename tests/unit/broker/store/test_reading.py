from __future__ import annotations

import pytest

from rocketapp.broker.store.consume_queue import FILE_BYTES, HOLE
from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.reading import ReadResult, ReadStatus
from rocketapp.broker.store.store import MessageStore
from rocketapp.config.broker import BrokerConfig
from rocketapp.model.event import RecordDamaged
from rocketapp.wire.java import tags_code
from tests.unit.broker.store.stores import Events, Watched, bodies, open_store, record


def read(store: MessageStore, offset: int, *, count: int = 32, max_bytes: int = 1 << 30, tag: str = "") -> ReadResult:
    code = tags_code(tag)
    matches = (lambda each: each == code) if tag else None
    return store.read("T", 0, offset, max_messages=count, max_bytes=max_bytes, matches=matches)


def filled(count: int, body: bytes = b"x", files: MemoryFiles | None = None) -> MessageStore:
    store = open_store(files, segment_bytes=1 << 24)
    for number in range(count):
        store.append(record(body + b"%d" % number, tag="ab"[number % 2]))
    return store


def test_an_unknown_queue_is_no_queue() -> None:
    assert read(filled(0), 5) == (ReadStatus.NO_MATCHED_LOGIC_QUEUE, b"", 0, 0, 0, 0)


def test_an_empty_queue_answers_zero() -> None:
    store = open_store()
    with pytest.raises(Exception, match="do not fit"):
        store.append(record(bytes(100_000)))
    assert read(store, 5) == (ReadStatus.NO_MESSAGE_IN_QUEUE, b"", 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (10, ReadStatus.OFFSET_OVERFLOW_ONE, 10),
        (11, ReadStatus.OFFSET_OVERFLOW_BADLY, 10),
        (99, ReadStatus.OFFSET_OVERFLOW_BADLY, 10),
        (-1, ReadStatus.OFFSET_TOO_SMALL, 0),
    ],
)
def test_offsets_outside_the_queue_are_answered_as_apache_does(
    offset: int, status: ReadStatus, next_offset: int
) -> None:
    assert read(filled(10), offset) == (status, b"", 0, next_offset, 0, 10)


def test_an_offset_below_the_first_message_leads_to_it() -> None:
    """Apache deleted old segments: the queue begins with holes."""
    files = MemoryFiles()
    store = filled(10, files=files)
    store.close()
    queue = files.open("consumequeue/T/0/00000000000000000000")
    queue.write(HOLE * 4, 0)
    store = open_store(files, segment_bytes=1 << 24)
    assert read(store, 2) == (ReadStatus.OFFSET_TOO_SMALL, b"", 0, 4, 4, 10)
    assert read(store, 4).count == 6
    assert queue.size() == FILE_BYTES


def test_a_read_ends_at_its_number_of_messages() -> None:
    store = filled(100)
    assert [read(store, 0, count=count)[2:4] for count in (1, 5, 32, 33, 1000)] == [
        (1, 1),
        (5, 5),
        (32, 32),
        (32, 32),
        (32, 32),
    ]
    assert read(store, 95)[2:] == (5, 100, 0, 100)
    assert read(store, 0, count=0)[2:4] == (1, 1)


def test_a_read_ends_at_its_bytes_but_brings_the_first_message_whatever_its_size() -> None:
    store = filled(10, bytes(100_000))
    one = len(read(store, 0, count=1).body)
    assert read(store, 0)[2:4] == (2, 2)
    assert read(store, 0, max_bytes=2 * one)[2:4] == (2, 2)
    assert read(store, 0, max_bytes=2 * one - 1)[2:4] == (1, 1)
    assert read(store, 0, max_bytes=1)[2:4] == (1, 1)
    huge = open_store(segment_bytes=1 << 24)
    huge.append(record(bytes(4_194_304)))
    assert read(huge, 0).count == 1


def test_only_matching_messages_are_read_and_the_next_offset_is_behind_the_last_one_seen() -> None:
    store = filled(20)
    result = read(store, 0, count=4, tag="b")
    assert (result.status, result.count, result.next_offset) == (ReadStatus.FOUND, 4, 8)
    assert read(store, 8, tag="b")[2:4] == (6, 20)
    assert read(store, 0, tag="c") == (ReadStatus.NO_MATCHED_MESSAGE, b"", 0, 20, 0, 20)


def test_a_read_looks_at_800_messages_unless_it_asks_for_more() -> None:
    store = filled(2000)
    assert read(store, 0, tag="c").next_offset == 800
    assert read(store, 0, tag="c", count=1500).next_offset == 1500


def test_no_read_looks_at_more_than_8192_messages_whatever_it_asks_for() -> None:
    store = filled(9000)
    assert read(store, 0, count=2**31 - 1, tag="c").next_offset == 8192


def test_records_are_exactly_those_of_the_log_across_queues_and_segments() -> None:
    store = open_store(segment_bytes=65_536)
    expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for number in range(300):
        body = b"%d:" % number + bytes(number * 7 % 3000)
        store.append(record(body, queue_id=number % 3))
        expected[number % 3].append(body)
    assert {queue_id: bodies(store, queue_id=queue_id) for queue_id in expected} == expected


def test_neighbours_are_read_with_one_call() -> None:
    files = Watched()
    store = filled(64, files=files)
    files.reads.clear()
    result = read(store, 0)
    assert files.bytes_read("commitlog") == [len(result.body)]
    assert read(store, 0, tag="a").count == 32
    assert len(files.bytes_read("commitlog")) == 1


def test_a_damaged_message_is_left_out_and_told() -> None:
    files, events = MemoryFiles(), Events()
    store = open_store(files, observe=events)
    places = [store.append(record(b"body %d" % number)) for number in range(5)]
    store.close()
    files.open("commitlog/00000000000000000000").write(b"X", places[2].physical + 90)
    store = open_store(files, observe=events)
    assert bodies(store) == [b"body 0", b"body 1", b"body 3", b"body 4"]
    assert events.of(RecordDamaged) == [RecordDamaged("T", 0, 2, places[2].physical)]
    assert read(store, 2, count=1) == (ReadStatus.NO_MATCHED_MESSAGE, b"", 0, 3, 0, 5)


@pytest.mark.parametrize(
    "entry",
    [
        b"\x7f" * 20,
        bytes(20),
        (1 << 60).to_bytes(8, "big") + bytes([0, 0, 0, 200]) + bytes(8),
        bytes(8) + (1 << 30).to_bytes(4, "big") + bytes(8),
        b"\xff" * 20,
    ],
)
def test_a_damaged_entry_is_made_again_and_costs_nothing(entry: bytes) -> None:
    files = MemoryFiles()
    store = filled(5, files=files)
    store.flush()
    queue = files.open("consumequeue/T/0/00000000000000000000")
    before = queue.read(100, 0)
    queue.write(entry, 40)
    assert bodies(store) == [b"x0", b"x1", b"x2", b"x3", b"x4"]
    assert queue.read(100, 0) == before


def test_a_hole_is_no_message() -> None:
    files = MemoryFiles()
    store = filled(5, files=files)
    store.flush()
    files.open("consumequeue/T/0/00000000000000000000").write(HOLE, 40)
    assert bodies(store) == [b"x0", b"x1", b"x3", b"x4"]


def test_a_directory_serves_a_damaged_queue_without_reading_gigabytes() -> None:
    files = Watched()
    store = MessageStore(files, BrokerConfig(), _Clock())
    store.append(record(b"x"))
    store.append(record(bytes(2_000_000)))
    store.flush()
    files.open("consumequeue/T/0/00000000000000000000").write((2_000_000).to_bytes(4, "big"), 8)
    files.reads.clear()
    assert read(store, 0, count=1).count == 1
    assert max(files.bytes_read("commitlog")) < 3_000_000


class _Clock:
    def now(self) -> float:
        return 1.7e9
