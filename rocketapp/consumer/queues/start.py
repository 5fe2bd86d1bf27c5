"""Finds the offset at which a session of an owned queue begins.

It is the committed offset, or what the start rule says, which is committed at once; under a lock only while that is
certain. Without an answer of its broker a queue is not consumed: an offset is never guessed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from rocketapp.consumer.brokers import GroupOffsets
from rocketapp.consumer.member import Member
from rocketapp.consumer.modes.table import Modes
from rocketapp.consumer.offsets.commits import Commits
from rocketapp.consumer.queues.leases import Leases, Lock
from rocketapp.consumer.retry.attempts import FailedAttempts
from rocketapp.errors import BrokerError, TransportError
from rocketapp.model.message_queue import MessageQueue, QueueStart
from rocketapp.state.start_position import Edge, start_at

_LOOK_INTERVAL = 0.25
"""Seconds between two tries to commit where a queue goes on."""


class Starts:
    """Finds where the sessions of one group's queues begin."""

    def __init__(
        self,
        member: Member,
        modes: Modes,
        *,
        commits: Commits,
        leases: Leases,
        attempts: FailedAttempts,
    ) -> None:
        """`modes`: may know better than the broker where a session begins.

        `attempts`: reads the attempts that the previous owner of a locked queue has counted.
        """
        self.commits: Commits = commits
        self._member, self._modes, self._store, self._fencing = member, modes, commits.store, commits.fencing
        self.leases: Leases = leases
        self._attempts = attempts
        self._rules = {topic.topic: topic.start for topic in member.topics}
        """The start of every topic; the retry topic has none and is read from its beginning."""
        self._joined = member.clock.now()
        self._known: set[MessageQueue] | None = None
        self._now = asyncio.get_running_loop().time

    def __repr__(self) -> str:
        return f"<Starts of {self._member.name}>"

    def joined(self, queues: Iterable[MessageQueue]) -> None:
        """These queues existed when this member joined; others appear later."""
        self._known = set(queues)

    async def offset(self, queue: MessageQueue, lock: Lock | None, ended: asyncio.Future[None]) -> int | None:
        """The offset of a new session; None if the lock is lost or the queue is to be given back."""
        while not ended.done() and (lock is None or await lock.wait_until_certain(ended)):
            suspensions = 0 if lock is None else lock.suspensions
            asking = self._member.tasks.start(self._offset(queue), f"start of {queue}")
            try:
                # Its broker may have to be dialled: a queue that is given back does not wait for that.
                await asyncio.wait([asking, ended], return_when=asyncio.FIRST_COMPLETED)
                if not asking.done():
                    return None
                offset: int = asking.result()
            finally:
                asking.cancel()
            if lock is None:
                return offset
            await self._attempts.recall(queue)
            # While the lock was uncertain, or its time was over, another member may have gone on.
            if suspensions == lock.suspensions and lock.held(self._now()):
                return offset
        return None

    async def _offset(self, queue: MessageQueue) -> int:
        """The committed offset, or the one of a plugin that stores offsets, which is committed as well."""
        await self._store.take(queue)
        mode, offset = self._modes.of(queue.topic), await self.fix(queue)
        if mode.own_start is None:
            return offset
        brokers = self._member.brokers
        ends = await brokers.min_offset(queue), await brokers.max_offset(queue)
        record_at = partial(brokers.record_at, queue)
        start = await mode.own_start(QueueStart(queue, offset, max(0, ends[0]), ends[1], record_at))
        if start is None or start == offset:
            return offset
        await self._commit(queue, start)
        return start

    async def fix(self, queue: MessageQueue) -> int:
        """The committed offset; without one, what the start rule says, after it is committed."""
        # Of a popped topic brokers keep the offsets, whatever the store: they hand out the messages.
        is_popped = queue.topic in self._member.popped
        if is_popped and self._rules.get(queue.topic, "first") == "first":
            return 0  # there brokers begin by themselves: our commit could undo what another member has popped
        store: GroupOffsets = self._member.brokers if is_popped else self._store
        committed = await store.committed_for_start(queue)
        if committed.offset is not None and committed.is_certain:
            return committed.offset
        # A 0 that may mean "none" is where we begin all the same; committed, it holds when the queue is old.
        start = await self._by_rule(queue) if committed.offset is None else committed.offset
        # Asked again: if this took long, another member may have begun meanwhile, and gone on.
        again = await store.committed_for_start(queue)
        if again.offset is not None and (again.is_certain or committed.offset is None):
            return again.offset
        await self._commit(queue, start, store)
        return start

    async def moved_to(self, queue: MessageQueue, offset: int, lock: Lock | None, ended: asyncio.Future[None]) -> bool:
        """Commit the offset of the next session as soon as the queue is certainly ours. False when it is not ours any
        more.

        Until then it is not consumed: the next session would not know what its broker has lost.
        """
        while not ended.done() and (lock is None or await lock.wait_until_certain(ended)):
            try:
                await self._commit(queue, offset)
                return True
            except (TransportError, BrokerError) as error:
                self._member.blocked.because(queue, f"its offset cannot be corrected: {error}", kind="offset")
            await asyncio.wait([ended], timeout=_LOOK_INTERVAL)
        return False

    async def _commit(self, queue: MessageQueue, offset: int, store: GroupOffsets | None = None) -> None:
        """Commit if this member certainly still owns the queue: fenced like any other commit."""
        is_listed = self._modes.of(queue.topic).needs_lock or self._fencing.is_listed(queue)
        is_ours = is_listed and self._fencing.is_confirmed(queue.topic, self._now())
        if not is_ours and not self._member.broadcast:
            raise TransportError(queue.broker_name, f"{queue} may belong to another member by now: looking again first")
        await (store or self._store).commit(queue, offset)

    async def _by_rule(self, queue: MessageQueue) -> int:
        rule = self._rules.get(queue.topic, "first")
        appeared_later = self._known is not None and queue not in self._known
        brokers, since = self._member.brokers, self._joined if appeared_later else None
        if since is None:
            since = self._store.away_since(queue)
        if rule == "last" and since is None:
            # Of a young queue brokers say 0 to a new group, wherever it wants to begin: so do we.
            young = None if self._member.broadcast else await brokers.told_to_new_group(queue)
            if young is not None:
                return young
        return await self.by_start(queue, since)

    async def by_start(self, queue: MessageQueue, since: float | None = None) -> int:
        """The offset by the start rule, whatever is committed. `since`: nothing stored after this time is missed."""
        brokers, rule = self._member.brokers, self._rules.get(queue.topic, "first")
        place = start_at(queue.topic, rule, joined=since)
        if place is Edge.MIN:
            return max(0, await brokers.min_offset(queue))
        if place is Edge.MAX:
            return await brokers.max_offset(queue)
        return await brokers.offset_at(queue, place / 1000)
