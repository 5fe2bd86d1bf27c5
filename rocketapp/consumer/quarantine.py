"""Quarantined messages: which of them has its turn, and which is a dead letter without a call.

A message is quarantined when it was in flight as a process died (`state.crashes`). Each handler is called for one of
them at a time, and ordinary messages go on beside it; in order, only the queue or the key of a quarantined message
waits with it. When a process has died with several of them in flight, all handlers together get one at a time.

A call that lasts for longer than the patience gives its turn up, so that one that hangs holds up no other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.stalls import OF_TURN, StallReasons
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import DeadLetter
from rocketapp.state.crashes import Quarantined
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message

if TYPE_CHECKING:
    from rocketapp.consumer.crashes import Crashes, Note

PATIENCE = 30.0
"""Seconds that a call may have before the next quarantined message is started beside it."""
_TELL_AFTER = 5.0
"""Seconds of waiting after which a queue is said to stand still: most of these messages are handled quickly."""


class Caller(Protocol):
    """What calls one handler."""

    handler: Handler


class _Turn:
    """One quarantined message: it waits, has its turn, or is late."""

    __slots__ = ("caller", "found", "is_waiting", "message", "note", "session", "start", "timer")

    def __init__(
        self, session: QueueQuarantine, message: Message, found: Quarantined, caller: Caller, start: Callable[[], None]
    ) -> None:
        self.session, self.message, self.found = session, message, found
        self.caller, self.start = caller, start
        self.is_waiting: bool = True
        self.timer: asyncio.TimerHandle | None = None
        """Runs while it has its turn."""
        self.note: Note | None = None
        """Of one that is late."""


class Turns:
    """The quarantined messages of one process. For its event loop only."""

    def __init__(self, crashes: Crashes) -> None:
        self._crashes = crashes
        self._waiting: dict[int, deque[_Turn]] = {}
        """By the identity of the handler."""
        self._apart: deque[_Turn] = deque()
        """Those that wait and were in flight together as a process died: they come first, and each of them alone."""
        self._running: dict[int, _Turn] = {}
        """By the identity of the handler, the one that has its turn."""

    def __repr__(self) -> str:
        return f"<Turns: {len(self._running)} have theirs, {sum(map(len, self._lines()))} wait>"

    def add(self, turn: _Turn) -> None:
        """Start it when those before it are through."""
        line = self._apart if turn.found.beside else self._waiting.setdefault(id(turn.caller.handler), deque())
        line.append(turn)
        self._next()

    def remove(self, turn: _Turn) -> None:
        """It waits no more, or its call has ended."""
        key = id(turn.caller.handler)
        if turn.is_waiting:
            (self._apart if turn.found.beside else self._waiting[key]).remove(turn)
        elif turn.timer is not None:
            turn.timer.cancel()
            del self._running[key]
            self._next()
        elif turn.note is not None:
            turn.note.close()

    def reason(self, turn: _Turn) -> str:
        """What one that waits is waiting for, in words."""
        is_apart = turn.found.beside or self._is_apart()
        first = next(iter(self._running.values()), None)
        known = first if is_apart else self._running.get(id(turn.caller.handler))
        whose = "the process" if is_apart else turn.caller.handler.name
        now = "" if known is None else f", now #{known.message.offset} of {known.message.queue}"
        return f"#{turn.message.offset} may have ended a process: {whose} handles one such message at a time{now}"

    def _lines(self) -> list[deque[_Turn]]:
        return [self._apart, *self._waiting.values()]

    def _is_apart(self) -> bool:
        return bool(self._apart) or any(turn.found.beside for turn in self._running.values())

    def _next(self) -> None:
        while (turn := self._choose()) is not None:
            self._running[id(turn.caller.handler)], turn.is_waiting = turn, False
            turn.timer = asyncio.get_running_loop().call_later(PATIENCE, self._is_late, turn)
            turn.session.tell()
            turn.start()

    def _choose(self) -> _Turn | None:
        if self._is_apart():
            return self._apart.popleft() if self._apart and not self._running else None
        return next((line.popleft() for key, line in self._waiting.items() if line and key not in self._running), None)

    def _is_late(self, turn: _Turn) -> None:
        """It gives its turn up. A death from now on is that of the one that is started beside it."""
        del self._running[id(turn.caller.handler)]
        turn.timer, turn.note = None, self._crashes.note()
        if turn.note is not None:
            turn.note.write(turn.session.late_record(turn.message))
        self._next()


class QueueQuarantine:
    """The quarantined messages of one session of one queue that are not settled."""

    def __init__(
        self, crashes: Crashes, group: str, process_queue: ProcessQueue[Message], stalls: StallReasons
    ) -> None:
        self._crashes, self._group, self._process_queue, self._stalls = crashes, group, process_queue, stalls
        self._queue: MessageQueue = process_queue.message_queue
        self._open = crashes.quarantined(group, self._queue, process_queue.commit_offset)
        self._turns: dict[int, _Turn] = {}
        """By offset, those that wait, have their turn, or are late."""

    def __bool__(self) -> bool:
        return bool(self._open)

    def __contains__(self, message: Message) -> bool:
        return message.offset in self._open

    def dead_letter_of(self, message: Message, handler: Handler) -> DeadLetter | None:
        """Count the deaths as attempts; the outcome of a message that is the cause and has no attempt left."""
        one, retries = self._open[message.offset], handler.subscription.retries
        is_the_cause = one.is_the_cause(reconsume_times=message.reconsume_times, retries=retries)
        # The last death is the attempt that fails now.
        message.reconsume_times += one.crashes - is_the_cause
        if not is_the_cause:
            return None
        times = "once" if one.crashes == 1 else f"{one.crashes} times"
        return DeadLetter(f"the process died while handling it, {times}")

    def settled(self, offset: int) -> None:
        """It did not end the process, or it is dead."""
        if self._open.pop(offset, None) is not None:
            self._crashes.settled(self._group, self._queue, offset)

    def settled_below(self, offset: int) -> None:
        """The same for all below this offset."""
        for one in [one for one in self._open if one < offset]:
            self.settled(one)

    # Turns.

    def add(self, message: Message, caller: Caller, start: Callable[[], None]) -> None:
        """Call `start` when it has its turn, which lasts until `turn_over`."""
        turn = _Turn(self, message, self._open[message.offset], caller, start)
        self._turns[message.offset] = turn
        self._crashes.turns.add(turn)
        self.tell()

    async def turn(self, message: Message, caller: Caller, ended: asyncio.Future[None]) -> bool:
        """Wait for its turn; False, without it, when `ended` is done before."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add(message, caller, partial(turn.set_result, None))
        try:
            await asyncio.wait([turn, ended], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.turn_over(message)
            raise
        if not turn.done():
            self.turn_over(message)
        return turn.done()

    def has_turn(self, message: Message) -> bool:
        """It is being called, or about to be."""
        return message.offset in self._turns

    def turn_over(self, message: Message) -> None:
        """Its call has ended, or it waits no more. Nothing happens the second time."""
        turn = self._turns.pop(message.offset, None)
        if turn is not None:
            self._crashes.turns.remove(turn)
            self.tell()

    def ended(self, message: Message) -> None:
        """Its call has ended, and the process has not."""
        if not self._process_queue.closed:
            self.settled(message.offset)
        self.turn_over(message)

    def give_up(self) -> list[tuple[Any, Message]]:
        """The queue is given back: those that have not had their turn, each with its caller. Others run on."""
        waiting = [turn for turn in self._turns.values() if turn.is_waiting]
        # In this order: the end of a turn would start one that waits.
        for turn in [*waiting, *(turn for turn in self._turns.values() if not turn.is_waiting)]:
            self.turn_over(turn.message)
        return [(turn.caller, turn.message) for turn in waiting]

    # What turns tell.

    def tell(self) -> None:
        """Say why the queue stands still, or that it does not any more."""
        waiting = next((turn for turn in self._turns.values() if turn.is_waiting), None)
        if waiting is None:
            self._stalls.moving(self._queue, place=OF_TURN)
        else:
            reason = partial(self._crashes.turns.reason, waiting)
            self._stalls.blocked(self._queue, reason, kind="turn", patience=_TELL_AFTER, place=OF_TURN)

    def late_record(self, message: Message) -> bytes:
        """What is noted down of one that is late."""
        return self._crashes.record(self._group, self._queue, message.offset, message.offset, is_late=True)


class InTurn:
    """The completion of one quarantined message."""

    def __init__(self, completion: Any, quarantine: QueueQuarantine, message: Message) -> None:
        self._completion, self._quarantine, self._message = completion, quarantine, message

    def done(self, message: Message) -> None:
        """Acknowledge it."""
        self._completion.done(message)
        self._quarantine.ended(self._message)

    def done_all(self, messages: Sequence[Message]) -> None:
        """Acknowledge it."""
        self._completion.done_all(messages)
        self._quarantine.ended(self._message)

    def judge(self, item: Any, result: object, raised: bool) -> None:
        """Decide about it."""
        self._completion.judge(item, result, raised)
        self._quarantine.ended(self._message)
