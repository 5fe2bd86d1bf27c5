"""Decides when the next pull may be sent: while its topic is not paused, and there is room for the answer.

The rules are in `state.flow_control`; one `FlowControl` serves all groups and topics of an app. Here queues wait: one
at its own limit watches its process queue, one without room in the budget is woken when bytes are freed. Queues that
finish messages without a watch are looked at by a sweep, which runs only while a queue waits for the budget.
"""

from __future__ import annotations

import asyncio

from rocketapp.consumer.blocked import CONSEQUENCE, OF_PAUSE, OF_QUEUE, Text
from rocketapp.consumer.member import Member
from rocketapp.model.names import is_retry_topic
from rocketapp.state.flow_control import REOPEN, MemoryBudget, QueueAccount, QueueLimits
from rocketapp.state.pauses import EVERY
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message

_SWEEP = 0.05
"""Seconds between sweeps over all queues while one of them waits for the budget."""

_FIRST_ANSWER = 1_048_576
"""Bytes expected of a topic's first answers: a broker answers one message at least, however few bytes are asked for."""
_FIRST_SHARE = 64
"""First answers are expected to fill at most this part of the budget: many queues must not wait for each other."""


class FlowControl:
    """The byte budget of an app, and the queues that wait for it."""

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes`: of all process queues together; one answer of each topic may exceed it."""
        self.budget: MemoryBudget = MemoryBudget(limit_bytes)
        self._granted: dict[QueueAccount, asyncio.Future[None]] = {}
        self._is_scheduled = False
        self._sweeping: asyncio.TimerHandle | None = None
        self._swept_at = float("-inf")

    def __repr__(self) -> str:
        return f"<FlowControl {self.budget!r}, {len(self._granted)} waiting>"

    async def granted(self, account: QueueAccount) -> None:
        """Wait until the budget has room for the next pull of a queue, and reserve it."""
        loop = asyncio.get_running_loop()
        granted = self._granted[account] = loop.create_future()
        self.budget.wait(account)
        self.grant_soon()
        if self._sweeping is None:
            self._sweeping = loop.call_at(max(loop.time(), self._swept_at + _SWEEP), self._sweep)
        try:
            await granted
        finally:
            self._granted.pop(account, None)
            self.budget.stop_waiting(account)
            if not self._granted and self._sweeping is not None:
                self._sweeping.cancel()
                self._sweeping = None

    def grant_soon(self) -> None:
        """Bytes were freed: look once in this turn of the loop which queues may pull."""
        if self._granted and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._grant)

    def _grant(self) -> None:
        self._is_scheduled = False
        now = asyncio.get_running_loop().time()
        while (account := self.budget.grant(now)) is not None:
            granted = self._granted.pop(account)
            if granted.cancelled():
                self.budget.release(account)
            else:
                granted.set_result(None)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._swept_at = loop.time()
        self.budget.recount_all(self._swept_at)
        self._grant()
        self._sweeping = loop.call_at(self._swept_at + _SWEEP, self._sweep) if self._granted else None


class QueueFlow:
    """What the loop of a queue passes before each request for messages: a pause shuts it, and flow control.

    It lives from the first pull until nothing of the queue is held any more. It also says why the queue is blocked, and
    that it moves again.
    """

    def __init__(self, control: FlowControl, member: Member, queue: ProcessQueue[Message], limits: QueueLimits) -> None:
        self._control, self._budget = control, control.budget
        self._queue, self._about = queue, queue.message_queue
        topic, first = self._about.topic, min(_FIRST_ANSWER, self._budget.limit_bytes // _FIRST_SHARE)
        expected = max(member.limits.of(topic).pull_batch_bytes, first)
        self._account = self._budget.open(f"{topic} in {member.name}", queue, expected=expected)
        self._pauses, self._blocked = member.pauses, member.blocked
        self._is_of_retries = is_retry_topic(self._about.topic)
        # Messages of several topics come back in a retry queue: it is pulled while one of them is not paused.
        self._topics = [topic.topic for topic in member.topics] if self._is_of_retries else [self._about.topic]
        self._watched = EVERY if self._is_of_retries else self._about.topic
        self._resumed: asyncio.Future[None] | None = None
        """Done when the queue is resumed; None while it is not paused."""
        self._whole = limits
        """Before they are divided among the queues of the topic."""
        self._loop = asyncio.get_running_loop()
        self._reopened: asyncio.Future[None] | None = None
        self._is_scheduled = False
        self._pauses.watch(self._watched, self._follow)
        self._follow()

    def __repr__(self) -> str:
        return f"<QueueFlow of {self._about}{': paused' * self.is_paused}>"

    # Pauses.

    @property
    def is_paused(self) -> bool:
        """Whether a pause stops pulls; what arrives all the same is discarded or given back."""
        return self._resumed is not None

    def _follow(self) -> None:
        """The pauses of the group have changed."""
        reason = self._pauses.reason_of_all(self._topics)
        if reason is None:
            self._blocked.moving(self._about, source=OF_PAUSE)
        else:
            self._blocked.because(self._about, reason, source=OF_PAUSE)
        # For a probe it is pulled, and is blocked all the same.
        if reason is not None and not self._pauses.probes(self._topics):
            self._resumed = self._resumed or self._loop.create_future()
            return
        # Of a retry queue some topics may still be paused, or none any more: other limits apply.
        self.look_again()
        if self._resumed is not None:
            self._resumed.set_result(None)
            self._resumed = None

    # What shuts it.

    def stops(self, reason: Text, kind: str, patience: float) -> None:
        """The queue is blocked; reported after `patience` seconds, not during a pause."""
        self._blocked.because(self._about, reason, kind=kind, patience=patience)

    def moves(self) -> None:
        """Nothing but a pause stops the queue."""
        self._blocked.moving(self._about)

    async def passed(self) -> None:
        """Wait until the next pull may be sent, and reserve room for its answer."""
        while True:
            if self._resumed is not None:
                self.release()
                await asyncio.shield(self._resumed)
            elif self.may_pull():
                return
            else:
                self.stops(self.reason, CONSEQUENCE, self._whole.patience)
                try:
                    await self.room()
                except asyncio.CancelledError:
                    self._blocked.forget(self._about, source=OF_QUEUE)  # it is not pulled any more
                    raise
                self.moves()
                if self._resumed is None:
                    return

    def may_pull(self) -> bool:
        """Whether the next pull may be sent now; reserves room for its answer."""
        return self._resumed is None and not self.is_full() and self._budget.reserve(self._account, self._loop.time())

    def reason(self) -> str:
        """Why the next pull has to wait now, in words."""
        reason = self._budget.reason(self._account)
        if self._has_no_limits:
            return f"{reason}; topics of the group are {self._pauses.reason_of_any()}"
        return self._limits.reason(self._queue) or reason

    def change(self, limits: QueueLimits) -> None:
        """Apply other limits from now on."""
        self._whole = limits
        self.look_again()

    @property
    def _limits(self) -> QueueLimits:
        return self._whole.divided(max(1, self._account.topic.accounts))

    @property
    def _has_no_limits(self) -> bool:
        """What a retry queue holds of a paused topic must not stop the messages of others: the budget limits it."""
        return self._is_of_retries and self._pauses.are_any

    async def room(self) -> None:
        """Wait until the limits allow the next pull, and reserve room for its answer."""
        queue = self._queue
        queue.watch(self.look_again)
        try:
            if self.is_full():
                self._reopened = self._loop.create_future()
                await self._reopened
            if not self._budget.reserve(self._account, self._loop.time()):
                await self._control.granted(self._account)
        finally:
            self._reopened = None
            queue.unwatch(self.look_again)

    def answered(self, size: int, *, is_at_end: bool = False) -> bool:
        """A pull returned this many bytes. False: paused, or no room: discard them and pull again later.

        `is_at_end`: the broker has nothing more for now.
        """
        is_admitted = self._resumed is None and self._budget.admit(self._account, size)
        self._account.is_at_end = is_admitted and is_at_end
        self._control.grant_soon()
        return is_admitted

    def taken(self, size: int) -> None:
        """An answer of this many bytes that cannot be discarded is in the process queue."""
        self._budget.taken(self._account, size)
        self._control.grant_soon()

    def found_nothing(self, *, is_at_end: bool) -> None:
        """A pull returned no messages."""
        self._account.is_at_end = is_at_end
        self.release()

    def release(self) -> None:
        """No pull is under way any more."""
        self._budget.release(self._account)
        self._control.grant_soon()

    def close(self) -> None:
        """The process queue was given up: its bytes do not count any more."""
        self._pauses.unwatch(self._watched, self._follow)
        self._blocked.forget(self._about, source=OF_PAUSE)
        self._budget.close(self._account)
        self._control.grant_soon()

    def is_full(self, share: float = 1.0) -> bool:
        """Whether the queue has reached this share of one of its own limits."""
        return not self._has_no_limits and self._limits.reached(self._queue, share)

    def look_again(self) -> None:
        """Messages were finished, limits changed, or topics paused or resumed: check again whether to pull."""
        # Many messages may be finished in one turn of the loop: look once.
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_scheduled = False
        self._budget.recount(self._account)
        self._control.grant_soon()
        reopened = self._reopened
        if reopened is not None and not reopened.done() and not self.is_full(REOPEN):
            reopened.set_result(None)
