"""Bytes that a disk returns differently than they were written: torn at the end, flipped anywhere, cut or gone."""

from __future__ import annotations

import itertools
from copy import deepcopy
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketapp.broker.store.checkpoint import CHECKPOINT, HINT
from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.store import ABORT
from rocketapp.model.event import LogCut, RecordDamaged
from rocketapp.wire.layout import Record, encode_record
from tests.unit.broker.store.stores import Events, bodies, messages, open_store, record

LOG = "commitlog/00000000000000000000"


def filled(count: int, *, is_closed: bool) -> tuple[MemoryFiles, list[Record], list[int]]:
    """A store with that many messages in two queues; what was stored, and where each record ends in the log."""
    files = MemoryFiles()
    store = open_store(files)
    store.flush()
    random = Random(count)
    records, ends = [], []
    for number in range(count):
        each = record(b"%d:" % number + random.randbytes(random.randint(0, 200)), queue_id=number % 2, tag="paid")
        appended = store.append(each)
        records.append(each)
        ends.append(appended.physical + appended.size)
    if is_closed:
        store.close()
    return files, records, ends


def change(files: MemoryFiles, path: str, at: int, data: bytes) -> None:
    files.open(path).write(data, at)


def all_bodies(files: MemoryFiles, observe: Events | None = None) -> list[list[bytes]]:
    store = open_store(files, observe=observe)
    return [bodies(store, queue_id=0), bodies(store, queue_id=1)]


def split(records: list[Record]) -> list[list[bytes]]:
    return [[each.body for each in records[0::2]], [each.body for each in records[1::2]]]


def test_a_write_torn_at_any_byte_of_the_last_three_records_leaves_the_complete_ones() -> None:
    files, records, ends = filled(8, is_closed=False)
    for end in range(ends[4], ends[7]):
        torn = deepcopy(files)
        torn.open(LOG).truncate(end)
        torn.open(LOG).truncate(65_536)
        whole = sum(1 for each in ends if each <= end)
        assert all_bodies(torn) == split(records[:whole])
        store = open_store(torn)
        assert store.append(record(b"next", queue_id=whole % 2)).queue_offset == whole // 2
        assert store.end_position > ends[whole - 1]


@given(st.integers(0, 2**32), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_a_flipped_bit_in_the_log_costs_one_message_and_alters_no_body(seed: int, bit: int) -> None:
    files, records, ends = filled(20, is_closed=True)
    at = Random(seed).randrange(ends[-1])
    original = files.open(LOG).read(1, at)
    change(files, LOG, at, bytes([original[0] ^ 1 << (bit - 1)]))
    hit = sum(1 for end in ends if end <= at)
    events = Events()
    survived = all_bodies(files, events)
    expected = split(records)
    without = [[body for body in queue if body != records[hit].body] for queue in expected]
    assert survived in (expected, without)
    if survived == without:
        damaged = [event for event in events if isinstance(event, RecordDamaged)]
        assert {(event.queue_id, event.offset) for event in damaged} == {(hit % 2, hit // 2)}


@given(st.integers(0, 2**32), st.integers(1, 8))
@example(92078, 1)
@settings(max_examples=60, deadline=None)
def test_a_flipped_bit_in_the_log_does_not_end_it_when_all_queues_are_lost_too(seed: int, bit: int) -> None:
    files, records, ends = filled(20, is_closed=True)
    at = Random(seed).randrange(ends[-1])
    original = files.open(LOG).read(1, at)
    change(files, LOG, at, bytes([original[0] ^ 1 << (bit - 1)]))
    for path in [path for path in files.paths() if path.startswith(("consumequeue", HINT))]:
        files.remove(path)
    hit = sum(1 for end in ends if end <= at)
    survived = {body for queue in all_bodies(files) for body in queue}
    lost = {each.body for each in records} - survived
    # Two when a record now claims to be the first of another queue, as if that topic had been made anew.
    assert len(lost) <= (2 if 12 <= at - ([0, *ends][hit]) < 28 else 1)
    allowed = {hit, 0, 1}
    if 12 <= at - [0, *ends][hit] < 16:
        # It claims the other queue, and comes before the record whose place it takes.
        allowed.add(hit ^ 1)
    assert lost <= {records[number].body for number in allowed}


def index_files(files: MemoryFiles) -> list[str]:
    return [path for path in files.paths() if path.startswith(("consumequeue", HINT, CHECKPOINT))]


@pytest.mark.parametrize("is_closed", [True, False])
def test_whatever_index_files_are_deleted_cut_or_emptied_they_are_made_again(is_closed: bool) -> None:
    files, records, _ = filled(20, is_closed=is_closed)
    paths = index_files(files)
    assert len(paths) >= (4 if is_closed else 2)
    for pair in itertools.combinations_with_replacement(paths, 2):
        for harm in ("delete", "cut", "empty"):
            harmed = deepcopy(files)
            for path in pair:
                if harm == "delete":
                    harmed.remove(path)
                else:
                    harmed.open(path, create=True).truncate(0 if harm == "empty" else 30)
            assert all_bodies(harmed) == split(records), (pair, harm)
            assert all_bodies(harmed) == split(records), (pair, harm)


@given(st.integers(0, 2**32), st.integers(1, 8))
@example(6089, 8)  # the sign of a position in an entry
@settings(max_examples=80, deadline=None)
def test_a_flipped_bit_in_an_index_file_costs_no_message(seed: int, bit: int) -> None:
    files, records, _ = filled(20, is_closed=True)
    random = Random(seed)
    path = random.choice(index_files(files))
    size = min(files.open(path).size(), 200 if path.startswith("consumequeue") else 4096)
    at = random.randrange(size)
    original = files.open(path).read(1, at)
    change(files, path, at, bytes([original[0] ^ 1 << (bit - 1)]))
    survived = {body for queue in all_bodies(files) for body in queue}
    assert survived == {each.body for each in records}


@given(st.lists(st.sampled_from(["plain", "forged", "magic", "zeros", "empty", "large"]), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_what_a_body_holds_is_never_taken_for_a_record(kinds: list[str]) -> None:
    """Bodies that hold whole records, made for exactly the place where they will lie; killed, and all indexes lost."""
    files = MemoryFiles()
    store = open_store(files, segment_bytes=1 << 20)
    stored = []
    for number, kind in enumerate(kinds):
        body = forged(store.end_position + 88, number) if kind == "forged" else _body(kind)
        stored.append(body)
        physical = store.append(record(body)).physical
        assert store.record_at(physical + 88) is None
        assert store.record_at(physical) is not None
    for path in [path for path in files.paths() if path.startswith(("consumequeue", HINT, CHECKPOINT))]:
        files.remove(path)
    assert bodies(open_store(files, segment_bytes=1 << 20)) == stored


def forged(physical: int, number: int) -> bytes:
    """A record that would be whole if anybody read it at its place in the log."""
    return encode_record(record(b"forged")._replace(physical_offset=physical, queue_offset=number))


def _body(kind: str) -> bytes:
    return {
        "plain": b"hello",
        "magic": bytes.fromhex("daa320a7daa320abcbd43194") * 9,
        "zeros": bytes(500),
        "empty": b"",
        "large": bytes(range(256)) * 1500,
    }[kind]


def test_a_torn_record_whose_body_is_a_whole_one_ends_the_log() -> None:
    files = MemoryFiles()
    store = open_store(files)
    store.append(record(b"first"))
    last = store.append(record(forged(store.end_position + 88, 1)))
    files.open(LOG).truncate(last.physical + last.size - 5)
    files.open(LOG).truncate(65_536)
    events = Events()
    store = open_store(files, observe=events)
    assert bodies(store) == [b"first"]
    assert store.end_position == last.physical
    assert [event for event in events if isinstance(event, LogCut)]


def test_bytes_that_were_cut_never_come_back() -> None:
    """A torn record, whole ones behind it: after new ones took their place, no old one is found behind those."""
    files, records, ends = filled(8, is_closed=False)
    change(files, LOG, ends[3], bytes(40))
    store = open_store(files)
    assert store.end_position == ends[3]
    assert not files.open(LOG).read(65_536, ends[3]).strip(b"\0")
    new = [store.append(each) for each in records[4:6]]
    assert [each.physical for each in new] == ends[3:5]
    again = open_store(deepcopy(files))
    assert again.end_position == ends[5]
    assert sum(len(messages(again, queue_id=queue_id)) for queue_id in (0, 1)) == 6


def test_the_marker_of_a_running_broker_comes_and_goes() -> None:
    files = MemoryFiles()
    store = open_store(files)
    assert ABORT in files.names("")
    store.close()
    assert ABORT not in files.names("")
