"""Queue locks of orderly consumers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.broker.locks import LockTable
from rocketapp.broker.store.files import MemoryFiles, replace_whole
from rocketapp.model.event import LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.clients import UnregisterRequest
from rocketapp.wire.requests.locks import LockBody, decode_locked
from tests.unit.broker.asking import Client, running
from tests.unit.broker.test_disk_trouble import FullDisk
from tests.unit.scripted import in_virtual_time

QUEUES = [MessageQueue("orders", "broker-a", queue_id) for queue_id in range(3)]


def test_a_free_queue_goes_to_whoever_asks_first() -> None:
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
    return json.loads(json.dumps(locks.to_json(now, wall)))


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
    locks.to_json(0, 1e9)
    locks.lock("billing", QUEUES[:1], "one", now=14)
    assert not locks.dirty
    locks.lock("billing", QUEUES[:1], "one", now=15)
    assert locks.dirty
    locks.to_json(15, 1e9)
    locks.unlock("billing", QUEUES[:1], "one")
    assert locks.dirty


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
