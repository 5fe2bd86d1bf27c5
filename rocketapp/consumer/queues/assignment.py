"""One owned queue, from the moment it is acquired until it has been given back.

An assignment lives in sessions. A session reads the committed offset (under the lock, for an orderly topic), pulls and
delivers from there, and ends when the queue is released, its lock is lost, or its offset means nothing to the broker.
Then a new one begins, or nothing. Each has an epoch and a process queue of its own: what an earlier one still reports
changes nothing. There is never more than one session, so never more than one pull loop.
"""

from __future__ import annotations

import asyncio

from rocketapp.consumer.member import TRY_AGAIN, Owned
from rocketapp.consumer.modes.delivery import Delivery, Mode
from rocketapp.consumer.offsets.commits import Session
from rocketapp.consumer.pull.flow import FlowControl, QueueFlow
from rocketapp.consumer.pull.puller import Puller
from rocketapp.consumer.queues.leases import Lock
from rocketapp.consumer.queues.start import Starts
from rocketapp.model.event import Assigned, Released
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.handover import WAIT
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.start_position import Correction
from rocketapp.wire.record import Message

_AT_ONCE = 0.02
"""Seconds after which handlers that run are not about to end."""
_COMMIT_AGAIN = 0.5
"""Seconds after which handlers that ended meanwhile are committed, while others still run."""
_FAILED = "its delivery failed"
"""Why a session ends; the next one waits a moment."""


class Assignment(Owned):
    """Consumes one queue, session after session, until it is given back."""

    def __init__(
        self, queue: MessageQueue, mode: Mode, *, starts: Starts, flow_control: FlowControl, handed_over: bool
    ) -> None:
        """`handed_over`: another member may still be finishing messages of the queue."""
        super().__init__(queue, mode.context.member)
        self._mode, self._starts, self._flow_control = mode, starts, flow_control
        self._store, self._committer = starts.commits.store, starts.commits.of(queue.broker_name)
        self._handed_over = self._is_contested = handed_over
        self._cutting: asyncio.TimerHandle | None = None
        self._moved: Correction | None = None
        """Where an operator has moved the group, until that is committed."""
        self._puller: Puller | None = None
        """That of the present session, until it ends."""

    def __repr__(self) -> str:
        return f"<Assignment {self.queue}: {'no session' if self.process_queue is None else self.process_queue}>"

    def end(self) -> None:
        """Give the queue back. Started calls may finish, even if a handover was under way."""
        if self._cutting is not None:
            self._cutting.cancel()
        super().end()

    def handover(self) -> None:
        """Give the queue to another living member. Running calls get the time that their mode sets."""
        self.end()
        if self._mode.run_on is not None:
            self._cutting = self._loop.call_later(self._mode.run_on, self.cut, False)
            self.owner_changed()

    def owner_changed(self) -> None:
        """Another member has got the queue while it is being given back: nothing more starts here once it begins.

        Messages below a started one would start only so that the offset can pass them, and the new owner moves it now.
        """
        if self._mode.run_on is not None:
            self._loop.call_later(self._mode.run_on, self._start_no_more)

    def _start_no_more(self) -> None:
        if self.delivery is not None:
            self.delivery.end(start_no_more=True)

    def move(self, offset: int) -> None:
        """An operator resets the group to this offset: nothing of the present session is committed any more."""
        self._moved = Correction(offset, f"an operator moved the group to offset {offset}")
        if self._puller is not None:
            self._committer.give_up(self._puller.session, self._moved)
        if self.is_ending:
            # At once: the next owner hears of it too, and goes on from there.
            self._member.tasks.start(self._commit_move(), f"move {self.queue}")

    async def _commit_move(self) -> None:
        """Commit the offset of a reset. Raises RocketAppError; tried again before anything else is pulled."""
        if (moved := self._moved) is not None:
            if not self.is_ending:
                # Another member may have had it since our last session.
                await self._store.take(self.queue)
            # The offset is one of the queue that is there now: no landmark of another is stored with it.
            self._member.brokers.begins_anew(self.queue)
            await self._store.commit(self.queue, moved.offset)
            if self._moved is moved:  # otherwise another one came meanwhile
                self._moved = None

    def pull_anew(self) -> None:
        """The subscription of its pulls has changed: discard the pull under way."""
        if self._puller is not None:
            self._puller.start_over()

    def _limits(self) -> QueueLimits:
        return self._mode.limits(self._member.limits.of(self.queue.topic))

    def limits_changed(self) -> None:
        """Apply other limits to its pulls."""
        if self._puller is not None:
            self._puller.flow.change(self._limits())

    async def _session(self) -> None:
        starts, queue = self._starts, self.queue
        lock = starts.leases.want(queue) if self._mode.needs_lock else None
        at_rest = True
        try:
            if lock is not None:  # it is granted once the members before are through
                await self._wait(lock.gained)
            elif self._handed_over:
                await self._wait(timeout=WAIT)
                self._handed_over = self.is_ending
            await self._commit_move()
            offset, moved = await starts.offset(queue, lock, self._ended), self._moved
            if offset is not None and moved is None:  # otherwise the next session begins where it was moved to
                process_queue = self._mode.new_queue(self.queue, offset, next(self._member.epochs))
                if lock is not None:
                    process_queue.lease = lock
                at_rest = False  # until it is known: a lock is not given back beside a running handler
                at_rest, correction = await self._consume(process_queue, lock)
                if self._moved is not None:
                    await self._commit_move()
                elif correction is not None and not self.is_ending:
                    if not correction.is_reset:
                        self._member.blocked.corrected(queue, correction.reason)
                    offset = await starts.by_start(queue) if correction.by_start else correction.offset
                    if await starts.moved_to(queue, offset, lock, self._ended) and correction.is_another:
                        self._member.brokers.begins_anew(queue)
        finally:
            if lock is not None and at_rest and not self._mode.context.forwarding.may_run(queue):
                await lock.give_back()
            elif lock is not None:
                lock.drop()

    async def _consume(self, process_queue: ProcessQueue[Message], lock: Lock | None) -> tuple[bool, Correction | None]:
        """Pull and deliver until the session ends.

        Returns whether no handler of it runs any more, and the correction if the broker has another offset.
        """
        member, committer = self._member, self._committer
        delivery = self._mode.open(process_queue)
        # Not before: the limits of a topic are divided among the queues that are open.
        flow = QueueFlow(self._flow_control, member, process_queue, self._limits())
        session = committer.begin(process_queue, is_contested=self._is_contested)
        member.observe(Assigned(member.name, self.queue, process_queue.end_offset, process_queue.epoch))
        self.process_queue = process_queue
        self.delivery: Delivery | None = delivery
        puller = self._puller = Puller(
            member,
            session,
            decode=self._mode.decode,
            deliver=delivery.deliver,
            flow=flow,
            passes_over=self._mode.own_start is None,  # otherwise it is asked where to go on
        )
        pulling = member.tasks.start(puller.run(), f"pull {self.queue}")
        try:
            try:
                await self._wait(pulling, session.overtaken, delivery.over, *([] if lock is None else [lock.lost]))
                if pulling.done():
                    pulling.result()  # a bug has ended it: the next session begins a moment later
            finally:
                pulling.cancel()
            correction = session.overtaken.result() if session.overtaken.done() else None
            if self.is_ending and not session.overtaken.done():
                why, at_rest = "released", await self._give_back(session, delivery)
            else:
                why, at_rest = await self._break_off(session, delivery)
        except asyncio.CancelledError:
            # Not by us: the loop is being closed, and a handler must not keep it.
            delivery.discard()
            raise
        finally:
            committer.end(session)
            flow.close()
            self._puller = self.delivery = self.process_queue = None
        member.observe(Released(member.name, self.queue, correction.reason if correction else why))
        if why is _FAILED:
            await self._wait(timeout=TRY_AGAIN)
        return at_rest, correction

    async def _break_off(self, session: Session, delivery: Delivery) -> tuple[str, bool]:
        """End a session that may not commit: the queue may be another member's, or its offset is void."""
        self._committer.end(session)
        if session.overtaken.done():
            why = "another member went on with it meanwhile"
            if session.overtaken.result() is None:  # that member may not be through
                self._handed_over = self._is_contested = True
        else:
            failed = delivery.over.done() and delivery.over.exception() is not None
            why = _FAILED if failed else "its lock was lost"
        if self._mode.run_on is not None:
            # Results of its running handlers are ignored.
            delivery.discard()
            return why, True
        # Two orderly handlers must not overlap.
        delivery.end()
        at_rest = await self._drained()
        delivery.discard()
        return why, at_rest

    async def _give_back(self, session: Session, delivery: Delivery) -> bool:
        """Finish started calls and commit for the next owner. Returns whether no handler runs any more."""
        committer = self._committer
        session.is_ending = True
        delivery.end()
        at_rest, told = await self._drained(_AT_ONCE), -1
        while not at_rest and not self._cut.done():
            # For the next owner, which may not wait for the running handlers.
            if session.process_queue.commit_offset > told:
                told = session.process_queue.commit_offset
                await committer.commit_finally(session)
            at_rest = await self._drained(_COMMIT_AGAIN)
        at_rest = at_rest or await self._drained()
        self.is_clean: bool = await committer.commit_finally(session) and self.is_clean
        committer.end(session)
        # When it was cut, some works below a started one are left: they are another member's now.
        delivery.discard()
        return at_rest
