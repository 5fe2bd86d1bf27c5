"""Locks of orderly queues: kept, given back, and asked for again after they were uncertain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.blocked import BlockedQueues
from rocketapp.consumer.member import Member
from rocketapp.consumer.offsets.commits import Commits
from rocketapp.consumer.queues.leases import Leases, Lock
from rocketapp.errors import RequestTimeoutError, TransportError
from rocketapp.model.event import LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.tasks import Tasks
from rocketapp.testing.virtual_time import VirtualTimeLoop
from tests.unit.scripted import Events, eventually, in_virtual_time

QUEUES = [MessageQueue("topic", "broker-a", queue_id) for queue_id in range(64)]


class Locks:
    """A broker that grants every lock but those that another member has taken, until it falls silent."""

    def __init__(self) -> None:
        self.silent = self.gone = False
        self.taken: set[MessageQueue] = set()
        self.unchanged: bool | None = True
        self.renewing = asyncio.Event()
        self.log: list[tuple[str, int]] = []
        self.tasks = Tasks()

    async def lock(self, broker_name: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        if self.gone:
            raise TransportError(broker_name, "its master is not connected")
        wanted = set(queues)
        self.log.append(("lock", len(wanted)))
        self.renewing.set()
        await asyncio.sleep(1.0 if self.silent else 0.1)
        self.log.append(("locked", len(wanted - self.taken)))
        return wanted - self.taken

    async def unlock(self, broker_name: str, queues: Iterable[MessageQueue]) -> None:
        if self.gone:
            raise TransportError(broker_name, "its master is not connected")
        self.log.append(("unlock", len(list(queues))))
        if self.silent:
            await asyncio.sleep(1.0)
            raise RequestTimeoutError(broker_name, "no answer within 1 s")

    async def is_unchanged(self, queue: MessageQueue) -> bool | None:
        return self.unchanged


def of(locks: Locks, events: Events) -> Leases:
    blocked = BlockedQueues("group", events)
    locks.tasks = Tasks(events)
    member = SimpleNamespace(brokers=locks, config=ConsumerConfig(), blocked=blocked, observe=events, tasks=locks.tasks)
    member.repeat = partial(Member.repeat, cast(Member, member))
    return Leases(cast(Member, member), cast(Commits, locks))


def never() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def held(locks: Locks, events: Events) -> tuple[Leases, list[Lock]]:
    leases = of(locks, events)
    found = [leases.want(queue) for queue in QUEUES]
    await asyncio.wait([lock.gained for lock in found])
    return leases, found


@in_virtual_time
async def test_many_locks_are_asked_for_and_given_back_in_one_request_each() -> None:
    locks = Locks()
    _, found = await held(locks, Events())
    await asyncio.gather(*(lock.give_back() for lock in found))
    assert locks.log == [("lock", 64), ("locked", 64), ("unlock", 64)]
    await locks.tasks.close()


@in_virtual_time
async def test_many_locks_are_given_back_to_a_silent_broker_within_one_timeout() -> None:
    locks, loop = Locks(), asyncio.get_running_loop()
    _, found = await held(locks, Events())
    locks.silent = True
    began = loop.time()
    await asyncio.gather(*(lock.give_back() for lock in found))
    assert loop.time() - began < 1.5
    await locks.tasks.close()


@in_virtual_time
async def test_a_lock_whose_broker_is_away_is_given_back_when_that_is_there_again_unless_it_is_wanted_again() -> None:
    locks, events = Locks(), Events()
    leases, found = await held(locks, events)
    locks.gone = True
    leases.suspend("broker-a")
    await asyncio.gather(*(lock.give_back() for lock in found[:3]))
    assert [event.loop for event in events.of(LoopFailed)] == ["unlock"], "nobody waits for that broker"
    wanted = leases.want(QUEUES[0])
    await asyncio.sleep(10)
    assert len(events.of(LoopFailed)) == 1, "it is told once"
    locks.gone = False
    leases.renew_now("broker-a")
    del locks.log[:]
    await asyncio.wait([wanted.gained])
    assert locks.log == [("unlock", 2), ("lock", 62), ("locked", 62)]
    await locks.tasks.close()


@in_virtual_time
async def test_a_lock_that_is_wanted_and_given_back_while_its_broker_hears_of_the_time_before_is_told_anew() -> None:
    class Slow(Locks):
        async def unlock(self, broker_name: str, queues: Iterable[MessageQueue]) -> None:
            await super().unlock(broker_name, queues)
            await asyncio.sleep(1.0)

    locks = Slow()
    leases, found = await held(locks, Events())
    locks.gone = True
    await found[0].give_back()
    locks.gone = False
    del locks.log[:]
    await eventually(lambda: bool(locks.log))
    async with asyncio.timeout(5.0):
        await leases.want(QUEUES[0]).give_back()
    assert locks.log == [("unlock", 1), ("unlock", 1)]
    await locks.tasks.close()


@in_virtual_time
async def test_a_lock_that_its_broker_has_forgotten_by_itself_is_given_back_no_more() -> None:
    locks, events = Locks(), Events()
    leases, found = await held(locks, events)
    locks.gone = True
    await asyncio.gather(*(lock.give_back() for lock in found))
    await asyncio.sleep(61)
    locks.gone = False
    del locks.log[:]
    leases.renew_now("broker-a")
    await asyncio.sleep(1)
    assert locks.log == []
    await locks.tasks.close()


@in_virtual_time
async def test_a_lock_is_given_back_after_a_renewal_that_is_under_way() -> None:
    locks = Locks()
    _, found = await held(locks, Events())
    locks.renewing.clear()
    await locks.renewing.wait()
    del locks.log[:]
    await found[0].give_back()
    assert locks.log == [("locked", 64), ("unlock", 1)]
    await locks.tasks.close()


@in_virtual_time
async def test_after_a_lost_connection_locks_are_asked_for_again_and_used_when_nothing_changed() -> None:
    locks = Locks()
    leases, found = await held(locks, Events())
    locks.gone = True
    leases.suspend("broker-a")
    assert not any(lock.held(asyncio.get_running_loop().time()) for lock in found)
    waiting = asyncio.ensure_future(found[0].wait_until_certain(never()))
    await asyncio.sleep(5)
    assert not waiting.done()
    locks.gone = False
    del locks.log[:]
    leases.renew_now("broker-a")
    assert await asyncio.wait_for(waiting, 0.2)
    assert locks.log == [("lock", 64), ("locked", 64)]
    await locks.tasks.close()


@in_virtual_time
async def test_a_lock_that_is_refused_after_a_doubt_is_lost_for_good() -> None:
    locks = Locks()
    leases, found = await held(locks, Events())
    leases.suspend("broker-a")
    locks.taken = {QUEUES[0]}
    leases.renew_now("broker-a")
    assert not await found[0].wait_until_certain(never())
    assert await found[1].wait_until_certain(never())
    assert found[0].lost.done()
    await locks.tasks.close()


@in_virtual_time
async def test_a_lock_is_lost_when_another_member_committed_while_it_was_in_doubt() -> None:
    locks = Locks()
    leases, found = await held(locks, Events())
    leases.suspend("broker-a")
    locks.unchanged = None  # its offset cannot be read yet
    leases.renew_now("broker-a")
    await asyncio.sleep(3)
    assert not found[0].lost.done() and found[0].is_suspended
    locks.unchanged = False
    await eventually(lambda: all(lock.lost.done() for lock in found), 2)
    await locks.tasks.close()


@in_virtual_time
async def test_a_lease_that_ran_out_while_the_loop_was_blocked_is_asked_for_before_it_is_given_up() -> None:
    locks, loop = Locks(), asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    _, found = await held(locks, Events())
    loop.stand_still(40)
    assert not found[0].held(loop.time())
    assert await found[0].wait_until_certain(never())
    assert not found[0].lost.done()
    await locks.tasks.close()


@in_virtual_time
async def test_refused_locks_are_asked_for_together_twice_a_second() -> None:
    locks = Locks()
    locks.taken = set(QUEUES)
    leases = of(locks, Events())
    found = [leases.want(queue) for queue in QUEUES]
    await asyncio.sleep(6)
    asked = [count for kind, count in locks.log if kind == "lock"]
    assert set(asked) == {64} and 9 <= len(asked) <= 12
    locks.taken = set()
    await eventually(lambda: all(lock.gained.done() for lock in found), 1)
    await locks.tasks.close()


@in_virtual_time
async def test_under_a_lock_that_is_lost_nothing_starts_and_who_waits_for_it_hears_of_it_at_once() -> None:
    keeper: Any = None
    lock, now, heard = Lock(MessageQueue("topic", "broker-a", 0), keeper, ConsumerConfig()), 0.0, list[bool]()
    lock.granted(now)
    assert lock.held(now)
    assert lock.ask_at == lock.renewal() > now
    lock.when_decided(lambda: heard.append(lock.is_lost))
    lock.lose()
    assert not lock.held(now)
    assert heard == [True]
    assert lock.lost.done()
