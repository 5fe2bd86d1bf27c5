"""Finished offsets are committed: regularly, with the pulls, and with an answer when a queue is given up.

A commit belongs to a session. Neither a closed process queue, nor one in doubt, nor an orderly one without its lock
commits anything.
"""

from __future__ import annotations

import asyncio

from rocketapp.consumer.group.committer import Committer
from rocketapp.consumer.group.group_offsets import GroupOffsets
from rocketapp.consumer.group.offset_session import Session
from rocketapp.model.event import Observe
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.lease import Lease
from rocketapp.state.offset_table import OffsetTable
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.trust import Trust
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message


class Offsets:
    """Tells brokers how far each queue is done."""

    def __init__(self, *, group: str, store: GroupOffsets, observe: Observe, interval: float, trust: Trust) -> None:
        """`interval`: seconds between two rounds of commits."""
        self._group, self._store, self._observe, self._interval = group, store, observe, interval
        self._trust = trust
        self._table = OffsetTable()
        self._tasks = Tasks(observe)
        self._committers: dict[str, Committer] = {}
        self._sessions: dict[int, Session] = {}

    def __repr__(self) -> str:
        return f"<Offsets {self._group}: {len(self._sessions)} queues>"

    # The life of a session.

    def begin(
        self, process_queue: ProcessQueue[Message], lease: Lease | None = None, *, is_contested: bool = False
    ) -> Session:
        """A new session, which begins at the offset that the broker holds.

        Under a lease, nothing is committed without it. Without one a previous owner may commit late: the offset is
        read again before the first commit, and before more of them if another member lives (`is_contested`).
        """
        queue, offset = process_queue.message_queue, process_queue.commit_offset
        session = self._sessions[process_queue.epoch] = Session(process_queue, lease, is_contested)
        # Without its master a queue can only have begun at what a slave knows.
        session.is_from_slave = not self._store.is_connected(queue.broker_name)
        self._table.begin(queue, process_queue.epoch, offset)
        self._trust.begin(queue, is_locked=lease is not None)
        self._committer(queue.broker_name).sessions[queue] = session
        return session

    def end(self, session: Session) -> None:
        """The session is over: nothing of it is committed any more."""
        process_queue = session.process_queue
        process_queue.close()
        if self._sessions.pop(process_queue.epoch, None) is not None:
            if self._table.is_current(session.queue, process_queue.epoch):
                self._trust.forget(session.queue)
            self._table.end(session.queue, process_queue.epoch)
            self._committer(session.queue.broker_name).forget(session)

    def _committer(self, broker_name: str) -> Committer:
        committer = self._committers.get(broker_name)
        if committer is None:
            committer = self._committers[broker_name] = Committer(
                group=self._group,
                broker_name=broker_name,
                store=self._store,
                table=self._table,
                trust=self._trust,
                observe=self._observe,
                interval=self._interval,
                ended=self.end,
            )
            self._tasks.start(committer.run(), f"commit {self._group} at {broker_name}")
        return committer

    # What pulls carry.

    def travelling(self, process_queue: ProcessQueue[Message]) -> int | None:
        """The offset that goes along with a pull now; None when it was told already, or must not be told."""
        session = self._sessions.get(process_queue.epoch)
        if session is None:
            return None
        queue = process_queue.message_queue
        if not self._store.travels:
            return self._news_for_broker(session)
        committer = self._committers[queue.broker_name]
        offset = committer.news_of(session)
        if offset is not None:
            self._table.send(queue, process_queue.epoch, offset)
        elif committer.wants_careful_commit(session):
            committer.commit_soon(session)
        return offset

    def _news_for_broker(self, session: Session) -> int | None:
        """What the store holds and the broker has not heard yet."""
        offset = self._table.confirmed(session.queue)
        return None if offset is None or offset <= session.told_broker else offset

    def arrived(self, process_queue: ProcessQueue[Message], offset: int | None) -> None:
        """The pull that carried this offset was answered, so the broker has stored it (0 does not travel)."""
        if offset and self._store.travels:
            self._table.confirm(process_queue.message_queue, process_queue.epoch, offset)
        elif offset and (session := self._sessions.get(process_queue.epoch)) is not None:
            session.told_broker = offset

    # When to commit.

    def confirmed(self, queue: MessageQueue) -> int | None:
        """What the broker is known to hold."""
        return self._table.confirmed(queue)

    def prompt(self, process_queue: ProcessQueue[Message]) -> None:
        """Messages of an orderly queue were finished: commit soon if it is idle, or if a batch was not told yet."""
        session = self._sessions.get(process_queue.epoch)
        if session is not None:
            self._committers[process_queue.message_queue.broker_name].prompt(session)

    def look_soon(self) -> None:
        """Queues may be in doubt, or a broker may be reached again: look at once."""
        for committer in self._committers.values():
            committer.wake()

    async def flush(self) -> None:
        """Commit what is news, all queues at once. What cannot be sent stays for the next round."""
        sides = [committer.commit_all(committer.sessions.values()) for committer in self._committers.values()]
        await asyncio.gather(*sides)

    async def is_unchanged(self, queue: MessageQueue) -> bool | None:
        """Whether no other member committed while its lock was in doubt; None: its broker does not answer."""
        committer = self._committer(queue.broker_name)
        session = committer.sessions.get(queue)
        return True if session is None else await committer.verify(session)

    async def commit(self, session: Session) -> bool:
        """Commit with an answer; whether the broker holds what is finished."""
        return await self._committers[session.queue.broker_name].commit(session)

    async def commit_finally(self, session: Session) -> bool:
        """Commit for the next owner of the queue; see `Committer`."""
        return await self._committers[session.queue.broker_name].commit_finally(session)

    async def stop(self) -> None:
        """End the rounds."""
        await self._tasks.close()
