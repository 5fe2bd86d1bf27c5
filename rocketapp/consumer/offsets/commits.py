"""Finished offsets are committed: regularly, with the pulls, and with an answer when a queue is given up.

What was handled and not committed when a process died is handled twice: the next owner begins at the committed offset.
A commit belongs to a session. Neither a closed process queue, nor an uncertain one, nor an orderly one without its lock
commits anything. Each broker has a committer, so that one that does not answer holds up nothing but its own queues. In
this order: uncertain queues are looked at, then what is due is committed. An offset must not go back: where another
member may go on with a queue, or a previous owner may have committed late, the stored offset is read before ours is
written. A commit that the network held up, or one that a previous owner makes in the same instant, may lower it all the
same: the next commit raises it, at the latest that of the end, and a kill before that repeats what lies above.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from rocketapp.consumer.brokers import AnotherQueueError, GroupOffsets
from rocketapp.consumer.member import Member
from rocketapp.errors import OvertakenError, RequestTimeoutError, RocketAppError
from rocketapp.model.event import CommitFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.fencing import Fencing
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.start_position import Correction
from rocketapp.tasks import is_set_by
from rocketapp.wire.record import Message

_PATIENCE = 1.0
"""Seconds that a broker may take to answer while a queue waits for it: one that is uncertain, or one that is left."""
_AT_ONCE = 0.3
"""Seconds in which a broker answers as long as this process runs."""
_LOOK_AGAIN = 0.5
"""Seconds until an uncertain queue, whose broker did not answer, is looked at again."""
_READ_BACK = 4
"""Times that a final offset is read: a pull that was still under way may carry an older one."""
CAREFUL_FOR = 60.0
"""Seconds for which a previous owner without a lock may go on, as it does when it stops and drains."""
# When the offset of an orderly queue is committed between the regular rounds, so that a kill repeats at most a batch.
# Pulls carry offsets for nothing: a commit of its own waits a moment for one.
BATCH = 32
"""Finished messages that are told to the broker without waiting for more."""
PULL_PATIENCE = 0.003
"""Seconds in which a pull that may carry the offset is waited for."""
IDLE_PATIENCE = 0.02
"""Seconds after which an idle queue commits: at a trickle of messages the next pull comes first."""
RUN_PATIENCE = 0.25
"""Seconds after which less than a batch is told, while its queue goes on."""


@dataclass(slots=True, eq=False)
class Session:
    """The offsets of one session of one queue."""

    committer: Committer
    process_queue: ProcessQueue[Message]
    is_contested: bool
    """Another member lives, and may still commit what it ran as the previous owner."""
    is_fenced: bool
    """No lock keeps others from it: what it commits is checked against the stored offset when it may be another's."""
    overtaken: asyncio.Future[Correction | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Done when nothing more of this session is committed: another member has gone on with the queue. With a correction
    the group goes on elsewhere: its offset meant nothing to the broker, or an operator has moved it.
    """
    is_from_slave: bool = False
    """It began at the offset of a slave, which may be older than what the master will say when it is back."""
    is_ending: bool = False
    """It is being given away: a successor may go on with it at any time."""
    is_telling: bool = False
    """A commit is under way: a broker may do what a pull carries before it, so nothing travels beside it."""
    prompted_for: float = inf
    """When it is committed between the regular rounds."""
    prompted_offset: int = 0
    """What has to be told by then."""
    careful_to: float = field(init=False)
    """Until then the stored offset is read before ours is written, in the regular rounds alone: a previous owner may
    have written a higher one."""
    confirmed: int | None = field(init=False)
    """The offset that the store is known to have."""
    sent: int = field(init=False)
    """The highest offset that we sent, whether it was answered or not."""

    def __post_init__(self) -> None:
        self.confirmed = self.sent = self.process_queue.commit_offset
        self.careful_to = inf if self.is_fenced else -inf

    @property
    def queue(self) -> MessageQueue:
        return self.process_queue.message_queue

    @property
    def news(self) -> int | None:
        """What is finished, unless the store is known to have it, or more: a previous owner may have told that."""
        offset = self.process_queue.commit_offset
        return offset if self.confirmed is None or offset > self.confirmed else None

    def found(self, offset: int) -> None:
        """A previous owner has committed this offset."""
        self.confirmed = offset
        self.sent = max(self.sent, offset)

    def went_on(self, stored: int | None) -> bool:
        """Whether another member went on with the queue: the store holds more than we ever sent."""
        return stored is not None and stored > self.sent


class Commits:
    """The commits of one group: a committer for each broker."""

    def __init__(self, member: Member, store: GroupOffsets) -> None:
        self.store: GroupOffsets = store
        self._member, now = member, asyncio.get_running_loop().time()
        self.fencing: Fencing = Fencing(now)
        """Which queues are certainly still ours."""
        self._committers: dict[str, Committer] = {}

    def __repr__(self) -> str:
        return f"<Commits {self._member.name}: {sum(len(each.sessions) for each in self._committers.values())} queues>"

    def of(self, broker_name: str) -> Committer:
        """What commits the queues of this broker."""
        committer = self._committers.get(broker_name)
        if committer is None:
            committer = self._committers[broker_name] = Committer(
                self._member, broker_name, store=self.store, fencing=self.fencing
            )
            self._member.tasks.start(committer.run(), f"commit {self._member.name} at {broker_name}")
        return committer

    def confirmed(self, queue: MessageQueue) -> int | None:
        """The offset of this queue that its store is known to have; None when that is not known."""
        session = self._session(queue)
        return None if session is None else session.confirmed

    def _session(self, queue: MessageQueue) -> Session | None:
        committer = self._committers.get(queue.broker_name)
        return None if committer is None else committer.sessions.get(queue)

    def prompt(self, process_queue: ProcessQueue[Message]) -> None:
        """Messages of an orderly queue were finished: commit soon if it is idle, or if a batch was not told yet."""
        if self._member.broadcast:
            return  # its file is written in the regular rounds
        session = self._session(process_queue.message_queue)
        if session is not None and session.process_queue is process_queue:
            self._committers[session.queue.broker_name].prompt(session)

    def look_soon(self) -> None:
        """Queues may be uncertain, or a broker may be reached again: look at once."""
        for committer in self._committers.values():
            committer.wake()

    async def flush(self) -> None:
        """Commit what is news, all queues at once. What cannot be sent stays for the next round."""
        sides = [committer.commit_all(committer.sessions.values()) for committer in self._committers.values()]
        await asyncio.gather(*sides)

    async def is_unchanged(self, queue: MessageQueue) -> bool | None:
        """Whether no other member committed while its lock was uncertain; None: its broker does not answer."""
        session = self._session(queue)
        return True if session is None else await self.of(queue.broker_name).verify(session)


class Committer:
    """Commits for the queues of one broker."""

    def __init__(self, member: Member, broker_name: str, *, store: GroupOffsets, fencing: Fencing) -> None:
        self._member, self._broker_name, self._store, self._fencing = member, broker_name, store, fencing
        self._interval = member.config.commit_interval
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._due: dict[Session, None] = {}
        self._round_at = self._loop.time() + self._interval
        self._look_at = 0.0
        self.sessions: dict[MessageQueue, Session] = {}
        """By queue the session that may still commit."""

    def __repr__(self) -> str:
        return f"<Committer {self._member.name} at {self._broker_name}: {len(self.sessions)} queues>"

    # The life of a session.

    def begin(self, process_queue: ProcessQueue[Message], *, is_contested: bool = False) -> Session:
        """A new session, which begins at the offset that the broker holds.

        Under a lease, nothing is committed without it. Without one a previous owner may commit late: the offset is
        read again before the first commit, and before more of them if another member lives (`is_contested`).
        """
        queue = process_queue.message_queue
        # Of a broadcast group offsets are a member's own: no other one takes the queue away.
        is_fenced = process_queue.lease.is_endless and not self._member.broadcast
        session = self.sessions[queue] = Session(self, process_queue, is_contested, is_fenced)
        # Without its master a queue can only have begun at what a slave knows.
        session.is_from_slave = not self._store.is_connected(queue.broker_name)
        if is_fenced:
            self._fencing.begin(queue)
        return session

    def end(self, session: Session) -> None:
        """The session is over: nothing of it is committed any more."""
        queue = session.queue
        session.process_queue.close()
        if self.sessions.get(queue) is session:
            del self.sessions[queue]
            self._fencing.forget(queue)

    # What pulls carry.

    def travelling(self, session: Session) -> int | None:
        """The offset that goes along with a pull now; None when it was told already, or must not be told."""
        if session.process_queue.closed or self._member.broadcast:
            return None
        if not self._store.travels:
            return session.confirmed  # what the store holds
        now = self._loop.time()
        offset = None if session.is_telling or now < session.careful_to else self._unsent(session, now)
        if offset is not None:
            session.sent = max(session.sent, offset)
        return offset

    def arrived(self, session: Session, offset: int) -> None:
        """The pull that carried this offset was answered, so the broker has stored it."""
        if self._store.travels:
            session.confirmed = offset

    # What the loop is told.

    def wake(self) -> None:
        """Something is uncertain, or may be certain again: look now."""
        self._look_at = 0.0
        self._news.set()

    def prompt(self, session: Session) -> None:
        """Messages of an orderly queue were finished: commit soon, unless a pull takes the offset along."""
        process_queue = session.process_queue
        offset = process_queue.commit_offset
        if (unsent := offset - session.sent) <= 0:
            return
        wait = RUN_PATIENCE if len(process_queue) else IDLE_PATIENCE
        at = self._loop.time() + (PULL_PATIENCE if unsent >= BATCH else wait)
        if at < session.prompted_for:
            session.prompted_for, session.prompted_offset = at, offset
            self._loop.call_at(at, self._prompted, session)

    def _prompted(self, session: Session) -> None:
        session.prompted_for = inf
        if session.sent < session.prompted_offset:
            self._due[session] = None
            self._news.set()
        else:
            self.prompt(session)  # a pull has taken that along: what was finished since waits for the next one

    async def look_before_pull(self, session: Session) -> None:
        """Its broker was lost: what another member did since is not pulled. Without an answer, pulls go on."""
        if session.queue in self._fencing.fenced:
            await self.verify(session)

    # The loop.

    async def run(self) -> None:
        """Commit what is due until this is cancelled."""
        await self._member.repeat(self._turn, "commit", _LOOK_AGAIN)

    async def _turn(self) -> None:
        """Look at uncertain queues when it is time, then commit what is due."""
        until = self._look_at if self._uncertain() else self._round_at
        await is_set_by(self._news, min(until, self._round_at))
        self._news.clear()
        await self._look_at_uncertain()
        await self._commit_due()

    async def _commit_due(self) -> None:
        now = self._loop.time()
        due, self._due = list(self._due), {}
        if now >= self._round_at:
            self._round_at = now + self._interval
            due = list(self.sessions.values())
        await self.commit_all(due)

    async def commit_all(self, sessions: Iterable[Session]) -> None:
        """Commit news, all queues at once. What cannot be sent stays for the next round."""
        now = self._loop.time()
        news = [each for each in sessions if self._unsent(each, now) is not None]
        if news:
            await asyncio.gather(*(self.commit(session) for session in news))

    # Uncertain queues.

    def _uncertain(self) -> list[Session]:
        """Those that can be looked at, in the order of the sessions: that of a set differs from process to process."""
        queues, is_listed = self._fencing.fenced, self._fencing.is_listed
        return [one for queue, one in self.sessions.items() if queue in queues and is_listed(queue)] if queues else []

    async def _look_at_uncertain(self) -> None:
        uncertain = self._uncertain()
        if not uncertain or self._loop.time() < self._look_at:
            return
        self._look_at = self._loop.time() + _LOOK_AGAIN
        if not self._store.is_connected(self._broker_name):
            return
        if any(await asyncio.gather(*(self.verify(session) for session in uncertain))):
            # It may be uncertain again before the next regular round.
            self._round_at = 0.0
            self._news.set()

    async def verify(self, session: Session) -> bool | None:
        """Read the offset: True when the queue is still ours, False when another member went on, None: not known."""
        try:
            await self._member.brokers.known_again(session.queue)
        except AnotherQueueError as other:
            self._failed(session, other)
            return None
        except RocketAppError:
            pass  # it is asked again before anything is committed
        try:
            return await self._is_ours(session, _PATIENCE, is_early=False)
        except RocketAppError:
            return None

    async def _read(self, queue: MessageQueue, timeout: float | None) -> int | None:
        """The stored offset. Raises RocketAppError.

        When the answer took long, the process may have stood still, and another member committed meanwhile: it is read
        again. When it takes long again, the way to the broker is slow. With a `timeout` a next owner may be waiting,
        and long is what no answer may take.
        """
        began, long = self._loop.time(), _AT_ONCE if timeout is None else timeout
        stored = await self._store.committed(queue, timeout=timeout)
        if self._loop.time() > began + long:
            stored = await self._store.committed(queue, timeout=timeout)
        return stored

    async def _is_ours(self, session: Session, timeout: float | None, *, is_early: bool) -> bool | None:
        """What the stored offset says; see `verify`. Raises RocketAppError.

        `is_early`: the previous owner may have committed after this session began.
        """
        queue, era = session.queue, self._fencing.era
        stored = await self._read(queue, timeout)
        if stored is not None and session.went_on(stored):
            if not (is_early or session.is_from_slave) or stored > session.process_queue.end_offset:
                self.give_up(session)
                return False
            # The previous owner was not through when we began, or its slave knew an older offset. What it finished is
            # not delivered anew for that.
            session.found(stored)
        if self.sessions.get(queue) is not session:
            return None
        if session.is_fenced and not self._fencing.verify(queue, era):
            return None
        session.confirmed = stored
        session.is_from_slave = False
        return True

    def give_up(self, session: Session, correction: Correction | None = None) -> None:
        """Another member has gone on with the queue, or the group goes on elsewhere in it."""
        if not session.is_ending:
            # The handlers of an ending session may finish; only nothing more is committed.
            self.end(session)
        if not session.overtaken.done():
            session.overtaken.set_result(correction)

    # Commits.

    def _unsent(self, session: Session, now: float) -> int | None:
        """What may be committed now and is news; None when there is nothing."""
        process_queue = session.process_queue
        if (offset := session.news) is None or process_queue.closed or session.overtaken.done():
            return None
        queue = process_queue.message_queue
        is_ours = self._fencing.may_commit(queue, now) if session.is_fenced else process_queue.lease.held(now)
        return offset if is_ours and self.sessions.get(queue) is session else None

    async def commit(self, session: Session) -> bool:
        """Commit with an answer; whether the broker holds what is finished."""
        now = self._loop.time()
        try:
            if not session.is_ending and now < session.careful_to and self._unsent(session, now) is not None:
                if not await self._is_ours(session, None, is_early=True):
                    return False
                if session.careful_to == inf:
                    session.careful_to = now + CAREFUL_FOR if session.is_contested else now
            if session.is_ending:
                return await self.commit_finally(session)
            await self._member.brokers.known_again(session.queue)
            # Only now: the question may have taken long, and a pull may have carried a higher one meanwhile.
            offset = self._unsent(session, self._loop.time())
            if offset is None:
                return False
            await self._send(session, offset, None)
        except RocketAppError as error:
            self._failed(session, error)
            return False
        return True

    async def commit_finally(self, session: Session) -> bool:
        """Commit for the next owner; whether the broker holds what is finished, or another member has gone on.

        The offset is read first, so that it never goes back, and read again: a pull that was under way may have
        brought an older one.
        """
        failures = 0
        for _ in range(_READ_BACK):
            if session.overtaken.done() or session.process_queue.closed:
                return session.overtaken.done()
            try:
                if (is_held := await self._last_step(session)) is not None:
                    return is_held
            except AnotherQueueError as other:
                self._failed(session, other)
                return await self._leave_at(session.queue, other.correction(session.process_queue.end_offset).offset)
            except OvertakenError as error:
                self._failed(session, error)
                return True
            except RocketAppError as error:
                # A living connection that was slow once gets a second chance: a repetition costs more than a second.
                failures += 1
                is_slow = isinstance(error, RequestTimeoutError) and self._store.is_connected(self._broker_name)
                if not is_slow or failures > 1:
                    if has_news := session.news is not None:
                        self._failed(session, error, is_last=True)
                    return not has_news
        return False

    async def _leave_at(self, queue: MessageQueue, offset: int) -> bool:
        """The next owner goes on there, in the records that are there now; whether the store holds it."""
        try:
            await self._store.commit(queue, offset, timeout=_PATIENCE)
        except RocketAppError as error:
            self._member.observe(CommitFailed(self._member.name, queue, offset, str(error), True))
            return False
        self._member.brokers.begins_anew(queue)
        return True

    async def _last_step(self, session: Session) -> bool | None:
        """Read the stored offset, and write ours if it is higher; None: read again."""
        await self._member.brokers.known_again(session.queue)
        stored = await self._read(session.queue, _PATIENCE)
        if session.went_on(stored):
            self.give_up(session)
            return True
        offset = session.process_queue.commit_offset
        if stored is not None and stored >= offset:
            session.confirmed = stored
            return True
        if not session.process_queue.lease.held(self._loop.time()):
            return False
        await self._send(session, offset, _PATIENCE)
        return None

    async def _send(self, session: Session, offset: int, timeout: float | None) -> None:
        session.sent = max(session.sent, offset)
        session.is_telling = True
        try:
            await self._store.commit(session.queue, offset, timeout=timeout)
        finally:
            session.is_telling = False
        session.confirmed = offset

    def _failed(self, session: Session, error: RocketAppError, *, is_last: bool = False) -> None:
        if isinstance(error, OvertakenError | AnotherQueueError):
            end = session.process_queue.end_offset
            self.give_up(session, error.correction(end) if isinstance(error, AnotherQueueError) else None)
            return
        offset = session.process_queue.commit_offset
        self._member.observe(CommitFailed(self._member.name, session.queue, offset, str(error), is_last))
