"""Messages of one queue, in order per key: which of them may start.

A key is busy while one of its messages is startable, runs, or rests after a failure; the others wait behind it. So
a failed message holds its own key and no other. What may start lies in one deque, which executors empty from its
front, each in one step: threads may do so while the loop adds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from rocketapp.model.pulled import Pulled

M = TypeVar("M", bound=Pulled)
_GONE = object()


class Keyed(Generic[M]):
    """The messages of one queue for one handler that are not finished."""

    __slots__ = ("_busy", "_kept", "_key_of", "_resting", "due", "is_held", "quarantined", "startable")

    def __init__(self) -> None:
        self.startable: deque[M] = deque()
        """Taking a message from the front starts it."""
        self.is_held: bool = False
        self._kept: deque[M] = deque()
        """What would be startable without a hold."""
        self._busy: dict[Hashable, deque[M] | None] = {}
        """Busy keys, and what waits behind them."""
        self._key_of: dict[int, Hashable] = {}
        self._resting: dict[int, M] = {}
        self.quarantined: set[int] = set()
        """Offsets of messages that are not to start by themselves."""
        self.due: list[M] = []
        """Of those, the ones that may start by the order of their keys. They rest."""

    def __repr__(self) -> str:
        return f"<Keyed: {len(self._busy)} busy keys, {len(self.startable)} startable, {self.running} running>"

    @property
    def running(self) -> int:
        """Messages that were started, and whose outcome is not known."""
        return len(self._busy) - len(self.startable) - len(self._kept) - len(self._resting)

    @property
    def kept(self) -> int:
        """Messages that a hold keeps from starting."""
        return len(self._kept)

    def has(self, message: M) -> bool:
        """Whether it is here and not finished."""
        return message.offset in self._key_of

    def add(self, message: M, key: Hashable) -> None:
        """A message was pulled. Raises TypeError for a key that cannot be hashed."""
        busy = self._busy
        if key in busy:
            waiting = busy[key]
            if waiting is None:
                busy[key] = waiting = deque()
            waiting.append(message)
        else:
            busy[key] = None
            if self.quarantined or self.is_held:
                self._offer(message)
            else:
                self.startable.append(message)
        self._key_of[message.offset] = key

    def add_resting(self, message: M, key: Hashable) -> bool:
        """A message was pulled that must not start; False, and nothing is changed, when its key is busy."""
        if key in self._busy:
            return False
        self._busy[key] = None
        self._key_of[message.offset] = key
        self._resting[message.offset] = message
        return True

    def release(self, message: M) -> None:
        """It is finished: the next one of its key may start. Nothing happens the second time."""
        key = self._key_of.pop(message.offset, _GONE)
        if key is _GONE:
            return
        if self._resting:
            self._resting.pop(message.offset, None)
        waiting = self._busy[key]
        if not waiting:
            del self._busy[key]
        elif self.quarantined or self.is_held:
            self._offer(waiting.popleft())
        else:
            self.startable.append(waiting.popleft())

    def rest(self, message: M) -> None:
        """A started message is not done, and waits."""
        self._resting[message.offset] = message

    def start_again(self, message: M) -> None:
        """A message that rested may start. Nothing happens if it does not rest any more."""
        if self._resting.pop(message.offset, None) is not None:
            self._offer(message)

    def hold(self) -> None:
        """Nothing more may start."""
        self.is_held = True
        taken = list[M]()
        while self.startable:
            # Threads may be faster: what they have taken is started.
            try:
                taken.append(self.startable.popleft())
            except IndexError:
                break
        self._kept.extendleft(reversed(taken))

    def not_started(self) -> list[int]:
        """Offsets of the messages that were never started, in no order."""
        waiting = [message.offset for some in self._busy.values() for message in some or ()]
        return waiting + [message.offset for message in (*self._kept, *self.startable)]

    def withdraw(self, offset: int) -> None:
        """During a hold: forget the messages from `offset` on. None of them was started."""
        for waiting in self._busy.values():
            while waiting and waiting[-1].offset >= offset:
                del self._key_of[waiting.pop().offset]
        kept, self._kept = self._kept, deque[M]()
        for message in kept:
            if message.offset < offset:
                self._kept.append(message)
            else:
                del self._busy[self._key_of.pop(message.offset)]

    def go_on(self) -> None:
        """The hold is over."""
        self.is_held = False
        self.startable.extend(self._kept)
        self._kept.clear()

    def _offer(self, message: M) -> None:
        if message.offset in self.quarantined:
            self._resting[message.offset] = message
            self.due.append(message)
        else:
            (self._kept if self.is_held else self.startable).append(message)
