"""Messages that a broker has handed out to us and that are not acknowledged yet: of one topic on one broker.

A process queue counts offsets of one queue; here the messages of many queues are told apart by themselves, and each
belongs to a hand-out: what the broker hid from others at one time, and until when. Finished messages gather at their
hand-out until they are acknowledged together. While the time of a hand-out is being changed nothing of it is
acknowledged: only the broker's answer tells which handle counts from then on.

No clock: times come in, those of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TypeVar

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.pulled import Acks, Handle, Pulled
from rocketapp.model.snapshot import HandlerStats
from rocketapp.state.process_queue import ProcessQueue

LATE = 10.0
"""Seconds that a broker may be late with messages that come again."""
MOST_COMING = 10_000
"""Messages of which it is remembered that they come again, at most."""
M = TypeVar("M", bound=Pulled)

RENEW_AT = 0.5
"""The share of its invisible time after which a message that is still in flight is hidden anew."""
_UNDER_WAY = 1.0
"""Seconds that an answer is under way at most, if nothing is wrong."""


def hidden_since(sent_at: float, hold: float, answered_at: float, invisible: float) -> float:
    """Since when the messages of an answer count as hidden: at the earliest since the request was sent.

    A broker hides them when it answers, which may be up to `hold` seconds later. So much is not taken off that they
    count as handed out anew: they are hidden anew at once. But an answer later than `hold` was under way for long, or
    this process stood still.
    """
    if answered_at > sent_at + hold + _UNDER_WAY:
        return sent_at
    return max(sent_at, answered_at - RENEW_AT * invisible)


class HandOut:
    """What a broker handed out at once of one queue."""

    __slots__ = ("expires", "finished", "handle", "is_changing", "renew_at")

    def __init__(self, handle: Handle, at: float) -> None:
        """`at`: since when it counts as hidden."""
        self.handle: Handle = handle
        self.finished: list[int] = []
        """Offsets that are done and not acknowledged."""
        self.is_changing: bool = False
        """The broker was asked to hide it for another time, and has not answered."""
        self.begin(handle, at)

    def begin(self, handle: Handle, at: float) -> None:
        """From now on messages are acknowledged by this handle."""
        invisible = handle.invisible_ms / 1000
        self.handle = handle
        self.renew_at: float = at + RENEW_AT * invisible
        self.expires: float = at + invisible
        """When the broker may hand it out again, at the earliest."""

    def __repr__(self) -> str:
        return f"<HandOut {self.handle}: {len(self.finished)} finished>"


class PopQueue(ProcessQueue[M]):
    """What one broker has handed out of one topic, and is in flight here."""

    __slots__ = ("_hand_outs", "_prompt", "_ready", "coming", "is_empty_since", "rest")
    received: int
    size: int

    def __init__(self, message_queue: MessageQueue, prompt: Callable[[], None], epoch: int = 0) -> None:
        """`prompt()` is called when a hand-out has something to acknowledge."""
        super().__init__(message_queue, 0, epoch)
        self._hand_outs: dict[M, HandOut] = {}
        self._ready: list[HandOut] = []
        self._prompt = prompt
        self.rest: int | None = None
        """Messages that the broker had left when it last answered; None before that."""
        self.coming: dict[str, float] = {}
        """By message id the loop's time until which a message comes again that this member has failed on."""
        self.is_empty_since: float | None = None
        """The loop's time since which the broker has had nothing for us; None while it has, or is not known."""

    def __repr__(self) -> str:
        return f"<PopQueue {self.message_queue}: {len(self)} in flight, {len(self._ready)} hand-outs to acknowledge>"

    def __len__(self) -> int:
        return len(self._hand_outs)

    @property
    def span(self) -> int:
        return 0

    def holds(self, message: M) -> bool:
        """Whether it is in flight."""
        return message in self._hand_outs

    def is_over(self, message: M, now: float) -> bool:
        """Whether it is not in flight any more, or another member may have it by now. Threads may ask."""
        hand_out = self._hand_outs.get(message)
        return hand_out is None or hand_out.expires <= now

    @property
    def oldest(self) -> M | None:
        return next(iter(self._hand_outs), None)

    def unfinished(self) -> list[M]:
        return list(self._hand_outs)

    def hand_out(self, hand_out: HandOut, messages: Sequence[M]) -> None:
        """These messages are in flight from now on."""
        known = self._hand_outs
        self.received += len(messages)
        for message in messages:
            known[message] = hand_out
            self.size += message.size

    # What is done.

    def finish(self, message: M) -> None:
        if message in self._hand_outs:
            self.finish_all((message,))

    def finisher(self, counters: HandlerStats) -> Callable[[M], None]:
        pop = self._hand_outs.pop

        def finish(message: M) -> None:
            counters.handled += 1
            hand_out = pop(message, None)
            if hand_out is not None:
                self.size -= message.size
                if hand_out.finished:
                    hand_out.finished.append(message.offset)
                else:
                    self._is_done(hand_out, message)
                if self._watchers:
                    self._tell()

        return finish

    def finish_all(self, messages: Iterable[M]) -> None:
        pop = self._hand_outs.pop
        for message in messages:
            hand_out = pop(message, None)
            if hand_out is not None:
                self.size -= message.size
                self._is_done(hand_out, message)
        if self._watchers:
            self._tell()

    def _is_done(self, hand_out: HandOut, message: M) -> None:
        if not hand_out.finished:
            self._ready.append(hand_out)
            self._prompt()
        hand_out.finished.append(message.offset)

    def take_acks(self) -> list[Acks]:
        """What is to be acknowledged now."""
        ready, self._ready = self._ready, [each for each in self._ready if each.is_changing]
        found = []
        for hand_out in ready:
            if not hand_out.is_changing:
                found.append(Acks(hand_out.handle, hand_out.finished))
                hand_out.finished = []
        return found

    def late_acks(self, now: float) -> int:
        """How many of those that are to be acknowledged now were done when their time was over."""
        return sum(len(each.finished) for each in self._ready if each.expires <= now)

    @property
    def has_acks(self) -> bool:
        """Whether something is done and not acknowledged."""
        return bool(self._ready)

    # What is hidden for another time.

    def due(self, now: float) -> list[M]:
        """Messages that have to be hidden anew, and still can be."""
        return [
            message
            for message, hand_out in self._hand_outs.items()
            if hand_out.renew_at <= now < hand_out.expires and not hand_out.is_changing
        ]

    def begin_change(self, message: M) -> HandOut | None:
        """Its time is about to be changed: from now on a hand-out of its own, and not acknowledged meanwhile.

        None when it is not in flight, or is being changed.
        """
        before = self._hand_outs.get(message)
        if before is None or before.is_changing:
            return None
        own = HandOut(before.handle._replace(offset=message.offset), 0.0)
        own.renew_at, own.expires, own.is_changing = before.renew_at, before.expires, True
        self._hand_outs[message] = own
        return own

    def changed(self, hand_out: HandOut, handle: Handle | None, at: float) -> None:
        """The broker has answered; with None it has not, and the handle is as before, as far as we know.

        `at`: when it was asked.
        """
        hand_out.is_changing = False
        if handle is not None:
            hand_out.begin(handle, at)
        if hand_out.finished:
            self._prompt()

    def comes_again(self, message_id: str, at: float) -> None:
        """A message that this member has failed on comes again then, perhaps late, and perhaps to another member."""
        # Of a batch they may have one id: then the one that comes last counts.
        self.coming[message_id] = max(at + LATE, self.coming.get(message_id, 0.0))
        if len(self.coming) > MOST_COMING:
            del self.coming[next(iter(self.coming))]  # of so many it hardly comes last

    def came(self, message_id: str, now: float) -> None:
        """Nothing with this id comes again, if it was time for it."""
        if self.coming.get(message_id, inf) <= now + LATE:
            del self.coming[message_id]

    def forget(self, message: M) -> None:
        """It comes again later, so it is not in flight any more."""
        if self._hand_outs.pop(message, None) is not None:
            self.size -= message.size
            if self._watchers:
                self._tell()
