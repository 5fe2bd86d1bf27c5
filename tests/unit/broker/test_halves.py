"""What a start reads of transactions."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from rocketapp.broker.half_messages import LONGEST_OPEN_MS, HalfMessages
from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.store import MessageStore
from rocketapp.errors import StoreError
from rocketapp.model.names import CHECKS_OVER_TOPIC, HALF_TOPIC, OP_TOPIC
from rocketapp.wire.layout import TRANSACTION_COMMIT
from rocketapp.wire.requests.transactions import EndTransaction
from tests.unit.broker.store.disk import Disk
from tests.unit.broker.store.stores import Events, Watched, bodies, open_store, record

SENT = 100
LATER_MS = 1_700_000_100_000
"""When the producers of all that `ended_but_one` stored are asked."""


def ended_but_one(store: MessageStore) -> None:
    """Half messages of which all but the 50th were committed."""
    halves = HalfMessages(store, Events(), timeout=6.0)
    for number in range(SENT):
        half = store.append(halves.half(record(topic="orders", more=b"TRAN_MSG\x01true\x02PGROUP\x01makers\x02"), "A1"))
        if number != 50:
            place = half.queue_offset, half.physical
            halves.end(EndTransaction("makers", "orders", *place, TRANSACTION_COMMIT, "A1"))


def test_a_start_begins_to_read_at_no_message_of_a_transaction_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    store, begun = open_store(), list[int]()
    ended_but_one(store)
    read = MessageStore.read

    def counting(self: MessageStore, topic: str, queue_id: int, offset: int, **more: Any) -> Any:
        if topic == HALF_TOPIC:
            begun.append(offset)
        return read(self, topic, queue_id, offset, **more)

    monkeypatch.setattr(MessageStore, "read", counting)
    assert len(HalfMessages(store, Events(), timeout=6.0)) == 1
    assert begun == [50]
    store.close()


def test_a_slave_forgets_what_its_master_has_finished_with() -> None:
    store = open_store()
    ended_but_one(store)
    halves = HalfMessages(store, Events(), timeout=6.0)
    halves.forget_below(50)
    assert len(halves) == 1
    halves.forget_below(51)
    assert len(halves) == 0
    assert halves.progress() == (store.max_offset(HALF_TOPIC, 0), store.max_offset(OP_TOPIC, 0))
    store.close()


def test_an_end_that_is_damaged_leaves_its_transaction_open_and_no_other() -> None:
    files = MemoryFiles()
    store = open_store(files)
    ended_but_one(store)
    entry = store.entry(OP_TOPIC, 0, 60)
    assert entry is not None
    files.open("commitlog/" + "0" * 20).write(b"\xff", entry[0] + 88)
    assert len(HalfMessages(store, Events(), timeout=6.0)) == 2
    store.close()


def test_a_half_message_that_is_damaged_opens_none_behind_it_that_has_ended() -> None:
    files = MemoryFiles()
    store = open_store(files)
    ended_but_one(store)
    entry = store.entry(HALF_TOPIC, 0, 50)
    assert entry is not None
    files.open("commitlog/" + "0" * 20).write(b"\xff", entry[0] + 88)
    assert len(HalfMessages(store, Events(), timeout=6.0)) == 0
    store.close()


def test_a_commit_that_is_refused_stores_no_message_however_often_it_comes_again() -> None:
    """The disk takes every second write of the log, so that of two writes the second one is refused."""
    disk = Disk()
    store = open_store(disk)
    halves = HalfMessages(store, Events(), timeout=6.0)
    half = store.append(halves.half(record(topic="orders", more=b"TRAN_MSG\x01true\x02PGROUP\x01makers\x02"), "A1"))
    commit = EndTransaction("makers", "orders", half.queue_offset, half.physical, TRANSACTION_COMMIT, "A1")
    writes = iter(range(100))

    def refuse(number: int, name: str, path: str) -> None:
        if name == "write" and path.startswith("commitlog") and next(writes) < 6 and next(writes) % 2:
            raise OSError(28, "No space left on device")

    disk.on_call = refuse
    while len(halves):
        with contextlib.suppress(StoreError):
            halves.end(commit)
    assert len(bodies(store, "orders")) == 1
    assert not len(HalfMessages(open_store(disk.killed()), Events(), timeout=6.0))


def test_a_half_message_that_has_ended_is_not_opened_by_another_ones_entry() -> None:
    files = MemoryFiles()
    store = open_store(files)
    ended_but_one(store)
    store.close()
    queue = files.open(f"consumequeue/{HALF_TOPIC}/0/00000000000000000000")
    queue.write(queue.read(20, 20), 50 * 20)
    (half,) = [one.offset for one, _ in HalfMessages(open_store(files), Events(), timeout=0.0).due(LATER_MS, bool)]
    assert half == 50


def test_a_start_reads_no_end_of_what_lies_before_the_first_open_half_message() -> None:
    files = Watched()
    store = open_store(files)
    ended_but_one(store)
    halves = HalfMessages(store, Events(), timeout=6.0)
    progress = halves.progress()
    assert progress == (50, 50)
    files.bytes_read("commitlog")
    again = HalfMessages(store, Events(), timeout=6.0, progress=progress)
    assert len(again) == 1
    assert sum(files.bytes_read("commitlog")) < store.end_position * 0.6
    (half,) = [one for one, _ in again.due(LATER_MS, bool)]
    again.end(EndTransaction("makers", "orders", half.offset, half.physical, TRANSACTION_COMMIT, "A1"))
    assert again.progress() == (SENT, SENT)
    assert not len(HalfMessages(store, Events(), timeout=6.0, progress=again.progress()))


def test_what_apache_has_put_back_and_ended_is_not_open_again() -> None:
    """It moves its offset past a half message that it puts back, and writes an end for the copy alone."""
    store = open_store()
    half = record(topic=HALF_TOPIC, more=b"PGROUP\x01makers\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02")
    for _ in range(2):
        store.append(half)
    store.append(record(b"1,", OP_TOPIC))
    assert len(HalfMessages(store, Events(), timeout=6.0)) == 1
    assert not len(HalfMessages(store, Events(), timeout=6.0, progress=(1, 0)))


def test_a_half_message_that_nobody_can_be_asked_about_ends_in_the_end() -> None:
    store = open_store()
    halves = HalfMessages(store, Events(), timeout=6.0)
    half = store.append(
        halves.half(record(b"old", topic="orders", more=b"TRAN_MSG\x01true\x02PGROUP\x01makers\x02"), "A1")
    )
    last_ms = half.stored_ms + LONGEST_OPEN_MS
    assert list(halves.due(last_ms, lambda group: False)) == []
    assert len(halves) == 1
    assert list(halves.due(last_ms + 1, lambda group: False)) == []
    assert not len(halves)
    assert bodies(store, CHECKS_OVER_TOPIC) == [b"old"]
