"""Whatever moment a broker is killed at or loses its power: a prefix survives, and nothing acknowledged is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from copy import deepcopy
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketapp.broker.store.files import MemoryFiles
from rocketapp.broker.store.store import ABORT, MessageStore
from rocketapp.errors import ConfigError, StoreError
from rocketapp.wire.layout import Record
from tests.unit.broker.store.disk import Disk, Stopped, disk_of
from tests.unit.broker.store.stores import commit, messages, open_store, record

QUEUES = [("A", 0), ("A", 1), ("%RETRY%B", 0)]


class Run:
    """A run of a store with numbered messages, and what its users were told."""

    def __init__(self, disk: Disk, random: Random, *, flush: str, first: int = 0) -> None:
        self.disk, self.random, self.flush = disk, random, flush
        self.next = self.first = first
        self.written: dict[int, tuple[str, int, int]] = {}
        self.acknowledged: dict[int, tuple[str, int, int]] = {}
        self.safe: set[int] = set()
        """Those that a loss of power must not take."""

    def steps(self, count: int) -> None:
        store = open_store(self.disk, flush=self.flush)
        for _ in range(count):
            self.step(store)
        store.close()
        self.safe = set(self.acknowledged)

    def step(self, store: MessageStore) -> None:
        kind = self.random.choice(["append"] * 6 + ["batch"] * 2 + ["flush", "slow flush"])
        if kind == "flush":
            store.flush()
            self.safe = set(self.acknowledged)
            return
        if kind == "slow flush":
            self.slow_flush(store)
            return
        numbers = range(self.next, self.next + (1 if kind == "append" else self.random.randint(1, 5)))
        self.next = numbers.stop
        where = [self.random.choice(QUEUES) for _ in numbers]
        records = [self.message(number, *place) for number, place in zip(numbers, where, strict=True)]
        done = [store.append(records[0])] if kind == "append" else store.append_batch(records)
        for number, place, appended in zip(numbers, where, done, strict=True):
            self.written[number] = (*place, appended.queue_offset)
        if self.flush == "sync":
            commit(store)
            if store.problem is not None:
                raise StoreError(store.problem, True)
            self.safe = set(self.written)
        self.acknowledged.update(self.written)

    def slow_flush(self, store: MessageStore) -> None:
        """A flush during which messages come in. It covers those before it."""
        before = set(self.acknowledged)
        flush = store.begin_flush(log_only=self.random.random() < 0.5)
        if flush is None or self.flush == "sync":
            if flush is not None:
                flush.run()
                store.end_flush(flush)
            return
        flush.run()
        for _ in range(self.random.choice((1, 10))):
            number, self.next = self.next, self.next + 1
            appended = store.append(self.message(number, *QUEUES[0]))
            self.written[number] = self.acknowledged[number] = (*QUEUES[0], appended.queue_offset)
        store.end_flush(flush)
        if store.problem is None:
            self.safe |= before

    def message(self, number: int, topic: str, queue_id: int) -> Record:
        size = self.random.choice((0, 1, 100, 700, 3000))
        return record(b"%d:" % number + bytes(self.random.randbytes(size)), topic, queue_id)


def found(store: MessageStore) -> dict[int, tuple[str, int, int]]:
    """Number of each message -> where it is; the offsets of every queue are complete."""
    result = {}
    for topic, queue_id in QUEUES:
        offset = 0
        for each in messages(store, topic, queue_id):
            assert each.queue_offset == offset
            offset += 1
            number = int(each.body.partition(b":")[0])
            assert number not in result
            result[number] = (topic, queue_id, each.queue_offset)
        assert offset == store.max_offset(topic, queue_id)
    return result


def check(run: Run, store: MessageStore, must_have: set[int]) -> None:
    survived = found(store)
    assert sorted(survived) == list(range(len(survived))), "not a prefix"
    assert must_have <= survived.keys(), "an acknowledged message is missing"
    for number, where in survived.items():
        assert run.acknowledged.get(number, where) == where


def crash(seed: int, stop_at: int, flush: str, ignore_sync: Callable[[str], bool] | None = None) -> Run:
    def stop(number: int, name: str, path: str) -> None:
        if number >= stop_at:
            raise Stopped

    disk = Disk(stop)
    if ignore_sync is not None:
        disk.ignore_sync = ignore_sync
    run = Run(disk, Random(seed), flush=flush)
    with contextlib.suppress(Stopped):
        run.steps(120)
    disk.on_call = None
    return run


seeds, moments, modes = st.integers(0, 2**32), st.integers(1, 400), st.sampled_from(["async", "sync"])


@given(seeds, moments, modes)
@settings(max_examples=60, deadline=None)
def test_a_killed_broker_keeps_everything_that_it_acknowledged(seed: int, stop_at: int, flush: str) -> None:
    run = crash(seed, stop_at, flush)
    store = open_store(run.disk.killed(), flush=flush)
    check(run, store, set(run.acknowledged))


@given(seeds, moments, modes)
@settings(max_examples=100, deadline=None)
def test_a_loss_of_power_takes_no_more_than_was_not_synced(seed: int, stop_at: int, flush: str) -> None:
    run = crash(seed, stop_at, flush)
    files = run.disk.without_power(Random(seed + 1))
    store = open_store(files, flush=flush)
    check(run, store, run.safe)


@given(seeds, st.lists(st.integers(1, 150), min_size=1, max_size=4), modes)
@settings(max_examples=40, deadline=None)
def test_crashes_after_crashes_and_during_recovery_change_nothing(seed: int, stops: list[int], flush: str) -> None:
    """Each round goes on where the last left off, until a last one ends in peace."""
    random = Random(seed)
    files = MemoryFiles()
    everything: dict[int, tuple[str, int, int]] = {}
    for stop_at in stops:
        disk = disk_of(files)
        first = len(found(open_store(deepcopy(files), flush=flush)))

        def stop(number: int, name: str, path: str, stop_at: int = stop_at) -> None:
            if number >= stop_at:
                raise Stopped

        disk.on_call = stop
        run = Run(disk, random, flush=flush, first=first)
        with contextlib.suppress(Stopped):
            run.steps(40)
        everything = {number: where for number, where in everything.items() if number < first} | run.acknowledged
        must_have = {number for number in everything if number < first} | run.safe
        files = disk.killed() if random.random() < 0.5 else disk.without_power(random)
        store = open_store(deepcopy(files), flush=flush)
        survived = found(store)
        assert sorted(survived) == list(range(len(survived)))
        assert must_have <= survived.keys()
        assert all(survived[number] == where for number, where in everything.items() if number in survived)


@given(seeds, moments)
@settings(max_examples=30, deadline=None)
def test_recovering_again_finds_the_same(seed: int, stop_at: int) -> None:
    files = crash(seed, stop_at, "async").disk.without_power(Random(seed))
    once = deepcopy(files)
    first = found(open_store(once))
    assert found(open_store(once)) == first
    assert found(open_store(files)) == first


def no_entry_is_missing(store: MessageStore) -> None:
    """Reading makes missing entries again, here. Apache RocketMQ, which may get the directory, trusts them."""
    for topic, queue_id in QUEUES:
        for offset in range(store.max_offset(topic, queue_id)):
            entry = store.entry(topic, queue_id, offset)
            assert entry is not None
            assert entry[1] > 0


@pytest.mark.parametrize(
    ("part", "flush"),
    [
        ("commitlog/0", "sync"),
        ("commitlog/0", "async"),
        ("commitlog/", "sync"),
        ("consumequeue/", "async"),
        ("checkpoint", "async"),
        ("/", "async"),
    ],
)
def test_no_sync_can_be_left_out(part: str, flush: str) -> None:
    """Where the disk ignores one kind of sync, some loss of power does harm: the checks above are able to fail."""

    def ignored(path: str) -> bool:
        return path == part if part.endswith("/") and part != "consumequeue/" else path.startswith(part)

    for seed in range(300):
        run = crash(seed, Random(seed).randint(20, 400), flush, ignored)
        files = run.disk.without_power(Random(seed))
        if run.acknowledged and ABORT not in files.names("") and run.disk.names("")[0] == ABORT:
            return
        try:
            store = open_store(files, flush=flush)
            no_entry_is_missing(store)
            check(run, store, run.safe)
        except (AssertionError, ValueError, ConfigError):
            return
    pytest.fail(f"nothing noticed that {part} was never synced")


@given(seeds, st.integers(30, 300), st.sampled_from([5, 24, 28]), modes, st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_disk_that_fails_once_costs_no_acknowledged_message(
    seed: int, fail_at: int, code: int, flush: str, sees_reads: bool
) -> None:
    """EIO, EMFILE and ENOSPC at any call: what was acknowledged stays, what was refused is gone for ever."""
    disk = Disk(sees_reads=sees_reads)
    random = Random(seed)
    run = Run(disk, random, flush=flush)
    store = open_store(disk, flush=flush)
    refused: set[int] = set()
    unknown: set[int] = set()

    def fail(number: int, name: str, path: str) -> None:
        if number == fail_at:
            raise OSError(code, "injected")

    disk.on_call = fail
    for _ in range(80):
        before = run.next
        try:
            run.step(store)
        except StoreError as error:
            failed = set(range(before, run.next)) - run.acknowledged.keys()
            (unknown if error.is_unknown else refused).update(failed)
    for files in (disk.killed(), disk.without_power(random)):
        survived = found(open_store(files, flush=flush))
        if flush == "sync":
            assert run.acknowledged.keys() <= survived.keys()
        assert not refused & survived.keys()
        assert all(survived[n] == where for n, where in run.acknowledged.items() if n in survived)
    survived = found(open_store(disk.killed(), flush=flush))
    assert run.acknowledged.keys() <= survived.keys() <= run.acknowledged.keys() | unknown
