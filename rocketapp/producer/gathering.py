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
from rocketapp.producer.batches import MOST_IN_BATCH, PreparedMessage
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
    items: list[PreparedMessage] = field(default_factory=list)
    answers: list[asyncio.Future[SendResult]] = field(default_factory=list)
    size: int = 0
    is_due: bool = False
    """It has waited long enough, but the pile before it for the same queue is under way: it may still grow."""
    waiting: int = 0
    """Publishes that wait for what becomes of it."""
    sending: asyncio.Task[Accepted] | None = None
    overdue: asyncio.TimerHandle | None = None
    """Due at `until`, in case its turn has not come by then."""

    def add(self, item: PreparedMessage, answer: asyncio.Future[SendResult]) -> None:
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
class _Destination:
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
        tracing: TraceWriter | None = None,
    ) -> None:
        """`wait`: seconds that a pile waits for more, at most half of its timeout; `most_bytes`: those of a pile that
        waits no longer.
        """
        self._attempts, self._preparing, self._turns = attempts, preparing, turns
        self._wait, self._most_bytes = wait, most_bytes
        self._destinations: dict[tuple[str, MessageQueue | None], _Destination] = {}
        self._tasks = Tasks()  # what fails is told to the publishes, and to nobody else
        self._tracing = tracing

    async def send(self, message: Outgoing, queue: MessageQueue | None, timeout: float) -> SendResult:
        """Where it is stored. Raises SendRefused, SendUnknown. `queue`: the one that it has to go to."""
        item = self._preparing.item(0, message)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[SendResult] = loop.create_future()
        key = (message.topic, queue)
        to = self._destinations.get(key)
        if to is None:
            to = self._destinations[key] = _Destination(message.topic, queue)
        pile = to.open
        # One that waits for a slow broker has little time left: who comes late would be refused with it.
        is_late = pile is not None and pile.until - loop.time() < timeout / 2
        if pile is not None and (is_late or pile.size + item.size > self._most_bytes or pile.timeout != timeout):
            self._close(to)
            pile = None
        if pile is None:
            pile = to.open = _Pile(timeout, loop.time() + timeout)
            pile.overdue = loop.call_at(pile.until, self._refuse, to, pile)
            # Half of its time is left for the send, and for the pile before it.
            to.timer = loop.call_later(min(self._wait, timeout / 2), self._due, to)
        pile.add(item, answer)
        if pile.size >= self._most_bytes or len(pile.items) == MOST_IN_BATCH:
            self._close(to)
        try:
            return await answer
        except asyncio.CancelledError:
            pile.give_up()
            raise

    async def stop(self) -> None:
        """Send what waits, and wait until all is sent or has failed."""
        for to in list(self._destinations.values()):
            self._close(to)
        while tasks := self._tasks.running():
            await asyncio.wait(tasks)

    def _due(self, to: _Destination) -> None:
        """The open pile of a destination has waited long enough."""
        if to.is_sending and to.open is not None:
            to.open.is_due = True
        else:
            self._close(to)

    def _close(self, to: _Destination) -> None:
        """Nothing is added to the open pile of a destination any more: it is sent, when its turn has come."""
        pile, to.open = to.open, None
        if to.timer is not None:
            to.timer.cancel()
        if pile is None:
            return
        if to.queue is None:
            self._tasks.start(self._send(to, pile), f"messages for {to.topic}")
            return
        to.waiting.append(pile)
        if not to.is_sending:
            to.is_sending = True
            self._tasks.start(self._send_in_order(to), f"messages for {to.queue}")

    async def _send_in_order(self, to: _Destination) -> None:
        while to.waiting:
            await self._send(to, to.waiting.popleft())
            if not to.waiting and to.open is not None and to.open.is_due:
                self._close(to)
        to.is_sending = False
        self._forget(to)

    def _refuse(self, to: _Destination, pile: _Pile) -> None:
        """The turn of this pile has not come in time: the one before it may have longer. Later ones do not join it."""
        if to.open is pile:
            self._close(to)
        pile.fail(pile.too_late(to.topic))

    async def _send(self, to: _Destination, pile: _Pile) -> None:
        if pile.overdue is not None:
            pile.overdue.cancel()
        pile.take_cancelled_out()
        left = pile.until - asyncio.get_running_loop().time()
        try:
            if left <= 0:
                raise pile.too_late(to.topic)
            if items := pile.items:
                # What is stored has these results, also when every publish gives up as the answer comes.
                answers = pile.answers
                request = self._preparing.batch(to.topic, items)
                sending = self._attempts.send(request, choice(self._turns, to.queue), left)
                pile.sending = self._tasks.start(sending, f"request for {to.topic}")
                await asyncio.wait([pile.sending])
                if pile.sending.cancelled():
                    return
                stored = pile.sending.result()
                if self._tracing is not None:
                    self._tracing.sent_batch(to.topic, items, stored)
                for answer, result in zip(answers, results_of(items, stored), strict=True):
                    if not answer.done():
                        answer.set_result(result)
        except (SendRefused, SendUnknown) as error:
            pile.fail(error)
        except Exception as error:
            # A publish that hears nothing would wait for ever, and so would the piles behind this one.
            pile.fail(SendUnknown(to.topic, f"{type(error).__name__}: {error}"))
        finally:
            if to.queue is None:
                self._forget(to)

    def _forget(self, to: _Destination) -> None:
        key = (to.topic, to.queue)
        if to.open is None and not to.is_sending and self._destinations.get(key) is to:
            del self._destinations[key]
