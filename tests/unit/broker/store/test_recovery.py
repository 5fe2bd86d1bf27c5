"""Single situations; tests/property/test_store_crashes.py searches for the others."""

from __future__ import annotations

from copy import deepcopy

import pytest

from rocketapp.broker.store.checkpoint import CHECKPOINT, HINT
from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.store import MessageStore
from rocketapp.model.event import LogCut, RecordDamaged, StoreRecovered
from tests.unit.broker.store.disk import Disk
from tests.unit.broker.store.stores import SEGMENT, Events, Watched, bodies, open_store, record

LOG = "commitlog/00000000000000000000"


def remove(files: MemoryFiles, *starts: str) -> None:
    for path in [path for path in files.paths() if path.startswith(starts)]:
        files.remove(path)


def recovered(files: MemoryFiles) -> tuple[MessageStore, StoreRecovered, Events]:
    events = Events()
    store = open_store(files, observe=events)
    (event,) = events.of(StoreRecovered)
    assert isinstance(event, StoreRecovered)
    return store, event, events


def numbered(store: MessageStore, numbers: range) -> list[bytes]:
    made = [b"%d" % number + bytes(200) for number in numbers]
    for body in made:
        store.append(record(body))
    return made


def test_after_a_clean_stop_nothing_has_to_be_read_again() -> None:
    files = MemoryFiles()
    store = open_store(files)
    expected = numbered(store, range(50))
    store.close()
    store, event, _ = recovered(files)
    assert (event.scanned_bytes, event.is_rebuilt) == (0, False)
    assert bodies(store) == expected


def test_a_start_looks_at_the_first_and_the_last_entry_of_a_queue() -> None:
    disk = Disk(sees_reads=True)
    store = open_store(disk)
    numbered(store, range(300))
    store.close()
    reads = list[str]()
    disk.on_call = lambda number, name, path: reads.append(path) if name == "read" else None
    open_store(disk)
    assert len([path for path in reads if path.startswith("consumequeue/")]) <= 3


def test_after_a_kill_only_what_came_after_the_last_hint_is_read() -> None:
    files = MemoryFiles()
    store = open_store(files)
    expected = numbered(store, range(50))
    store.flush()
    hinted = store.end_position
    expected += numbered(store, range(50, 60))
    end = store.end_position
    store, event, _ = recovered(files)
    assert (event.scanned_bytes, event.records, event.is_rebuilt) == (end - hinted, 10, False)
    assert bodies(store) == expected


def test_a_lost_queue_is_made_again_from_the_whole_log() -> None:
    files = MemoryFiles()
    store = open_store(files)
    expected = numbered(store, range(300))
    store.append(record(b"other", topic="U"))
    store.close()
    assert len(files.names("commitlog")) > 1
    remove(files, "consumequeue/T")
    store, event, _ = recovered(files)
    assert event.is_rebuilt
    assert bodies(store) == expected
    assert bodies(store, "U") == [b"other"]
    store.close()
    assert recovered(files)[1].scanned_bytes == 0


def test_a_directory_with_a_log_alone_is_enough() -> None:
    files = MemoryFiles()
    store = open_store(files)
    expected = numbered(store, range(300))
    remove(files, "consumequeue", CHECKPOINT, HINT, "abort")
    store, event, _ = recovered(files)
    assert (event.is_rebuilt, event.records) == (True, 300)
    assert bodies(store) == expected


def test_segments_that_apache_prepared_ahead_do_no_harm() -> None:
    files = MemoryFiles()
    expected = numbered(open_store(files), range(10))
    for position in (65_536, 131_072):
        files.open(f"commitlog/{position:020d}", create=True).truncate(65_536)
    store, _, _ = recovered(files)
    assert bodies(store) == expected
    assert files.names("commitlog") == ["00000000000000000000"]
    expected += numbered(store, range(10, 400))
    assert bodies(recovered(files)[0]) == expected


def test_what_apache_wrote_behind_the_hint_is_found() -> None:
    """The hint of an earlier run of ours stays valid while another broker goes on with the log."""
    files = MemoryFiles()
    store = open_store(files)
    expected = numbered(store, range(20))
    store.close()
    hint = deepcopy(files)
    store = open_store(files)
    expected += numbered(store, range(20, 40))
    store.append(record(b"new topic", topic="U"))
    store.close()
    data = hint.open(HINT)
    files.open(HINT).truncate(0)
    files.open(HINT).write(data.read(data.size(), 0), 0)
    files.open(CHECKPOINT).write(bytes(4096), 0)
    store, event, _ = recovered(files)
    assert (event.records, event.is_rebuilt) == (21, False)
    assert (bodies(store), bodies(store, "U")) == (expected, [b"new topic"])


def test_queues_keep_their_numbers_when_old_segments_are_deleted() -> None:
    files = MemoryFiles()
    store = open_store(files)
    store.append(record(b"only in a deleted segment", topic="V"))
    expected = numbered(store, range(600))
    store.close()
    first_left = files.names("commitlog")[1]
    files.remove(LOG)
    for lost in ((), (HINT,), (HINT, CHECKPOINT), (HINT, "consumequeue/T")):
        harmed = deepcopy(files)
        remove(harmed, *lost) if lost else None
        store, _, _ = recovered(harmed)
        first = store.min_offset("T", 0)
        assert 0 < first < 600
        assert store.entry("T", 0, first)[0] == int(first_left)  # type: ignore[index]
        assert bodies(store) == expected[first:]
        assert store.read("T", 0, 0, max_messages=1, max_bytes=1).status == "OFFSET_TOO_SMALL"
        assert (store.min_offset("V", 0), store.max_offset("V", 0)) == (1, 1)
        assert store.append(record(b"next")).queue_offset == 600


def test_a_damaged_record_in_the_middle_keeps_its_number_and_its_neighbours() -> None:
    files = MemoryFiles()
    store = open_store(files)
    expected = numbered(store, range(10))
    place = store.entry("T", 0, 4)
    assert place is not None
    store.close()
    files.open(LOG).write(b"ROTTEN", place[0] + 90)
    remove(files, "consumequeue", HINT)
    store, event, events = recovered(files)
    assert event.records == 10
    assert bodies(store) == expected[:4] + expected[5:]
    assert RecordDamaged("T", 0, 4, place[0]) in events
    assert not events.of(LogCut)
    assert store.append(record()).queue_offset == 10


@pytest.mark.parametrize("is_known", [True, False])
def test_zeros_where_records_were_synced_do_not_end_the_log(is_known: bool) -> None:
    files = MemoryFiles()
    store = open_store(files)
    expected = numbered(store, range(10))
    places = [store.entry("T", 0, offset) for offset in (4, 6)]
    assert places[0] is not None
    assert places[1] is not None
    store.close()
    files.open(LOG).write(bytes(places[1][0] - places[0][0]), places[0][0])
    remove(files, HINT, *([] if is_known else [CHECKPOINT]))
    store, _, events = recovered(files)
    assert bodies(store) == expected[:4] + expected[6:]
    assert store.max_offset("T", 0) == 10
    assert events.of(RecordDamaged)
    assert not events.of(LogCut)


def test_an_unfinished_write_is_cut_and_told() -> None:
    files = MemoryFiles()
    store = open_store(files)
    expected = numbered(store, range(5))
    last = store.append(record(b"torn"))
    files.open(LOG).truncate(last.physical + 20)
    files.open(LOG).truncate(65_536)
    store, _, events = recovered(files)
    assert events.of(LogCut) == [LogCut(last.physical, "an unfinished write")]
    assert bodies(store) == expected
    assert store.append(record(b"again")) == last._replace(size=last.size + 1, body=b"again")


def test_a_large_store_opens_without_reading_it() -> None:
    files = Watched()
    store = open_store(files, segment_bytes=1 << 26)
    for _ in range(40):
        store.append_batch([record(bytes(50_000))] * 20)
    store.close()
    files.reads.clear()
    store = open_store(files, segment_bytes=1 << 26)
    assert store.max_offset("T", 0) == 800
    assert sum(size for _, size in files.reads) < 4 << 20


def test_what_apache_left_is_followed_from_the_oldest_of_the_entries_in_doubt() -> None:
    files = MemoryFiles()
    store = open_store(files)
    expected = [b"%d" % number for number in range(10)]
    for number, body in enumerate(expected):
        store.append(record(body, queue_id=number // 5))
    store.close()
    files.remove(HINT)
    files.open(CHECKPOINT).write(bytes(511) + b"\1", 0)
    files.open(CHECKPOINT).write((1).to_bytes(8, "big") * 2, 0)
    for queue_id in (0, 1):  # the last entry of each leads nowhere
        files.open(f"consumequeue/T/{queue_id}/00000000000000000000").write((7).to_bytes(8, "big"), 80)
    store, event, _ = recovered(files)
    assert (event.records, event.is_rebuilt) == (6, False)
    assert [bodies(store, "T", queue_id) for queue_id in (0, 1)] == [expected[:5], expected[5:]]


def test_a_log_whose_last_segment_is_gone_goes_on_where_what_is_left_ends() -> None:
    files = MemoryFiles()
    store = open_store(files)
    expected = numbered(store, range(400))
    last = max(stored.physical for stored in store.records(0, SEGMENT))
    store.close()
    remove(files, "commitlog/00000000000000065536", "commitlog/00000000000000131072")
    files.open(LOG).write(b"\xff" * (SEGMENT - last), last)
    store, _, events = recovered(files)
    (cut,) = events.of(LogCut)
    assert (cut.position, store.end_position) == (last, last)
    kept = bodies(store)
    assert kept == expected[: len(kept)]
    assert len(kept) > 100
    kept += numbered(store, range(400, 500))
    assert bodies(store) == bodies(recovered(files)[0]) == kept


@pytest.mark.parametrize("before", range(10))
def test_a_record_is_found_that_lies_across_the_end_of_a_part_that_is_searched(before: int) -> None:
    files = MemoryFiles()
    store = open_store(files, segment_bytes=1 << 22)
    overhead = store.append(record(b"x")).size - 1
    at = store.end_position
    store.append(record(bytes((1 << 20) + 4 - before - overhead)))
    numbered(store, range(3))
    files.open(LOG).write(b"\xff" * 8, at)
    found = store.records(0, store.end_position)
    assert [stored.queue_offset for stored in found] == [0, 2, 3, 4]
