"""Locks of orderly queues, kept and given back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.group.leases import Leases
from rocketapp.errors import RequestTimeoutError
from rocketapp.model.message_queue import MessageQueue
from tests.unit.scripted import Events, in_virtual_time

QUEUES = [MessageQueue("topic", "broker-a", queue_id) for queue_id in range(64)]


class Locks:
    """A broker that grants every lock, until it falls silent."""

    def __init__(self) -> None:
        self.silent = False
        self.renewing = asyncio.Event()
        self.log: list[str] = []

    async def lock(self, broker_name: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        wanted = set(queues)
        self.log.append("lock")
        self.renewing.set()
        await asyncio.sleep(1.0 if self.silent else 0.1)
        self.log.append("locked")
        return wanted

    async def unlock(self, broker_name: str, queues: Iterable[MessageQueue]) -> None:
        self.log.append("unlock")
        if self.silent:
            await asyncio.sleep(1.0)
            raise RequestTimeoutError(broker_name, "no answer within 1 s")


async def held(locks: Locks, events: Events) -> tuple[Leases, list[Any]]:
    leases = Leases(brokers=cast(Any, locks), config=ConsumerConfig(), observe=events)
    found = [leases.want(queue) for queue in QUEUES]
    await asyncio.wait([lock.gained for lock in found])
    return leases, found


@in_virtual_time
async def test_many_locks_are_given_back_to_a_silent_broker_within_one_timeout() -> None:
    locks, loop = Locks(), asyncio.get_running_loop()
    leases, found = await held(locks, Events())
    locks.silent = True
    began = loop.time()
    await asyncio.gather(*map(leases.give_back, found))
    assert loop.time() - began < 1.5
    await leases.stop()


@in_virtual_time
async def test_a_lock_is_given_back_after_a_renewal_that_is_under_way() -> None:
    locks = Locks()
    leases, found = await held(locks, Events())
    locks.renewing.clear()
    await locks.renewing.wait()
    del locks.log[:]
    await leases.give_back(found[0])
    assert locks.log == ["locked", "unlock"]
    await leases.stop()
