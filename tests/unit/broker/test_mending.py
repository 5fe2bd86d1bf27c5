"""A consume queue that the disk has lost is made again from the log while others are served."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.store import MessageStore
from rocketapp.errors import StoreError
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.record import decode_records
from tests.turns import Turns
from tests.unit.broker.asking import running
from tests.unit.broker.store.stores import SEGMENT, bodies, delete_topic, open_store, record
from tests.unit.broker.store.test_copying import copy, log_of

COUNT = 100_000


def test_a_queue_of_100_000_lost_entries_keeps_no_turn_of_the_loop_long() -> None:
    async def story() -> None:
        files = MemoryFiles()
        store = open_store(files, segment_bytes=1 << 20)
        for start in range(0, COUNT, 1000):
            store.append_batch([record(b"%d" % number, topic="orders") for number in range(start, start + 1000)])
        store.close()
        async with running(files) as broker:
            client = await broker.client()
            await client.send("orders", queue_id=0)
            files.open("consumequeue/orders/0/" + "0" * 20).write(bytes(20 * COUNT), 0)
            await asyncio.sleep(0)
            with Turns() as turns:
                for offset, body in ((0, b"0"), (COUNT - 10, b"%d" % (COUNT - 10))):
                    refused = 0
                    while (answer := await client.pull("orders", offset)).code == ResponseCode.SERVICE_NOT_AVAILABLE:
                        refused += 1
                    assert refused
                    assert decode_records(answer.body, None)[0].body == body
            assert turns.longest < 0.05

    asyncio.run(story())


def begun(store: MessageStore, files: MemoryFiles) -> Generator[None]:
    """A repair of topic `T` after its first step: the second of its three entries is lost, others lie between."""
    fill(store)
    return begin_repair(store, files)


def fill(store: MessageStore) -> None:
    for _ in range(2):
        store.append(record(b"old"))
        for _ in range(1000):
            store.append(record(b"x" * 200, topic="others"))
    store.append(record(b"old"))


def begin_repair(store: MessageStore, files: MemoryFiles) -> Generator[None]:
    store.flush()
    files.open("consumequeue/T/0/" + "0" * 20).write(bytes(20), 20)
    repairs: list[Generator[None]] = []
    store.repair.later = repairs.append
    with pytest.raises(StoreError):
        store.read("T", 0, 1, max_messages=1, max_bytes=1)
    (steps,) = repairs
    next(steps)
    return steps


def test_a_repair_ends_although_the_log_begins_later_meanwhile() -> None:
    files = MemoryFiles()
    store = open_store(files)
    steps = begun(store, files)
    begin = 2 * SEGMENT
    for queue in store.queues.values():
        for path in queue.drop_front(begin):
            files.remove(path)
    for path in store.log.begin_at(begin):
        files.remove(path)
    assert sum(1 for _ in steps) < 100


def test_a_repair_leaves_alone_a_topic_that_was_deleted_and_created_again() -> None:
    files = MemoryFiles()
    store = open_store(files, segment_bytes=1 << 20)
    steps = begun(store, files)
    delete_topic(store, "T", files)
    for body in (b"first", b"second"):
        store.append(record(body))
    store.flush()
    for _ in steps:
        pass
    assert bodies(store) == [b"first", b"second"]


def test_a_repair_at_a_slave_leaves_alone_a_topic_that_its_master_has_made_again() -> None:
    master, files = open_store(segment_bytes=1 << 20), MemoryFiles()
    fill(master)
    slave = open_store(files, segment_bytes=1 << 20, role="slave")
    copy(slave, log_of(master), 1 << 16)
    steps = begin_repair(slave, files)
    position = master.end_position
    delete_topic(master, "T")
    for body in (b"first", b"second"):
        master.append(record(body))
    copy(slave, log_of(master)[position:], 1 << 16, position)
    for _ in steps:
        pass
    assert bodies(slave) == [b"first", b"second"]


def test_what_was_not_found_for_a_deleted_topic_is_looked_for_when_a_new_one_of_that_name_lacks_it() -> None:
    files = MemoryFiles()
    store = open_store(files, segment_bytes=1 << 20)
    for is_whole in (False, True):
        stored = store.append_batch([record(b"%d" % number) for number in range(3)])
        store.flush()
        files.open("consumequeue/T/0/" + "0" * 20).write(bytes(20), 20)
        if not is_whole:
            files.open("commitlog/" + "0" * 20).write(bytes(stored[1].size), stored[1].physical)
        assert bodies(store) == ([b"0", b"1", b"2"] if is_whole else [b"0", b"2"])
        delete_topic(store, "T", files)
