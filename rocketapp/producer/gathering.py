"""Publishes that wait a moment for others, and travel with them in one request (Java: ProduceAccumulator).

A pile is sent when it is full or when its first message has waited long enough. Piles for any queue of a topic are
sent at the same time; those for one queue one after the other, so that messages with equal order keys keep their
order. Every publish gets the result, or the error, of its own message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketapp.errors import SendRefused, SendUnknown
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outgoing import Outgoing, SendResult
from rocketapp.producer.attempts import Accepted, Attempts
from rocketapp.producer.batches import MOST_IN_BATCH, Item
from rocketapp.producer.preparing import Preparing, results_of
from rocketapp.producer.selection import RoundRobin, choice
from rocketapp.tasks import Tasks

if TYPE_CHECKING:
    from rocketapp.producer.trace_writer import TraceWriter


@dataclass(slots=True)
class _Pile:
    """Messages that travel together."""

    timeout: float
    until: float
    """When it must be stored, by the loop's clock."""
    items: list[Item] = field(default_factory=list)
    answers: list[asyncio.Future[SendResult]] = field(default_factory=list)
    size: int = 0
    is_due: bool = False
    """It has waited long enough, but the pile before it for the same queue is under way: it may still grow."""
    waiting: int = 0
    """Publishes that wait for what becomes of it."""
    sending: asyncio.Task[Accepted] | None = None
    overdue: asyncio.TimerHandle | None = None
    """Due at `until`, in case its turn has not come by then."""

    def add(self, item: Item, answer: asyncio.Future[SendResult]) -> None:
        self.items.append(item)
        self.answers.append(answer)
        self.size += item.size
        self.waiting += 1

    def give_up(self) -> None:
        """A publish waits no longer. When none does, the bodies need not be kept, nor sent."""
        self.waiting -= 1
        if not self.waiting:
            self.items, self.answers, self.size = [], [], 0
            if self.sending is not None:
                self.sending.cancel()

    def take_cancelled_out(self) -> None:
        """Publishes that were cancelled before their message left: it need not leave."""
        kept = [(item, answer) for item, answer in zip(self.items, self.answers, strict=True) if not answer.done()]
        self.items, self.answers = [item for item, _ in kept], [answer for _, answer in kept]

    def too_late(self, topic: str) -> SendRefused:
        """What its publishes get when it has not been sent in time."""
        return SendRefused(topic, f"its turn did not come within {self.timeout:g} s")

    def fail(self, error: SendRefused | SendUnknown) -> None:
        for answer in self.answers:
            if not answer.done():
                # One each: they are raised in many tasks, and an exception keeps the trace of each raise.
                answer.set_exception(type(error)(*error.args))


@dataclass(slots=True)
class _Lane:
    """The piles for one queue, or for any queue of a topic."""

    topic: str
    queue: MessageQueue | None
    open: _Pile | None = None
    timer: asyncio.TimerHandle | None = None
    waiting: deque[_Pile] = field(default_factory=deque)
    """Those that do not grow any more."""
    is_sending: bool = False


class Gathering:
    """Gathers the publishes of one producer."""

    def __init__(
        self,
        attempts: Attempts,
        preparing: Preparing,
        *,
        turns: RoundRobin,
        wait: float,
        most_bytes: int,
        tasks: Tasks,
        tracing: TraceWriter | None = None,
    ) -> None:
        """`wait`: seconds that a pile waits for more, at most half of its timeout; `most_bytes`: those of a pile that
        waits no longer. `tasks`: of its own.
        """
        self._attempts, self._preparing, self._turns = attempts, preparing, turns
        self._wait, self._most_bytes = wait, most_bytes
        self._lanes: dict[tuple[str, MessageQueue | None], _Lane] = {}
        self._tasks = tasks
        self._tracing = tracing

    async def send(self, message: Outgoing, queue: MessageQueue | None, timeout: float) -> SendResult:
        """Where it is stored. Raises SendRefused, SendUnknown. `queue`: the one that it has to go to."""
        item = self._preparing.item(0, message)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[SendResult] = loop.create_future()
        key = (message.topic, queue)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(message.topic, queue)
        pile = lane.open
        if pile is not None and (pile.size + item.size > self._most_bytes or pile.timeout != timeout):
            self._close(lane)
            pile = None
        if pile is None:
            pile = lane.open = _Pile(timeout, loop.time() + timeout)
            pile.overdue = loop.call_at(pile.until, self._refuse, lane, pile)
            # Half of its time is left for the send, and for the pile before it.
            lane.timer = loop.call_later(min(self._wait, timeout / 2), self._due, lane)
        pile.add(item, answer)
        if pile.size >= self._most_bytes or len(pile.items) == MOST_IN_BATCH:
            self._close(lane)
        try:
            return await answer
        except asyncio.CancelledError:
            pile.give_up()
            raise

    async def stop(self) -> None:
        """Send what waits, and wait until all is sent or has failed."""
        for lane in list(self._lanes.values()):
            self._close(lane)
        while tasks := self._tasks.running():
            await asyncio.wait(tasks)

    def _due(self, lane: _Lane) -> None:
        """The open pile of a lane has waited long enough."""
        if lane.is_sending and lane.open is not None:
            lane.open.is_due = True
        else:
            self._close(lane)

    def _close(self, lane: _Lane) -> None:
        """Nothing is added to the open pile of a lane any more: it is sent, when its turn has come."""
        pile, lane.open = lane.open, None
        if lane.timer is not None:
            lane.timer.cancel()
        if pile is None:
            return
        if lane.queue is None:
            self._tasks.start(self._send(lane, pile), f"messages for {lane.topic}")
            return
        lane.waiting.append(pile)
        if not lane.is_sending:
            lane.is_sending = True
            self._tasks.start(self._send_in_order(lane), f"messages for {lane.queue}")

    async def _send_in_order(self, lane: _Lane) -> None:
        while lane.waiting:
            await self._send(lane, lane.waiting.popleft())
            if not lane.waiting and lane.open is not None and lane.open.is_due:
                self._close(lane)
        lane.is_sending = False
        self._forget(lane)

    def _refuse(self, lane: _Lane, pile: _Pile) -> None:
        """The turn of this pile has not come in time: the one before it may have longer. Later ones do not join it."""
        if lane.open is pile:
            self._close(lane)
        pile.fail(pile.too_late(lane.topic))

    async def _send(self, lane: _Lane, pile: _Pile) -> None:
        if pile.overdue is not None:
            pile.overdue.cancel()
        pile.take_cancelled_out()
        left = pile.until - asyncio.get_running_loop().time()
        try:
            if left <= 0:
                raise pile.too_late(lane.topic)
            if pile.items:
                request = self._preparing.batch(lane.topic, pile.items)
                sending = self._attempts.send(request, choice(self._turns, lane.queue), left)
                pile.sending = self._tasks.start(sending, f"request for {lane.topic}")
                await asyncio.wait([pile.sending])
                if pile.sending.cancelled():
                    return
                stored = pile.sending.result()
                if self._tracing is not None:
                    self._tracing.sent_batch(lane.topic, pile.items, stored)
                for answer, result in zip(pile.answers, results_of(pile.items, stored), strict=True):
                    if not answer.done():
                        answer.set_result(result)
        except (SendRefused, SendUnknown) as error:
            pile.fail(error)
        except Exception as error:
            # A publish that hears nothing would wait for ever, and so would the piles behind this one.
            pile.fail(SendUnknown(lane.topic, f"{type(error).__name__}: {error}"))
        finally:
            if lane.queue is None:
                self._forget(lane)

    def _forget(self, lane: _Lane) -> None:
        key = (lane.topic, lane.queue)
        if lane.open is None and not lane.is_sending and self._lanes.get(key) is lane:
            del self._lanes[key]
