"""Keeps the locks of orderly queues alive, a loop per broker.

Locks of one broker that are due are asked for together. One that was not granted is asked
for again soon: the lock of a member that died lives for 60 s, one that left cleanly has
given it back.
"""

from __future__ import annotations

import asyncio

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.errors import RocketAppError
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.lease import Lease
from rocketapp.tasks import Tasks

_ASK_AGAIN = 0.5
"""Seconds until a lock that was not granted, or not answered for, is asked for again."""
_TOGETHER = 1.0
"""Renewals that are due within so many seconds are asked for in one request."""


class Lock:
    """The lock of one queue for one session: gained once, lost once."""

    def __init__(self, queue: MessageQueue, lease: Lease, now: float) -> None:
        self.queue, self.lease = queue, lease
        self.ask_at = now
        """The loop's time when it is asked for next."""
        self.problem = "its lock was not asked for yet"
        """Why it is not held."""
        loop = asyncio.get_running_loop()
        self.gained: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()

    def __repr__(self) -> str:
        return f"<Lock {self.queue}: {self.lease}>"

    @property
    def check_at(self) -> float:
        """When something has to be done about it."""
        is_held = self.gained.done() and not self.lost.done()
        return min(self.ask_at, self.lease.trusted_until) if is_held else self.ask_at

    async def usable(self) -> bool:
        """Whether the lock is held; a lock whose time is over is lost."""
        return self.lease.held(asyncio.get_running_loop().time())

    def check(self, now: float) -> None:
        """Say that it was gained, or that it is not held any more."""
        if self.lease.held(now):
            if not self.gained.done():
                self.gained.set_result(None)
        elif self.gained.done() and not self.lost.done():
            self.lost.set_result(None)


class Leases:
    """The locks of one group."""

    def __init__(self, *, brokers: Brokers, config: ConsumerConfig, observe: Observe) -> None:
        self._brokers, self._config, self._observe = brokers, config, observe
        self._tasks = Tasks(observe)
        self._keepers: dict[str, _Keeper] = {}
        self._loop = asyncio.get_running_loop()

    def want(self, queue: MessageQueue) -> Lock:
        """Ask for this lock from now on, and keep it once it is gained."""
        lease = Lease(trust=self._config.lock_trust, renew_interval=self._config.lock_renew_interval)
        lock = Lock(queue, lease, self._loop.time())
        keeper = self._keepers.get(queue.broker_name)
        if keeper is None:
            keeper = self._keepers[queue.broker_name] = _Keeper(queue.broker_name, self._brokers, self._observe)
            self._tasks.start(keeper.run(), f"locks of {queue.broker_name}")
        keeper.add(lock)
        return lock

    def drop(self, lock: Lock) -> None:
        """Ask for it no more, and let it expire: a handler that nobody can stop may still run under it."""
        self._keepers[lock.queue.broker_name].remove(lock)

    async def give_back(self, lock: Lock) -> None:
        """Ask for it no more, and let others have it now."""
        await self._keepers[lock.queue.broker_name].give_back(lock)

    async def stop(self) -> None:
        """Renew nothing more."""
        await self._tasks.close()


class _Keeper:
    """The locks at one broker."""

    def __init__(self, broker_name: str, brokers: Brokers, observe: Observe) -> None:
        self._broker_name, self._brokers, self._observe = broker_name, brokers, observe
        self._locks: dict[MessageQueue, Lock] = {}
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._asking = asyncio.Lock()

    def add(self, lock: Lock) -> None:
        self._locks[lock.queue] = lock
        self._wake.set()

    def remove(self, lock: Lock) -> None:
        if self._locks.get(lock.queue) is lock:
            del self._locks[lock.queue]
        lock.lease.lost()

    async def give_back(self, lock: Lock) -> None:
        self.remove(lock)
        async with self._asking:
            pass  # a renewal that overtook the giving back would lock the queue for another minute
        try:
            await self._brokers.unlock(self._broker_name, [lock.queue])
        except RocketAppError as error:
            # It expires by itself; whoever wants it waits a minute at most.
            self._observe(LoopFailed("unlock", f"{lock.queue}: {error}"))

    async def run(self) -> None:
        """Ask for what is due, for ever."""
        while True:
            await self._sleep()
            try:
                async with self._asking:
                    await self._ask()
            except Exception as error:
                # Whatever it is, the other locks must still be renewed.
                self._observe(LoopFailed("locks", f"{type(error).__name__}: {error}"))
                await asyncio.sleep(_ASK_AGAIN)
            self._check()

    def _check(self) -> None:
        now = self._loop.time()
        for lock in self._locks.values():
            lock.check(now)

    async def _sleep(self) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout_at(min((lock.check_at for lock in self._locks.values()), default=None)):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _ask(self) -> None:
        # A lease that is over stays over, also if it is granted again: a process that stood still learns here, before
        # it renews anything, that others may have gone on with its queues meanwhile.
        self._check()
        sent_at = self._loop.time()
        due = [lock for lock in self._locks.values() if lock.ask_at <= sent_at + _TOGETHER]
        if not any(lock.ask_at <= sent_at for lock in due):
            return
        try:
            granted = await self._brokers.lock(self._broker_name, [lock.queue for lock in due])
        except RocketAppError as error:
            # No answer: what was granted before is trusted until its time is over.
            for lock in due:
                lock.problem, lock.ask_at = f"its lock cannot be asked for: {error}", self._loop.time() + _ASK_AGAIN
            return
        for lock in due:
            if self._locks.get(lock.queue) is not lock:
                continue
            if lock.queue in granted:
                lock.lease.granted(sent_at)
                lock.ask_at = lock.lease.renewal()
            else:
                lock.lease.lost()
                lock.problem, lock.ask_at = "another member holds its lock", self._loop.time() + _ASK_AGAIN
