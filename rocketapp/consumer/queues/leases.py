"""Requests and renews the locks of orderly queues, with one loop per broker.

Everything that is due at one broker is in one request. A refused lock is requested again soon: the lock of a member
that died lives for 60 s, one that left cleanly has unlocked it. After a lost connection, or when this process could not
renew in time, locks are uncertain: they are requested again before anything else, and used again only if no other
member has committed meanwhile.
"""

from __future__ import annotations

import asyncio

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.member import Member
from rocketapp.consumer.offsets.commits import Commits
from rocketapp.errors import RocketAppError
from rocketapp.model.event import LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.lease import LIVES, Lease
from rocketapp.tasks import is_set_by, until

_ASK_AGAIN = 0.5
"""Seconds until a lock that was not granted, or not answered for, is asked for again."""
_TOGETHER = 1.0
"""Renewals that are due within this many seconds are asked for in one request."""

_SOURCE = "lock"
"""Source of the reasons that concern locks."""
_PATIENCE = 1.0
"""Seconds without its lock, or with one that is uncertain, after which a queue is said to be blocked."""


class Lock(Lease):
    """The lock of one queue for one session."""

    def __init__(self, queue: MessageQueue, keeper: _BrokerLocks, config: ConsumerConfig) -> None:
        super().__init__(lasts=config.lock_lease, renew_interval=config.lock_renew_interval)
        self.queue: MessageQueue = queue
        self._keeper, self._loop = keeper, asyncio.get_running_loop()
        self.ask_at: float = self._loop.time()
        """The loop's time when it is asked for next."""
        self.problem = "its lock was not asked for yet"
        """Why it is not held."""
        self.gained: asyncio.Future[None] = self._loop.create_future()
        """Done when it is granted for the first time."""
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when it was refused after that, or is not wanted any more."""

    def __repr__(self) -> str:
        return f"<Lock {self.queue}: {super().__repr__()}>"

    async def wait_until_certain(self, ended: asyncio.Future[None]) -> bool:
        """Wait until the lock is certain, lost, or `ended` is done. Returns whether it is certain."""
        await until(lambda: self.lost.done() or ended.done() or self.held(self._loop.time()))
        return self.held(self._loop.time())

    def drop(self) -> None:
        """Stop renewing it and let it expire: a handler that cannot be stopped may still run under it."""
        self._keeper.has_dropped = True
        self._keeper.remove(self)

    async def give_back(self) -> None:
        """Unlock the queue. Without an answer of the broker the lock expires."""
        await self._keeper.give_back(self)

    def granted(self, sent_at: float) -> None:
        """The broker granted it, and no other member has had it meanwhile."""
        super().granted(sent_at)
        if self.held(self._loop.time()):
            self.ask_at = self.renewal()
            if not self.gained.done():
                self.gained.set_result(None)

    def lose(self) -> None:
        """The lock is lost."""
        super().lose()
        if not self.lost.done():
            self.lost.set_result(None)


class Leases:
    """Requests and renews the locks of one group."""

    def __init__(self, member: Member, commits: Commits) -> None:
        """`commits`: asked before an uncertain lock is used again."""
        self._member, self._commits = member, commits
        self._keepers: dict[str, _BrokerLocks] = {}

    def __repr__(self) -> str:
        return f"<Leases of {self._member.name}: {sum(len(each.locks) for each in self._keepers.values())} locks>"

    @property
    def has_dropped(self) -> bool:
        """Whether a lock is left to expire: a broker may free it as soon as this member leaves."""
        return any(keeper.has_dropped for keeper in self._keepers.values())

    def want(self, queue: MessageQueue) -> Lock:
        """Request this lock from now on, and renew it once it is granted."""
        keeper = self._keepers.get(queue.broker_name)
        if keeper is None:
            keeper = self._keepers[queue.broker_name] = _BrokerLocks(queue.broker_name, self._member, self._commits)
            self._member.tasks.start(keeper.run(), f"locks of {queue.broker_name}")
        lock = Lock(queue, keeper, self._member.config)
        keeper.want(lock)
        return lock

    def suspend(self, broker_name: str) -> None:
        """The connection to this broker was lost: its locks are uncertain."""
        if keeper := self._keepers.get(broker_name):
            keeper.suspend()

    def renew_now(self, broker_name: str) -> None:
        """This broker is connected again: request all of its locks before anything else."""
        if keeper := self._keepers.get(broker_name):
            keeper.renew_now()


class _BrokerLocks:
    """Requests the locks of one broker: all that are due in one request."""

    def __init__(self, broker_name: str, member: Member, commits: Commits) -> None:
        self._broker_name, self._member, self._commits = broker_name, member, commits
        self.locks: dict[MessageQueue, Lock] = {}
        self.has_dropped: bool = False
        """A lock was left to expire."""
        self._returned: dict[MessageQueue, asyncio.Future[float]] = {}
        """Locks whose broker has not been told that they are given back; done when that was tried, and until when it is
        tried again."""
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._is_over = False

    def want(self, lock: Lock) -> None:
        """Request it from now on, also if an earlier session still has to unlock it."""
        self._returned.pop(lock.queue, None)
        self.locks[lock.queue] = lock
        self._news.set()

    def remove(self, lock: Lock) -> None:
        if self.locks.get(lock.queue) is lock:
            del self.locks[lock.queue]
            self._member.blocked.forget(lock.queue, source=_SOURCE)
        lock.lose()

    async def give_back(self, lock: Lock) -> None:
        """Unlock; returns when the broker has answered. Locks given back at the same time share a request."""
        self.remove(lock)
        if self._is_over:
            return
        returned = self._returned.get(lock.queue)
        if returned is None:
            returned = self._returned[lock.queue] = self._loop.create_future()
        self._news.set()
        await asyncio.wait([returned])

    def suspend(self) -> None:
        now = self._loop.time()
        for lock in self.locks.values():
            if lock.gained.done():
                lock.suspend(now)
                lock.problem, lock.ask_at = "the connection to its broker was lost: its lock is asked for again", now
        self._news.set()

    def renew_now(self) -> None:
        now = self._loop.time()
        for lock in self.locks.values():
            lock.ask_at = now
        self._news.set()

    async def run(self) -> None:
        """Request what is due, until cancelled."""
        try:
            await self._member.repeat(self._turn, "locks", _ASK_AGAIN)
        finally:
            self._is_over = True
            for returned in self._returned.values():
                returned.cancel()

    async def _turn(self) -> None:
        times = [lock.ask_at for lock in self.locks.values()]
        times += [self._loop.time() + _ASK_AGAIN] if self._returned else []
        await is_set_by(self._news, min(times, default=None))
        self._news.clear()
        # First of all: a renewal that overtook it would lock the queue for another minute.
        await self._unlock()
        await self._ask()
        self._tell()

    async def _unlock(self) -> None:
        if not self._returned:
            return
        now, returned = self._loop.time(), dict(self._returned)
        try:
            await self._member.brokers.unlock(self._broker_name, list(returned))
        except RocketAppError as error:
            # It is told again until they have expired by themselves: a broker may keep them while it is restarted.
            if news := [queue for queue, waiter in returned.items() if not waiter.done()]:
                self._member.observe(LoopFailed("unlock", f"{', '.join(map(str, news))}: {error}"))
            told = [queue for queue, waiter in returned.items() if waiter.done() and waiter.result() <= now]
        else:
            told = list(returned)
        for queue, waiter in returned.items():
            if not waiter.done():
                waiter.set_result(now + LIVES)
            if queue in told and self._returned.get(queue) is waiter:
                del self._returned[queue]

    def _expire(self, now: float) -> None:
        """A lease whose time is over is uncertain: the loop was blocked, or no answer came."""
        for lock in self.locks.values():
            if lock.gained.done() and not lock.is_suspended and not lock.held(now):
                lock.suspend(now)
                lock.problem, lock.ask_at = "its time was over before it could be renewed", now

    async def _ask(self) -> None:
        sent_at = self._loop.time()
        self._expire(sent_at)
        due = [lock for lock in self.locks.values() if lock.ask_at <= sent_at + _TOGETHER]
        if not any(lock.ask_at <= sent_at for lock in due):
            return
        try:
            granted = await self._member.brokers.lock(self._broker_name, [lock.queue for lock in due])
        except RocketAppError as error:
            # No answer: what was granted before holds until its time is over.
            for lock in due:
                lock.problem, lock.ask_at = f"its lock cannot be asked for: {error}", self._loop.time() + _ASK_AGAIN
            return
        due = [lock for lock in due if self.locks.get(lock.queue) is lock]
        for lock in due:
            lock.ask_at = self._loop.time() + _ASK_AGAIN
            if lock.queue not in granted:
                self._refused(lock)
            elif not lock.is_suspended:
                self._grant(lock, sent_at)
        uncertain = [lock for lock in due if lock.queue in granted and lock.is_suspended]
        await asyncio.gather(*(self._resume(lock, sent_at) for lock in uncertain))

    def _tell(self) -> None:
        for lock in self.locks.values():
            if not lock.held(self._loop.time()):
                reason = f"no lock: {lock.problem}"
                self._member.blocked.because(lock.queue, reason, kind="lock", patience=_PATIENCE, source=_SOURCE)

    def _refused(self, lock: Lock) -> None:
        lock.problem = "another member holds its lock"
        if lock.gained.done():
            self.remove(lock)

    async def _resume(self, lock: Lock, sent_at: float) -> None:
        """The lock is ours again. The committed offset tells whether another member had it meanwhile."""
        is_unchanged = await self._commits.is_unchanged(lock.queue)
        if self.locks.get(lock.queue) is not lock:
            return
        if is_unchanged is False:
            self.remove(lock)
        elif is_unchanged:
            self._grant(lock, sent_at)

    def _grant(self, lock: Lock, sent_at: float) -> None:
        lock.granted(sent_at)
        self._member.blocked.moving(lock.queue, source=_SOURCE)
