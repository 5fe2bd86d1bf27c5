from __future__ import annotations

import threading
from random import Random

import pytest

from rocketapp.broker.store.checkpoint import CHECKPOINT, load_hint
from rocketapp.broker.store.files import MemoryFiles, read_whole
from rocketapp.model.event import LoopFailed
from tests.unit.broker.store.disk import Disk
from tests.unit.broker.store.stores import Events, SetClock, bodies, commit, open_store, record


def test_a_flush_makes_everything_before_it_durable() -> None:
    disk = Disk()
    store = open_store(disk)
    store.append_batch([record(b"%d" % number) for number in range(50)])
    store.flush()
    store.append(record(b"later"))
    for seed in range(20):
        assert bodies(open_store(disk.without_power(Random(seed))))[:50] == [b"%d" % number for number in range(50)]


def test_a_flush_runs_in_another_thread_while_messages_come_in() -> None:
    disk = Disk()
    store = open_store(disk)
    store.append(record(b"before"))
    flush = store.begin_flush()
    assert flush is not None
    assert store.begin_flush() is None
    thread = threading.Thread(target=flush.run)
    thread.start()
    store.append(record(b"meanwhile"))
    thread.join()
    assert store.durable_position == 0
    store.end_flush(flush)
    store.end_flush(flush)
    assert store.durable_position == flush.log_end < store.end_position
    assert bodies(open_store(disk.without_power(Random(1))))[0] == b"before"


def test_closing_finishes_a_flush_that_has_not_run() -> None:
    files = MemoryFiles()
    store = open_store(files)
    store.append(record(b"x"))
    store.begin_flush()
    store.close()
    assert bodies(open_store(files)) == [b"x"]


def test_closing_runs_a_flush_again_that_an_unexpected_error_has_ended() -> None:
    def fails_once(number: int, name: str, path: str) -> None:
        if name == "sync" and path.startswith("commitlog"):
            disk.on_call = None
            raise RuntimeError("no error of a disk")

    disk = Disk()
    store = open_store(disk, segment_bytes=8192)
    store.append_batch([record(b"x" * 900) for _ in range(10)])  # two segments
    disk.on_call = fails_once
    flush = store.begin_flush()
    assert flush is not None
    with pytest.raises(RuntimeError):
        flush.run()
    store.close()
    for seed in range(20):
        survived = open_store(disk.without_power(Random(seed)), segment_bytes=8192)
        assert bodies(survived) == [b"x" * 900] * 10


def test_an_idle_store_has_nothing_to_flush() -> None:
    store = open_store()
    store.flush()
    assert store.begin_flush() is None
    store.append(record())
    for _ in range(2):  # the log at once; the queues when nothing new came in
        flush = store.begin_flush()
        assert flush is not None
        flush.run()
        store.end_flush(flush)
    assert store.begin_flush() is None


def test_a_start_after_a_clean_stop_writes_and_syncs_no_queue() -> None:
    disk = Disk()
    store = open_store(disk)
    for number in range(3):
        store.append(record(queue_id=number))
    store.close()
    calls: list[tuple[str, str]] = []
    disk.on_call = lambda number, name, path: calls.append((name, path))
    again = open_store(disk)
    again.close()
    assert not [call for call in calls if "consumequeue" in call[1] and call[0] not in ("open", "read")]
    assert [queue.max_offset for queue in again.queues.values()] == [1, 1, 1]


def test_the_hint_follows_now_and_then_and_the_checkpoint_each_time() -> None:
    files, clock = MemoryFiles(), SetClock(1000.0)
    store = open_store(files, clock=clock)
    store.append(record())
    store.flush()
    hinted = store.end_position
    positions, times = [], []
    for _ in range(12):
        clock.time += 1
        store.append(record())
        flush = store.begin_flush()
        assert flush is not None
        flush.run()
        store.end_flush(flush)
        hint, checkpoint = load_hint(files), read_whole(files, CHECKPOINT)
        assert hint is not None
        assert checkpoint is not None
        positions.append(hint.position)
        times.append((int.from_bytes(checkpoint[:8], "big"), int.from_bytes(checkpoint[8:16], "big")))
    assert positions[:9] == [hinted] * 9
    assert positions[9] > hinted
    assert [log_ms for log_ms, _ in times] == [1_001_000 + 1000 * number for number in range(12)]
    assert [queues_ms for _, queues_ms in times][:9] == [1_000_000] * 9
    assert times[9][1] == times[9][0]


def test_a_hint_that_cannot_be_written_is_told_and_written_later() -> None:
    disk, events = Disk(), Events()
    store = open_store(disk, observe=events)
    before = load_hint(disk)
    store.append(record())

    def full(number: int, name: str, path: str) -> None:
        if path.startswith("recovery.hint"):
            raise OSError(28, "No space left on device")

    disk.on_call = full
    store.flush()
    assert [event.loop for event in events if isinstance(event, LoopFailed)] == ["flush"]
    assert load_hint(disk) == before
    disk.on_call = None
    store.append(record())
    store.flush()
    hint = load_hint(disk)
    assert hint is not None
    assert hint.position == store.end_position


def test_many_queues_are_synced_in_several_flushes() -> None:
    """A flush of the log, which replies wait for, comes between."""
    disk = Disk()
    store = open_store(disk, segment_bytes=1 << 20)
    for queue_id in range(600):
        store.append(record(b"%d" % queue_id, queue_id=queue_id))
    synced: list[str] = []
    disk.on_call = lambda number, name, path: synced.append(path) if name == "sync" and "queue" in path else None
    counts = []
    for _ in range(20):
        flush = store.begin_flush()
        if flush is None:
            break
        flush.run()
        store.end_flush(flush)
        counts.append(len(synced))
        synced.clear()
        store.append(record(b"on it goes", queue_id=599)) if len(counts) < 5 else None
    assert max(counts) == 256
    assert sum(counts) >= 600
    hint = load_hint(disk)
    assert hint is not None
    assert hint.position == store.end_position
    for seed in range(5):
        again = open_store(disk.without_power(Random(seed)), segment_bytes=1 << 20)
        assert [bodies(again, queue_id=each) for each in range(599)] == [[b"%d" % each] for each in range(599)]


def test_a_segment_that_becomes_full_during_a_flush_is_synced_by_the_next_one() -> None:
    """The flush covers what was in it when it began, and not what came behind."""
    disk = Disk()
    store = open_store(disk)
    made = [b"%d" % number + bytes(1000) for number in range(100)]
    for body in made[:10]:
        store.append(record(body))
    flush = store.begin_flush(log_only=True)
    assert flush is not None
    flush.run()
    for body in made[10:]:
        store.append(record(body))
    store.end_flush(flush)
    commit(store)
    assert store.durable_position == store.end_position
    for seed in range(10):
        assert bodies(open_store(disk.without_power(Random(seed)))) == made
