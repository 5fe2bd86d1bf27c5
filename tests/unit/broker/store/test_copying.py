"""A store takes the log of another one as it is: byte by byte, and each message once."""

from __future__ import annotations

import math
from copy import deepcopy

import pytest

from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.store import MessageStore
from rocketapp.errors import StoreError
from rocketapp.model.event import RecordDamaged
from tests.unit.broker.store.stores import SEGMENT, Events, bodies, delete_topic, open_store, record


def log_of(store: MessageStore, begin: int = 0) -> bytes:
    """The bytes of a log, whole segments but for the last one."""
    parts, position = [], begin
    while position < store.end_position:
        segment = store.log.open_segment(position)
        end = min(segment.end, store.end_position)
        parts.append(segment.file.read(end - position, position - segment.start))
        segment.file.close()
        position = end
    return b"".join(parts)


def full(count: int = 300, size: int = 400) -> MessageStore:
    """A store with a few segments."""
    store = open_store()
    for number in range(count):
        store.append(record(b"%d-" % number + b"x" * size, queue_id=number % 3))
    return store


def slave_store(files: MemoryFiles | None = None, **more: int) -> MessageStore:
    return open_store(files, role="slave", **more)


def copy(store: MessageStore, data: bytes, sizes: int, begin: int = 0) -> None:
    """Give it the bytes in pieces of this size; what it does not take comes again with the next piece."""
    position, left = begin, b""
    for at in range(0, len(data), sizes):
        left += data[at : at + sizes]
        taken = store.append_copied(position, left)
        position, left = position + taken, left[taken:]


@pytest.mark.parametrize("sizes", [1, 87, 8191, 32_768, 1 << 20])
def test_a_copy_has_the_bytes_and_the_messages_however_they_are_cut(sizes: int) -> None:
    master, slave = full(count=200 if sizes == 1 else 300), slave_store()
    data = log_of(master)
    assert len(data) > SEGMENT, "more than one segment"
    copy(slave, data, sizes)
    assert log_of(slave) == data
    assert [bodies(slave, queue_id=queue) for queue in range(3)] == [
        bodies(master, queue_id=queue) for queue in range(3)
    ]


@pytest.mark.parametrize("sizes", [1000, 1 << 20])
def test_a_copy_has_a_batch_that_begins_a_segment_whose_first_message_had_room_before(sizes: int) -> None:
    master, slave = open_store(), slave_store()
    master.append(record(bytes(60_000)))
    assert master.append_batch([record(b"1" * 3000), record(b"2" * 3000)])[0].physical == SEGMENT
    copy(slave, log_of(master), sizes)
    assert log_of(slave) == log_of(master)
    assert bodies(slave) == bodies(master)


def test_a_copy_of_which_a_record_is_cut_goes_on_after_a_kill() -> None:
    master, files = full(), MemoryFiles()
    data = log_of(master)
    slave = slave_store(files)
    copy(slave, data[: len(data) // 2 + 5], 1000)
    slave.flush()
    killed = slave_store(deepcopy(files))
    assert log_of(killed) == data[: killed.end_position]
    copy(killed, data[killed.end_position :], 1000, killed.end_position)
    assert log_of(killed) == data
    assert bodies(killed) == bodies(master)


def test_an_empty_copy_begins_where_the_other_log_begins() -> None:
    master, slave = full(), slave_store()
    data = log_of(master, SEGMENT)
    copy(slave, data, 1000, SEGMENT)
    assert (slave.begin_position, slave.end_position) == (SEGMENT, master.end_position)
    for queue in range(3):
        assert bodies(slave, queue_id=queue) == bodies(master, queue_id=queue)[-len(bodies(slave, queue_id=queue)) :]
        assert slave.max_offset("T", queue) == master.max_offset("T", queue)
    late = slave_store()
    last = master.append(record(b"late", queue_id=1)).physical
    begin = SEGMENT * (last // SEGMENT)
    only = log_of(master, begin)
    copy(late, only, 1000, begin)
    assert bodies(late, queue_id=1)[-1] == b"late"


def test_what_cannot_follow_is_refused_and_nothing_is_written() -> None:
    master, slave = full(), slave_store()
    data = log_of(master)
    copy(slave, data[: SEGMENT // 2], 1000)
    end = slave.end_position
    for position, wrong in [
        (end, b"x" * SEGMENT),
        (end, data[end + 1 : end + 1000]),
        (end + 1, data[end : end + 1000]),
    ]:
        assert slave.append_copied(position, wrong) == 0, "perhaps damage: a record may follow"
    for position, wrong in [(end, b"x" * 8_388_608), (0, data[:1000])]:
        with pytest.raises(StoreError):
            slave.append_copied(position, wrong)
    assert (slave.end_position, log_of(slave)) == (end, data[:end])


def test_a_log_with_segments_of_another_size_is_refused_at_its_first_border() -> None:
    master = full()
    for segment_bytes in (SEGMENT * 2, SEGMENT // 2 + 40_000):
        slave = slave_store(segment_bytes=segment_bytes)
        with pytest.raises(StoreError, match=r"segment_bytes|would be at"):
            copy(slave, log_of(master), 32_768)
        assert log_of(master).startswith(log_of(slave).rstrip(b"\0"))


def test_a_copy_takes_no_message_of_its_own() -> None:
    slave = slave_store()
    with pytest.raises(StoreError, match="slave"):
        slave.append(record())
    with pytest.raises(StoreError, match="slave"):
        slave.append_batch([record()], ignores_refusal=True)


@pytest.mark.parametrize("new", [1, 2])
def test_a_copy_has_the_messages_of_a_topic_that_was_deleted_and_made_again(new: int) -> None:
    master, files = open_store(), MemoryFiles()
    for number in range(5):
        master.append(record(b"old-%d" % number))
    slave = slave_store(files)
    copy(slave, log_of(master), 1000)
    delete_topic(master, "T")
    position = master.end_position
    for number in range(new):
        master.append(record(b"new-%d" % number))
    copy(slave, log_of(master)[position:], 1000, position)
    slave.flush()
    assert bodies(slave) == bodies(master) == [b"new-%d" % number for number in range(new)]
    slave.close()
    slave, position = slave_store(files), master.end_position
    assert bodies(slave) == bodies(master), "after a restart"
    for number in range(new, 12):
        master.append(record(b"new-%d" % number))
    copy(slave, log_of(master)[position:], 1000, position)
    slave.close()
    assert bodies(open_store(files)) == bodies(master), "as the master"


def test_a_copy_takes_nothing_for_a_queue_whose_files_are_on_their_way_out_and_forgets_none_with_later_messages() -> (
    None
):
    master, files = open_store(), MemoryFiles()
    for topic, queue_id in (("T", 0), ("T", 1), ("U", 0)):
        master.append(record(b"old", topic=topic, queue_id=queue_id))
    slave = slave_store(files)
    copy(slave, log_of(master), 1000)
    below = master.end_position
    master.append(record(b"later", queue_id=1))
    copy(slave, log_of(master)[below:], 1000, below)
    doomed = slave.begin_delete({"T": below})
    assert (bodies(slave), bodies(slave, queue_id=1)) == ([], [b"old", b"later"])
    assert slave.begin_delete({"T": math.inf}) == {}, "one at a time"
    position = master.end_position
    master.append(record(b"last", queue_id=1))
    master.append(record(b"unrelated", topic="U"))
    delete_topic(master, "T")
    master.append(record(b"new"))
    data = log_of(master)[position:]
    with pytest.raises(StoreError, match="topic T is being deleted"):
        copy(slave, data, 1 << 20, position)
    assert slave.end_position == position
    slave.distrust_hint()
    slave.flush()
    for path in slave.end_delete(doomed):
        files.remove(path)
    slave.deleted(doomed)
    copy(slave, data, 1 << 20, position)
    assert bodies(slave, queue_id=1) == [b"old", b"later", b"last"]
    slave.close()
    again = slave_store(files)
    assert (bodies(again), bodies(again, "U")) == ([b"new"], [b"old", b"unrelated"])


def damaged_master(damage: str) -> tuple[MessageStore, bytes]:
    """A master of one queue with damage in its log of more than a segment, and this log."""
    files = MemoryFiles()
    store = open_store(files)
    places = [store.append(record(b"%d-" % number + b"x" * 400)).physical for number in range(300)]
    store.flush()
    first = next(index for index, place in enumerate(places) if place >= SEGMENT)
    last_end = places[first - 1] + places[1]
    position, count = {
        "head": (places[4], 8),
        "size": (places[4], 3),
        "larger size": (places[4] + 3, 1),
        "size of no segment": (places[4] + 1, 2),
        "position": (places[4] + 30, 4),
        "lengths": (places[4] + 84, 4),
        "two records": (places[7] + 5, places[1] + 10),
        "first record": (places[first], 8),
        "last record": (places[first - 1], 8),
        "blank": (last_end, 8),
        "last record and blank": (places[first - 1], places[1] + 8),
    }[damage]
    begin = SEGMENT * (position // SEGMENT)
    file = files.open(f"commitlog/{begin:020d}")
    file.write(b"\xfe" * count, position - begin)
    file.close()
    return store, log_of(store)


DAMAGE = (
    "head",
    "size",
    "larger size",
    "size of no segment",
    "position",
    "lengths",
    "two records",
    "first record",
    "last record",
    "blank",
    "last record and blank",
)


@pytest.mark.parametrize("sizes", [87, 8191, 1 << 20])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_in_the_log_of_a_master_costs_its_slave_nothing_else_and_is_kept(damage: str, sizes: int) -> None:
    master, data = damaged_master(damage)
    files, events = MemoryFiles(), Events()
    slave = slave_store(files, observe=events)
    copy(slave, data, sizes)
    copied, wanted = log_of(slave), bodies(master)
    assert copied[: SEGMENT - 8] == data[: SEGMENT - 8]
    assert copied[SEGMENT:] == data[SEGMENT:], "the place of the smallest blank is made anew"
    assert events.of(RecordDamaged)
    assert bodies(slave) == wanted
    slave.flush()
    killed = slave_store(deepcopy(files))
    copy(killed, data[killed.end_position :], 8191, killed.end_position)
    assert (killed.end_position, bodies(killed)) == (master.end_position, wanted)
    slave.close()
    assert bodies(open_store(files)) == wanted, "as the master"


def test_the_only_message_behind_damage_is_there_after_a_flush_and_a_kill() -> None:
    files, copied = MemoryFiles(), MemoryFiles()
    master = open_store(files)
    places = [master.append(record(b"%d" % number)).physical for number in range(10)]
    master.flush()
    files.open(f"commitlog/{0:020d}").write(b"\xfe" * 8, places[8])
    slave = slave_store(copied)
    copy(slave, log_of(master), 1000)
    slave.flush()
    assert bodies(slave) == bodies(slave_store(deepcopy(copied))) == [b"%d" % number for number in (*range(8), 9)]


@pytest.mark.parametrize("wrong", [0, 7, 900, 1 << 40])
def test_a_damaged_offset_in_the_log_of_a_master_costs_its_slave_that_message_only(wrong: int) -> None:
    files, copied = MemoryFiles(), MemoryFiles()
    master = open_store(files)
    places = [master.append(record(b"%d" % number)).physical for number in range(20)]
    master.flush()
    files.open(f"commitlog/{0:020d}").write(wrong.to_bytes(8, "big"), places[8] + 20)
    slave = slave_store(copied)
    copy(slave, log_of(master), 1000)
    assert bodies(slave) == bodies(master)
    slave.close()
    assert bodies(open_store(copied)) == bodies(master)
