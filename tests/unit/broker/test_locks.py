"""Queue locks of orderly consumers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.broker.lock_file import LockFile
from rocketapp.broker.locks import LockTable
from rocketapp.broker.store.config_files import QUEUE_LOCKS
from rocketapp.broker.store.files import DirectoryFiles, Files, MemoryFiles, read_whole, replace_whole
from rocketapp.clock import SystemClock
from rocketapp.model.event import LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.clients import UnregisterRequest
from rocketapp.wire.requests.locks import LockBody, decode_locked
from tests.unit.broker.asking import Client, running
from tests.unit.broker.test_disk_trouble import FullDisk
from tests.unit.scripted import in_virtual_time

QUEUES = [MessageQueue("orders", "broker-a", queue_id) for queue_id in range(3)]


def test_a_free_queue_goes_to_the_member_that_asks_first() -> None:
    locks = LockTable(60)
    assert locks.lock("billing", QUEUES[:2], "one", now=0) == QUEUES[:2]
    assert locks.lock("billing", QUEUES, "two", now=1) == QUEUES[2:]
    assert locks.owner("billing", QUEUES[0], now=1) == "one"


def test_groups_do_not_compete() -> None:
    locks = LockTable(60)
    assert locks.lock("billing", QUEUES, "one", now=0) == QUEUES
    assert locks.lock("shipping", QUEUES, "two", now=0) == QUEUES


def test_a_renewed_lock_lives_on_and_a_forgotten_one_is_taken_over_after_its_expiry() -> None:
    locks = LockTable(60)
    locks.lock("billing", QUEUES[:2], "one", now=0)
    assert locks.lock("billing", QUEUES[:1], "one", now=20) == QUEUES[:1]
    assert locks.lock("billing", QUEUES[:2], "two", now=60) == []
    assert locks.lock("billing", QUEUES[:2], "two", now=60.1) == QUEUES[1:2]
    assert locks.lock("billing", QUEUES[:2], "two", now=80.1) == QUEUES[:2]


def test_only_the_owner_can_unlock() -> None:
    locks = LockTable(60)
    locks.lock("billing", QUEUES, "one", now=0)
    locks.unlock("billing", QUEUES, "two")
    assert locks.owner("billing", QUEUES[0], now=1) == "one"
    locks.unlock("billing", QUEUES[:1], "one")
    assert locks.owner("billing", QUEUES[0], now=1) is None
    assert locks.owner("billing", QUEUES[1], now=1) == "one"


def test_unlocking_what_was_never_locked_is_harmless() -> None:
    locks = LockTable(60)
    locks.unlock("billing", QUEUES, "one")
    assert not locks.holds_any("billing", now=0)


def test_a_group_consumes_in_order_as_long_as_any_lock_has_not_expired() -> None:
    locks = LockTable(60)
    locks.lock("billing", QUEUES[:1], "one", now=0)
    assert locks.holds_any("billing", now=60)
    assert not locks.holds_any("billing", now=60.1)
    assert not locks.holds_any("shipping", now=0)


def test_sweeping_forgets_expired_locks_and_nothing_else() -> None:
    locks = LockTable(60)
    locks.lock("billing", QUEUES[:1], "one", now=0)
    locks.lock("shipping", QUEUES[:1], "one", now=50)
    locks.sweep(now=70)
    assert repr(locks) == "<LockTable 1 locks of 1 groups>"
    assert locks.owner("shipping", QUEUES[0], now=70) == "one"


def test_asking_for_nothing_leaves_nothing_behind() -> None:
    locks = LockTable(60)
    assert locks.lock("billing", [], "one", now=0) == []
    assert repr(locks) == "<LockTable 0 locks of 0 groups>"


# Over a restart.


def saved(locks: LockTable, now: float, wall: float) -> Any:
    return json.loads(json.dumps(locks.begin_save(now, wall)[0]))


@given(st.floats(0, 200), st.floats(-0.9, 0.9), st.floats(0, 59))
def test_a_loaded_lock_ends_when_it_would_have_without_the_restart(down: float, drift: float, age: float) -> None:
    locks, again = LockTable(60), LockTable(60)
    locks.lock("billing", QUEUES[:1], "one", now=1000)
    back, end = 1000 + age + down, 1060
    again.load(saved(locks, 1000 + age, 1e9), back, 1e9 + down + drift)
    assert back > end - 0.01 or again.owner("billing", QUEUES[0], end - 0.01) == "one"
    assert again.owner("billing", QUEUES[0], max(back, end) + 0.01) is None


@given(st.floats(0, 200), st.sampled_from([-1e6, -1.1, 1.1, 1e6]), st.floats(0, 59), st.booleans())
def test_after_a_jump_of_the_wall_clock_or_a_reboot_a_loaded_lock_lives_one_expiry_more(
    down: float, jump: float, age: float, is_rebooted: bool
) -> None:
    locks, again = LockTable(60), LockTable(60)
    locks.lock("billing", QUEUES[:1], "one", now=1000)
    back = 5.0 if is_rebooted else 1000 + age + down
    again.load(saved(locks, 1000 + age, 1e9), back, 1e9 + down + jump)
    assert again.owner("billing", QUEUES[0], back + 59.9) == "one"
    assert again.owner("billing", QUEUES[0], back + 60.1) is None


def test_renewals_are_saved_every_quarter_of_a_life_and_new_owners_at_once() -> None:
    locks = LockTable(60)
    locks.lock("billing", QUEUES[:1], "one", now=0)
    assert locks.dirty
    locks.begin_save(0, 1e9)[1](True)
    locks.lock("billing", QUEUES[:1], "one", now=14)
    assert not locks.dirty
    locks.lock("billing", QUEUES[:1], "one", now=15)
    assert locks.dirty
    locks.begin_save(15, 1e9)[1](True)
    locks.unlock("billing", QUEUES[:1], "one")
    assert locks.dirty


def file_of(files: Files, locks: LockTable, monotonic: Callable[[], float], *, in_thread: bool = False) -> LockFile:
    return LockFile(files, locks, clock=SystemClock(), monotonic=monotonic, observe=lambda _: None, in_thread=in_thread)


async def lock(client: Client, *queues: MessageQueue) -> set[MessageQueue]:
    answer = await client.ask(RequestCode.LOCK_BATCH_MQ, {}, LockBody("billing", client.name, list(queues)).encode())
    return decode_locked(answer.body) if answer.code == ResponseCode.SUCCESS else set()


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_restarted_broker_gives_a_lock_to_its_holder_and_to_no_other_before_its_end(killed: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            one = await broker.client("one")
            assert await lock(one, *QUEUES) == set(QUEUES)
            started = broker.loop.time()
            await broker.restart(killed=killed)
            two = await broker.client("two")
            assert await lock(two, *QUEUES) == set()
            await asyncio.sleep(10)
            one = await broker.client("one")
            assert await lock(one, QUEUES[0]) == {QUEUES[0]}
            await asyncio.sleep(started + 60.5 - broker.loop.time())
            assert await lock(two, *QUEUES) == set(QUEUES[1:])

    story()


@in_virtual_time
async def test_a_client_that_unregisters_frees_its_locks_and_a_lost_connection_frees_none() -> None:
    async with running() as broker:
        one, two, three = [await broker.client(name) for name in ("one", "two", "three")]
        await lock(one, QUEUES[0])
        await lock(two, QUEUES[1])
        await two.connection.close("gone")
        fields = UnregisterRequest("one", None, "billing").to_fields()
        await one.ask(RequestCode.UNREGISTER_CLIENT, fields)
        await broker.restart(killed=True)
        three = await broker.client("three")
        assert await lock(three, *QUEUES) == {QUEUES[0], QUEUES[2]}


@in_virtual_time
async def test_a_lock_that_cannot_be_saved_is_not_granted_and_a_renewal_is() -> None:
    files = FullDisk()
    async with running(files) as broker:
        one = await broker.client("one")
        await lock(one, QUEUES[0])
        files.refused = "config/"
        await asyncio.sleep(20)
        assert await lock(one, QUEUES[0]) == {QUEUES[0]}
        assert await lock(one, QUEUES[1]) == set()
        files.refused = "nothing"
        two = await broker.client("two")
        assert await lock(two, *QUEUES[:2]) == {QUEUES[1]}


@in_virtual_time
async def test_a_renewal_that_a_restart_would_forget_is_not_granted() -> None:
    files = FullDisk()
    async with running(files) as broker:
        one = await broker.client("one")
        assert await lock(one, *QUEUES) == set(QUEUES)
        files.refused = "config/"
        trusted_until = 0.0
        for _ in range(6):
            await asyncio.sleep(20)
            if await lock(one, *QUEUES):
                trusted_until = broker.loop.time() + 30
        files.refused = "nothing"
        await broker.restart(killed=True)
        taken = await lock(await broker.client("two"), *QUEUES)
        assert not taken or broker.loop.time() > trusted_until


@in_virtual_time
async def test_a_renewal_that_waited_for_a_full_disk_is_granted_when_there_is_room_again() -> None:
    files = FullDisk()
    async with running(files) as broker:
        one = await broker.client("one")
        await lock(one, *QUEUES)
        files.refused = "config/"
        await asyncio.sleep(40)
        assert await lock(one, *QUEUES) == set()
        assert await lock(await broker.client("two"), *QUEUES) == set()
        files.refused = "nothing"
        assert await lock(one, *QUEUES) == set(QUEUES)


@in_virtual_time
async def test_a_holder_from_before_a_reboot_keeps_its_lock_while_the_disk_is_full() -> None:
    files = FullDisk()
    async with running(files) as broker:
        await lock(await broker.client("one"), QUEUES[0])
        content = json.loads(read_whole(files, QUEUE_LOCKS) or b"")
        content["monotonicMs"] += 10_000_000
        await broker.broker.stop()
        replace_whole(files, QUEUE_LOCKS, json.dumps(content).encode())
        files.refused = QUEUE_LOCKS
        await broker.restart()
        assert await lock(await broker.client("one"), QUEUES[0]) == set()
        files.refused = "nothing"
        assert await lock(await broker.client("two"), QUEUES[0]) == set()
        assert await lock(await broker.client("one"), QUEUES[0]) == {QUEUES[0]}


def test_locks_from_before_apache_rocketmq_had_the_directory_are_not_used(tmp_path: Path) -> None:
    files = DirectoryFiles(str(tmp_path))
    replace_whole(files, QUEUE_LOCKS, b"{}")
    files.close()
    files = DirectoryFiles(str(tmp_path))
    assert read_whole(files, QUEUE_LOCKS) == b"{}"
    files.close()
    with (tmp_path / "lock").open("r+") as lock_file:
        lock_file.write("lock")
    files = DirectoryFiles(str(tmp_path))
    assert read_whole(files, QUEUE_LOCKS) is None
    files.close()


@in_virtual_time
async def test_a_lone_surrogate_in_a_name_is_saved() -> None:
    files, locks, loop = MemoryFiles(), LockTable(60), asyncio.get_running_loop()
    locks.lock("\ud800", QUEUES[:1], "one", loop.time())
    file_of(files, locks, loop.time).save_now()
    assert locks.unsafe("\ud800", QUEUES[:1], "one", loop.time()) == []


@in_virtual_time
async def test_renewals_wait_for_the_next_round_of_saving() -> None:
    files = CountingFiles()
    async with running(files) as broker:
        queues = [MessageQueue("orders", "broker-a", queue_id) for queue_id in range(500)]
        one = await broker.client("one")
        assert await lock(one, *queues) == set(queues)
        files.written = 0
        for _ in range(10):
            await asyncio.sleep(20)
            for queue in queues[::10]:
                assert await lock(one, queue) == {queue}
        assert files.written <= 20


class CountingFiles(MemoryFiles):
    """Counts the writes of queue locks."""

    written = 0

    def rename(self, old: str, new: str) -> None:
        self.written += new == QUEUE_LOCKS
        super().rename(old, new)


class SlowFiles(CountingFiles):
    """A write of queue locks takes until `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on, self.error = threading.Event(), ""

    def rename(self, old: str, new: str) -> None:
        if new == QUEUE_LOCKS:
            self.go_on.wait(10)
            if self.error:
                raise OSError(self.error)
        super().rename(old, new)


def test_the_loop_does_not_wait_for_a_write_of_locks_which_later_requests_share_and_a_close_waits() -> None:
    async def story() -> None:
        files, locks, told = SlowFiles(), LockTable(60), list[str]()
        loop = asyncio.get_running_loop()
        writer = file_of(files, locks, loop.time, in_thread=True)
        running = asyncio.ensure_future(writer.run())
        locks.lock("billing", QUEUES[:1], "one", loop.time())
        writer.save(lambda error: told.append(f"first {error}"))
        await asyncio.sleep(0.05)
        both = asyncio.Event()
        locks.lock("billing", QUEUES[1:2], "one", loop.time())
        writer.save(lambda error: told.append(f"second {error}"))
        await asyncio.sleep(0.05)
        locks.lock("billing", QUEUES[2:], "one", loop.time())
        writer.save(lambda error: both.set())
        assert told == []
        assert locks.unsafe("billing", QUEUES, "one", loop.time()) == QUEUES
        files.go_on.set()
        await both.wait()
        assert told == ["first None", "second None"]
        assert files.written == 2
        assert locks.unsafe("billing", QUEUES, "one", loop.time()) == []

        files.error = "no more"
        locks.unlock("billing", QUEUES, "one")
        writer.save()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        writer.close()
        assert locks.dirty

    asyncio.run(story())


@in_virtual_time
async def test_an_older_copy_of_the_locks_is_never_used() -> None:
    files = MemoryFiles()
    async with running(files) as broker:
        one = await broker.client("one")
        await one.send("orders")
        await lock(one, QUEUES[0])
        older = read_whole(files, QUEUE_LOCKS)
        assert older is not None
        await lock(one, QUEUES[1])
        replace_whole(files, f"{QUEUE_LOCKS}.bak", older)
        replace_whole(files, QUEUE_LOCKS, b"{")
        await broker.restart(killed=True)
        assert await lock(await broker.client("two"), *QUEUES) == set()


@in_virtual_time
async def test_after_a_reboot_the_next_restart_knows_the_time_of_the_locks_again() -> None:
    files = MemoryFiles()
    async with running(files) as broker:
        await lock(await broker.client("one"), QUEUES[0])
        content = json.loads(read_whole(files, QUEUE_LOCKS) or b"")
        content["monotonicMs"] += 10_000_000
        await broker.broker.stop()
        replace_whole(files, QUEUE_LOCKS, json.dumps(content).encode())
        await broker.restart(killed=True)
        await asyncio.sleep(40)
        await broker.restart(killed=True)
        await asyncio.sleep(21)
        assert await lock(await broker.client("two"), QUEUES[0]) == {QUEUES[0]}


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b"[]", b'{"locks":7}', b'{"savedAtMs":1,"monotonicMs":1,"locks":[{}]}']
)
def test_a_file_of_locks_that_is_gone_or_damaged_stops_no_start_and_nothing_is_locked_until_all_locks_ended(
    content: bytes | None,
) -> None:
    @in_virtual_time
    async def story() -> None:
        files = MemoryFiles()
        async with running(files) as broker:
            one = await broker.client("one")
            await one.send("orders")
            await lock(one, *QUEUES)
            for name in files.names("config"):
                if name.startswith("queueLocks"):
                    files.remove(f"config/{name}")
            if content is not None:
                replace_whole(files, "config/queueLocks.json", content)
            for _ in range(2):
                await broker.restart(killed=True)
                assert [event for event in broker.events if isinstance(event, LoopFailed) and event.loop == "locks"]
                two = await broker.client("two")
                assert await lock(two, *QUEUES) == set()
            await asyncio.sleep(60.1)
            assert await lock(two, *QUEUES) == set(QUEUES)

    story()


@in_virtual_time
async def test_a_new_store_locks_at_once() -> None:
    async with running() as broker:
        assert await lock(await broker.client(), *QUEUES) == set(QUEUES)
