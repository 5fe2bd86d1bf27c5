"""Which bodies are compared with their CRC before they are served, and which are trusted, while a disk alters some."""

from __future__ import annotations

import errno
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.queue_follower import QueueFollower
from rocketapp.broker.store.store import MessageStore
from rocketapp.broker.store.stored import parse_all
from rocketapp.model.event import RecordDamaged
from rocketapp.wire.layout import BORN_IPV6
from tests.unit.broker.store.disk import Disk, disk_of
from tests.unit.broker.store.stores import Events, bodies, open_store, record
from tests.unit.broker.store.test_copying import copy, log_of, slave_store

LOG = "commitlog/" + "0" * 20
ALL = [b"body %02d" % number for number in range(20)]


def fill(store: MessageStore) -> None:
    for body in ALL:
        store.append(record(body))


def alter(files: MemoryFiles | Disk, store: MessageStore, number: int, at: int = 88) -> None:
    """Change the byte at this place of a record; by default the first one of its body."""
    entry = store.entry("T", 0, number)
    assert entry is not None
    file = files.open(LOG)
    file.write(bytes((file.read(1, entry[0] + at)[0] ^ 1,)), entry[0] + at)


def search(store: MessageStore) -> None:
    """What a search for damage does with a queue."""
    offset, end = 0, store.max_offset("T", 0)
    store.log.begin_search()
    while offset < end:
        offset = store.read("T", 0, offset, max_messages=32, max_bytes=1 << 18).next_offset
    store.log.end_search()


def served(store: MessageStore, first: int = 0) -> list[int]:
    """The numbers of the messages that a pull brings, whatever their bodies say now."""
    found = list[int]()
    while first < store.max_offset("T", 0):
        result = store.read("T", 0, first, max_messages=32, max_bytes=1 << 18, trusts=True)
        found += [one.queue_offset for one in parse_all(result.body)]
        first = result.next_offset
    return found


def without(*numbers: int) -> list[int]:
    return [number for number in range(20) if number not in numbers]


def test_a_body_that_was_stored_since_the_start_is_not_looked_at_before_the_next_start() -> None:
    files = MemoryFiles()
    store = open_store(files)
    fill(store)
    alter(files, store, 7)
    assert served(store) == without()
    store.close()
    assert served(open_store(files)) == without(7)


def test_a_message_that_is_copied_is_compared_with_its_crc_however_new_it_is() -> None:
    """A copy would have a CRC of its own, and be served for ever."""
    files = MemoryFiles()
    store = open_store(files)
    fill(store)
    alter(files, store, 7)
    assert store.message("T", 0, 7) is None
    assert store.message("T", 0, 8) is not None
    alter(files, store, 12)
    followed = list[int]()
    QueueFollower(store, "T", 0, 9, lambda stored: followed.append(stored.queue_offset)).catch_up(100)
    assert followed == [*range(9, 12), *range(13, 20)]


@pytest.mark.parametrize("at", [0, 3, 4, 15, 20, 27, 28, 35, 84, 87, 95, 96, 97, 98])
def test_whatever_is_altered_beside_body_and_properties_costs_that_message_alone_at_any_time(at: int) -> None:
    files, events = MemoryFiles(), Events()
    store = open_store(files, observe=events)
    fill(store)
    alter(files, store, 7, at)
    assert bodies(store) == [*ALL[:7], *ALL[8:]]
    assert [(event.queue_id, event.offset) for event in events if isinstance(event, RecordDamaged)] == [(0, 7)]


def searched() -> tuple[Disk, MessageStore]:
    """A store that was started again, and has searched what it found."""
    files = MemoryFiles()
    store = open_store(files)
    fill(store)
    store.close()
    disk = disk_of(files)
    store = open_store(disk)
    search(store)
    return disk, store


def test_what_a_search_has_found_whole_is_trusted_and_the_next_one_finds_what_was_altered_since() -> None:
    disk, store = searched()
    alter(disk, store, 7)
    assert served(store) == without()
    search(store)
    assert served(store) == without(7)


def test_nothing_that_begins_before_damage_is_trusted_and_what_follows_it_is() -> None:
    disk, store = searched()
    alter(disk, store, 7, at=87)
    assert served(store) == without(7), "a read finds the length of the body altered"
    alter(disk, store, 3)
    store.append(record(b"new"))
    alter(disk, store, 15)
    assert served(store, 8) == [*range(8, 21)]
    assert served(store)[:6] == [0, 1, 2, 4, 5, 6]
    search(store)
    assert served(store, 8) == [number for number in range(8, 21) if number != 15]


def test_an_entry_that_leads_far_away_takes_no_trust_from_what_is_stored_later() -> None:
    files = MemoryFiles()
    store = open_store(files)
    fill(store)
    alter(files, store, 7, at=0)
    store.flush()
    files.open("consumequeue/T/0/" + "0" * 20).write((1 << 40).to_bytes(8, "big"), 7 * 20)
    assert served(store) == without(7)
    store.append(record(b"new"))
    alter(files, store, 20)
    assert served(store, 20) == [20]


def test_what_is_found_while_a_search_goes_on_is_not_trusted_when_it_ends() -> None:
    disk, store = searched()
    store.log.begin_search()
    alter(disk, store, 7, at=87)
    assert served(store) == without(7)
    store.log.end_search()
    alter(disk, store, 3)
    assert served(store) == without(3, 7)


def test_a_sector_within_a_body_that_the_disk_does_not_give_back_is_never_served() -> None:
    disk, store = searched()
    large = store.append(record(bytes(4000))).physical
    disk.bad = {(LOG, large // 512 + 3)}
    assert served(store) == without()
    disk.bad = set()
    alter(disk, store, 0)
    assert served(store) == [*without(0), 20], "nothing before it is trusted any more"
    alter(disk, store, 0)
    search(store)
    alter(disk, store, 0)
    assert served(store) == [*without(), 20], "a search that meets no such sector ends the doubt"


def test_a_topic_that_is_not_deleted_after_all_was_in_no_search() -> None:
    files = MemoryFiles()
    store = open_store(files)
    fill(store)
    store.close()
    store = open_store(files)
    doomed = store.begin_delete({"T": math.inf})
    store.log.begin_search()
    store.log.end_search()
    store.cancel_delete(doomed)
    alter(files, store, 7)
    assert served(store) == without(7)


@pytest.mark.parametrize("born", [{}, {"sys_flag": BORN_IPV6, "born_host": bytes(16)}])
def test_a_sector_within_properties_that_the_disk_does_not_give_back_costs_that_message(born: dict[str, Any]) -> None:
    disk = Disk()
    store = open_store(disk)
    fill(store)
    large = store.append(record(more=b"text\1" + b"v" * 3000 + b"\2")._replace(**born)).physical
    store.append(record(more=b"text\1" + b"v" * (255 - 25) + b"\2"))
    disk.bad = {(LOG, large // 512 + 3)}
    assert served(store) == [*range(20), 21]


def test_a_sector_that_holds_only_the_last_byte_of_properties_costs_that_message() -> None:
    disk = Disk()
    store = open_store(disk)
    fill(store)
    size = store.append(record(more=b"text\1value\2")).size
    last = store.append(record(b"x" * (512 - (store.end_position + size - 1) % 512) + b"hello", more=b"text\1value\2"))
    behind = last.physical + last.size
    assert (behind - 1) % 512 == 0
    disk.bad = {(LOG, (behind - 1) // 512)}
    assert served(store) == [*range(21)]


def test_what_the_disk_does_not_give_back_between_the_messages_of_a_queue_is_not_trusted_when_it_does() -> None:
    disk = Disk()
    store = open_store(disk)
    store.append(record(b"first"))
    other = store.append(record(bytes(4000), queue_id=1))
    store.append(record(b"last"))
    sector = other.physical // 512 + 3
    disk.bad = {(LOG, sector)}
    assert served(store) == [0, 1]
    disk.bad = set()
    disk.open(LOG).write(b"altered", sector * 512)
    found = store.read("T", 1, 0, max_messages=32, max_bytes=1 << 18, trusts=True)
    assert found.count == 0


STEPS = st.sampled_from(["append", "start", "search", "alter", "head", "read"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 1 << 16)), max_size=40))
@settings(max_examples=150, deadline=None)
def test_an_altered_body_is_served_only_if_it_was_altered_after_the_last_look_at_it(
    steps: list[tuple[str, int]],
) -> None:
    files = MemoryFiles()
    store = open_store(files)
    written: list[bytes] = []
    altered, lost, unseen = set[int](), set[int](), set[int]()
    for step, chance in [("append", 0), *steps, ("read", 0)]:
        number = chance % max(len(written), 1)
        if step == "append":
            written.append(b"%06d" % len(written))
            store.append(record(written[-1]))
        elif step == "start":
            store.close()
            store = open_store(files)
            unseen.clear()
        elif step == "search":
            search(store)
            unseen.clear()
        elif step == "alter" and number not in altered | lost:
            alter(files, store, number)
            altered.add(number)
            unseen.add(number)
        elif step == "head" and number not in lost and number < len(written) - 1:
            alter(files, store, number, at=87)
            lost.add(number)
        elif step == "read":
            found = set(served(store))
            assert found >= set(range(len(written))) - altered - lost
            assert not found & (altered - unseen)
            assert not found & lost
    store.close()


def test_after_a_failed_sync_nothing_is_trusted() -> None:
    disk = Disk()
    store = open_store(disk)
    fill(store)

    def fail(number: int, name: str, path: str) -> None:
        if name == "sync" and path == LOG:
            raise OSError(errno.EIO, "injected")

    disk.on_call = fail
    store.flush()
    disk.on_call = None
    assert store.problem is not None
    alter(disk, store, 3)
    assert served(store) == without(3)
    search(store)
    alter(disk, store, 19)
    assert served(store, 8) == [*range(8, 19)], "pages that only memory has may be lost at any time"


def test_what_came_from_another_log_is_never_trusted() -> None:
    files = MemoryFiles()
    master = open_store(files)
    fill(master)
    alter(files, master, 7)
    slave = slave_store()
    copy(slave, log_of(master), 1 << 20)
    assert served(slave) == without(7)
