"""Quarantined messages: when each may be called, and which one is a dead letter without a call.

A message is quarantined when it was in flight as a process died (`state.quarantine`). Each handler is called for one of
them at a time, and ordinary messages go on beside it; in order, only the queue or key of a quarantined message waits.
When a process died with several of them in flight, all handlers together get one at a time.

A call that lasts longer than the patience gives its turn up, so that one that hangs does not hold up the others.
"""

from __future__ import annotations

import asyncio
from functools import partial

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.journal import Journal, Note
from rocketapp.consumer.member import Member
from rocketapp.model.outcome import DeadLetter
from rocketapp.state.pauses import EVERY
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.quarantine import Turn, Turns
from rocketapp.wire.record import Message

PATIENCE = 30.0
"""Seconds that a call may have before the next quarantined message is started beside it."""
_TELL_AFTER = 5.0
"""Seconds of waiting after which a queue is said to be blocked: most of these messages are handled quickly."""


class _Turn(Turn):
    """The turn of one message; ends with its call, or after the patience."""

    __slots__ = ("begun", "handler_name", "message", "note", "session", "since", "timer", "was_paused")

    def __init__(self, session: QueueQuarantine, message: Message, handler: Handler, *, is_apart: bool) -> None:
        super().__init__(id(handler), is_apart=is_apart)
        self.session: QueueQuarantine = session
        self.message: Message = message
        self.handler_name: str = handler.name
        loop = asyncio.get_running_loop()
        self.since: float = loop.time()
        """The loop's time since when it waits."""
        self.begun: asyncio.Future[None] = loop.create_future()
        """Done when its handler may be called."""
        self.timer: asyncio.TimerHandle | None = None
        self.was_paused: bool = False
        """At the last look its topic was paused."""
        self.note: Note | None = None
        """Of one that is late."""

    @property
    def is_paused(self) -> bool:
        """Whether it cannot begin although it is its turn, because of a pause."""
        return self.session.is_paused(self.message)


class QueueQuarantine:
    """The messages of one session of one queue that are still quarantined."""

    def __init__(self, journal: Journal, member: Member, process_queue: ProcessQueue[Message]) -> None:
        self._journal, self._group, self._process_queue = journal, member.noted_as, process_queue
        self._pauses, self._queue = member.pauses, process_queue.message_queue
        self._open = journal.quarantined(self._group, self._queue, process_queue.commit_offset)
        self._all: Turns[_Turn] = journal.turns
        """The turns of the whole process, which all its groups share."""
        self._turns: dict[int, _Turn] = {}
        """By offset, those of this session that wait, have their turn, or are late."""

    def __bool__(self) -> bool:
        return bool(self._open)

    def __contains__(self, message: Message) -> bool:
        return message.offset in self._open

    def dead_letter_of(self, message: Message, handler: Handler) -> DeadLetter | None:
        """Count deaths as attempts. Returns the dead letter for a message that is the cause and has no attempt left."""
        one, retries = self._open[message.offset], handler.subscription.retries
        if not one.is_of(message.message_id):
            return None
        is_the_cause = one.is_the_cause(reconsume_times=message.reconsume_times, retries=retries)
        # The last death is the attempt that fails now.
        message.reconsume_times += one.crashes - is_the_cause
        if not is_the_cause:
            return None
        times = "once" if one.crashes == 1 else f"{one.crashes} times"
        return DeadLetter(f"the process died while handling it, {times}")

    def lift(self, offset: int) -> None:
        """Lift the quarantine of a message that did not end the process, or is a dead letter."""
        if self._open.pop(offset, None) is not None:
            self._journal.lift(self._group, self._queue, offset)

    def lift_below(self, offset: int) -> None:
        """Lift the quarantine of all messages below this offset."""
        for one in [one for one in self._open if one < offset]:
            self.lift(one)

    def lift_when_finished(self, message: Message) -> None:
        """Lift it when its dead letter is stored: until then the next owner must not call its handler."""
        if self._process_queue.holds(message):
            self._process_queue.when_finished[message.offset] = partial(self._is_stored, message)
        else:
            self._is_stored(message)

    def _is_stored(self, message: Message) -> None:
        if not self._process_queue.closed:
            self.lift(message.offset)

    # Turns.

    async def turn(self, message: Message, handler: Handler, ended: asyncio.Future[None]) -> bool:
        """Wait for the message's turn, which lasts until `ended` is done. False when `ended` is done before."""
        turn = self._turns[message.offset] = _Turn(self, message, handler, is_apart=self._open[message.offset].beside)
        self._all.add(turn)
        self._pauses.watch(EVERY, self._start_next)
        self._start_next()
        try:
            await asyncio.wait([turn.begun, ended], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.turn_over(message)
            raise
        if not turn.begun.done():
            self.turn_over(message)
        return turn.begun.done()

    def turn_over(self, message: Message) -> None:
        """The call has ended, or the message waits no more. Idempotent."""
        if (turn := self._turns.get(message.offset)) is not None:
            self._leave([turn])

    def ended(self, message: Message) -> None:
        """The call has ended and the process lives."""
        self.lift(message.offset)
        self.turn_over(message)

    def give_up(self) -> None:
        """The queue is given back: messages that wait get no turn; running ones keep theirs."""
        self._leave([turn for turn in self._turns.values() if turn.is_waiting])

    def is_paused(self, message: Message) -> bool:
        """Whether the message cannot begin although it is its turn, because of a pause."""
        return self._pauses.is_paused(message.topic)

    def _leave(self, turns: list[_Turn]) -> None:
        for turn in turns:
            del self._turns[turn.message.offset]
            self._all.remove(turn)
            if turn.timer is not None:
                turn.timer.cancel()
            if turn.note is not None:
                turn.note.close()
        if not self._turns:
            self._pauses.unwatch(EVERY, self._start_next)
        # Only now: none of these is started for the end of another one.
        self._start_next()

    def _start_next(self) -> None:
        """Start the messages whose turn it is now, of any session."""
        while (turn := self._all.next()) is not None:
            turn.session._begin(turn)

    def _begin(self, turn: _Turn) -> None:
        self._watch(turn)
        self._journal.identify(self._group, self._queue, turn.message.offset, turn.message.message_id)
        if not turn.begun.done():  # its session may have been cancelled while it waited
            turn.begun.set_result(None)

    def _watch(self, turn: _Turn) -> None:
        turn.timer = asyncio.get_running_loop().call_later(PATIENCE, self._is_late, turn)

    def _is_late(self, turn: _Turn) -> None:
        """The call lasts too long: it gives its turn up. A later death is blamed on the message started beside it."""
        is_paused, was_paused = turn.is_paused, turn.was_paused
        turn.was_paused = is_paused
        if (is_paused and not self._all.are_apart) or (was_paused and not is_paused):
            # It has not begun for long, and those that wait for its handler were paused as well.
            self._watch(turn)
            return
        self._all.remove(turn)
        turn.note = self._journal.note()
        if turn.note is not None:
            offset = turn.message.offset
            turn.note.write(self._journal.recorder(self._group, self._queue)(offset, offset, is_late=True))
        self._start_next()

    def why_it_waits(self) -> str:
        """Why a message of it has been waiting for its turn for long; otherwise empty."""
        began = asyncio.get_running_loop().time() - _TELL_AFTER
        turn = next((turn for turn in self._turns.values() if turn.is_waiting and turn.since <= began), None)
        if turn is None:
            return ""
        whose = "the process" if turn.is_apart or self._all.are_apart else turn.handler_name
        before = self._all.before(turn)
        now = "" if before is None else f", now #{before.message.offset} of {before.message.queue}"
        return f"#{turn.message.offset} may have ended a process: {whose} handles one such message at a time{now}"
