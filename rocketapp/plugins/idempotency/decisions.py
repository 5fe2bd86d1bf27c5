"""The rules of idempotency: which messages are copies, what happens to a second copy, and a table of marks.

A mark never says "done" for a message whose handler has not finished. So a crash can repeat an effect; it can never
lose a message. No clock, no task, no randomness: time and names are arguments.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rocketapp.plugin import CLAIMED, DONE, Answer, Claim, MarkState

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two looks at a key that another holder has."""


def state_for(own: Claim, answer: Answer) -> MarkState:
    """What to do with a message after the store's answer: handle it, skip it, or wait.

    A copy of a message that is being handled waits: the holder of its mark may have died.
    """
    return MarkState.CLAIMED if answer.holder == own.holder else answer.state


def pause_before_look(answer: Answer, lease: float) -> float:
    """Seconds until a running key is claimed again: as long as it has been running, at most to the end of its lease."""
    return max(min(lease - answer.seconds, answer.seconds, LONGEST_PAUSE), FIRST_PAUSE)


@dataclass(frozen=True, slots=True)
class Split:
    """The indexes of a batch, by what to do with their messages now."""

    handle: tuple[int, ...]
    skip: tuple[int, ...]
    release: tuple[int, ...]
    """Claimed, but behind a message that has to wait: nothing is held while something is waited for."""
    later: tuple[int, ...]
    """From the first message that has to wait: they are parked, and claimed again after that."""


def split(states: Sequence[MarkState]) -> Split:
    """A batch is handled up to its first message that has to wait, so that order is kept.

    Two batches that waited for each other's keys while they held their own would wait for ever.
    """
    until = states.index(MarkState.RUNNING) if MarkState.RUNNING in states else len(states)

    def places(state: MarkState, begin: int, end: int) -> tuple[int, ...]:
        return tuple(at for at in range(begin, end) if states[at] is state)

    return Split(
        handle=places(MarkState.CLAIMED, 0, until),
        skip=places(MarkState.DONE, 0, until),
        release=places(MarkState.CLAIMED, until, len(states)),
        later=tuple(range(until, len(states))),
    )


class Marks:
    """A bounded table of marks. Time comes in as an argument, in seconds of any clock."""

    def __init__(self, most: int) -> None:
        """`most`: marks of done messages that are kept; beyond that the oldest are forgotten before they expire."""
        self._most = most
        self._running: dict[str, tuple[str, float]] = {}
        # Not a dict: the first key of one whose front was deleted is found behind all those that were deleted.
        self._done: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._running) + len(self._done)

    def claim(self, claim: Claim, *, lease: float, now: float) -> Answer:
        """Take the key if it is free."""
        key, holder = claim
        done_until = self._done.get(key)
        if done_until is not None:
            if done_until > now:
                return DONE
            del self._done[key]
        running = self._running.get(key)
        if running is not None and running[1] > now and running[0] != holder:
            return Answer(MarkState.RUNNING, running[0], running[1] - now)
        self._running[key] = (holder, now + lease)
        return CLAIMED

    def done(self, key: str, *, expiry: float, now: float) -> None:
        """Mark it done, whichever holder has it."""
        self._running.pop(key, None)
        self._done.pop(key, None)
        self._done[key] = now + expiry
        if len(self._done) > self._most:
            self._done.popitem(last=False)

    def release(self, claim: Claim) -> None:
        """Remove the mark of this holder."""
        running = self._running.get(claim.key)
        if running is not None and running[0] == claim.holder:
            del self._running[claim.key]

    def expire(self, now: float) -> None:
        """Forget what has expired: the cost is what is forgotten, as long as all marks live equally long."""
        for key in _expired(self._done.items(), now):
            del self._done[key]
        for key in [key for key, (_, until) in self._running.items() if until <= now]:
            del self._running[key]


def _expired(marks: Iterable[tuple[str, float]], now: float) -> list[str]:
    """The keys at the front that have expired."""
    keys = []
    for key, until in marks:
        if until > now:
            break
        keys.append(key)
    return keys


_SWEEP = 10.0
"""Seconds between two looks for marks that have expired."""


class MemoryStore:
    """An IdempotencyStore whose methods never suspend."""

    def __init__(self, most: int) -> None:
        self._marks = Marks(most)
        self._next_sweep = 0.0

    def __repr__(self) -> str:
        return f"<MemoryStore: {len(self._marks)} marks>"

    async def open(self) -> None:
        """Nothing is to be opened."""

    async def close(self) -> None:
        """Nothing is to be closed: the marks go with the store, and each start of an app makes its own."""

    async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
        now = asyncio.get_running_loop().time()
        if now >= self._next_sweep:
            self._marks.expire(now)
            self._next_sweep = now + _SWEEP
        return [self._marks.claim(claim, lease=lease, now=now) for claim in claims]

    async def done(self, keys: Sequence[str], *, expiry: float) -> None:
        now = asyncio.get_running_loop().time()
        for key in keys:
            self._marks.done(key, expiry=expiry, now=now)

    async def release(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._marks.release(claim)
