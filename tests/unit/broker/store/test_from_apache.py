"""A directory that Apache RocketMQ has used: its good queues are taken over, and only the end of the log is read."""

from __future__ import annotations

from copy import deepcopy

import pytest

from rocketapp.broker.store.checkpoint import CHECKPOINT
from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.store import ABORT
from rocketapp.model.event import RecordDamaged, StoreRecovered
from tests.unit.broker.store.stores import Events, SetClock, Watched, bodies, open_store, record


def apaches(*, is_clean: bool) -> tuple[Watched, list[bytes]]:
    """Six segments, written one message a second; a kill leaves queues that were flushed two seconds before."""
    files, clock = Watched(), SetClock()
    store = open_store(files, clock=clock)
    made = [b"%d" % number + bytes(1000) for number in range(330)]
    for body in made:
        clock.time += 1
        store.append(record(body))
    store.close()
    files.remove("recovery.hint")
    times = b"".join(int((clock.time - 2) * 1000).to_bytes(8, "big") for _ in range(2))
    checkpoint = files.open(CHECKPOINT)
    checkpoint.write(times + bytes(4080), 0)
    if not is_clean:
        files.open(ABORT, create=True)
        queue = files.open("consumequeue/T/0/00000000000000000000")
        queue.truncate(328 * 20)
        queue.truncate(6_000_000)
    files.reads.clear()
    return files, made


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_reads_the_end_of_the_log_alone(is_clean: bool) -> None:
    files, made = apaches(is_clean=is_clean)
    events = Events()
    store = open_store(files, observe=events)
    (recovered,) = events.of(StoreRecovered)
    assert isinstance(recovered, StoreRecovered)
    assert not recovered.is_rebuilt
    assert recovered.records == 0 if is_clean else 0 < recovered.records < 100
    assert sum(files.bytes_read("commitlog")) < 250_000
    assert bodies(store) == made
    assert store.append(record(b"next")).queue_offset == 330


@pytest.mark.parametrize("damaged", [1, 5])
def test_a_queue_that_disagrees_is_followed_from_its_last_good_entry_on(damaged: int) -> None:
    files, made = apaches(is_clean=True)
    queue = files.open("consumequeue/T/0/00000000000000000000")
    for offset in range(330 - damaged, 330):
        queue.write(queue.read(20, 0), offset * 20)
    events = Events()
    store = open_store(files, observe=events)
    assert [event.records for event in events if isinstance(event, StoreRecovered)] == [damaged]
    assert bodies(store) == made
    assert not events.of(RecordDamaged)


def test_a_damaged_last_record_costs_itself() -> None:
    files, made = apaches(is_clean=True)
    last = int.from_bytes(files.open("consumequeue/T/0/00000000000000000000").read(8, 329 * 20), "big")
    segment = max(name for name in files.names("commitlog") if int(name) <= last)
    files.open(f"commitlog/{segment}").write(b"\xff" * 512, last - int(segment))
    events = Events()
    store = open_store(files, observe=events)
    assert bodies(store) == made[:329]
    assert [event.records for event in events if isinstance(event, StoreRecovered)] == [0]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_lost_page_in_the_middle_of_its_queue_hides_nothing(is_clean: bool) -> None:
    files, made = apaches(is_clean=is_clean)
    files.open("consumequeue/T/0/00000000000000000000").write(bytes(160 * 20), 100 * 20)
    assert bodies(open_store(files)) == made


def test_a_directory_without_its_checkpoint_is_read_as_a_whole() -> None:
    files, made = apaches(is_clean=True)
    plain = MemoryFiles()
    for path in files.paths():
        if path.startswith("commitlog"):
            content = files.open(path)
            plain.open(path, create=True).write(content.read(content.size(), 0), 0)
    assert bodies(open_store(plain)) == made


def test_the_start_after_it_reads_nothing_again() -> None:
    """Also with a queue in which nothing was stored since."""
    files, _ = apaches(is_clean=False)
    store = open_store(files)
    store.append(record(b"once", "U"))
    store.close()
    files.remove("recovery.hint")
    times = int(SetClock().time * 1000 + 1_000_000).to_bytes(8, "big")
    files.open(CHECKPOINT).write(times + times + bytes(4080), 0)
    files.open(ABORT, create=True)
    open_store(files).close()
    events = Events()
    store = open_store(files, observe=events)
    assert [event.scanned_bytes for event in events if isinstance(event, StoreRecovered)] == [0]
    assert bodies(store, "U") == [b"once"]


def test_a_lost_page_does_not_move_the_first_offset() -> None:
    files, made = apaches(is_clean=True)
    first = files.names("commitlog")[0]
    files.remove(f"commitlog/{first}")
    whole = open_store(deepcopy(files))
    expected = bodies(whole)
    assert 0 < whole.min_offset("T", 0) < 100
    files.open("consumequeue/T/0/00000000000000000000").write(bytes(100 * 20), 130 * 20)
    assert bodies(open_store(files)) == expected == made[-len(expected) :]
