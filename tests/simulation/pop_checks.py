"""What must hold of popped topics: hidden while in flight, acknowledged when handled, and dead in the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from rocketapp.state.redelivery import CERTAIN
from tests.simulation import checks
from tests.simulation.excuses import REMEMBERED, UNDER_WAY, Faults
from tests.simulation.history import (
    CRASH,
    GIVEN_BACK,
    LEAVE,
    POPPED,
    RENEWED,
    RETRY,
    Acked,
    Cancelled,
    Event,
    Fault,
    Finished,
    Hidden,
    History,
    Sent,
    Shown,
    Started,
    Stored,
    is_copy,
    is_dead_letter,
)

Refused = Collection[tuple[int, int]]
"""Number and attempt of what handlers made dead letters themselves."""


def broken(history: History, *, retries: int, refused: Refused, within: float, are_cut: bool = False) -> list[str]:
    """Everything that is wrong with a history. `are_cut`: members leave while threads of theirs still run."""
    watch = _Watch(retries, refused, are_cut)
    for event in history:
        watch.see(event)
    lost = [
        f"message {event.number} was sent at {event.at:.3f} and is neither done nor dead"
        for event in history
        if isinstance(event, Sent) and event.outcome == "ok" and event.number not in watch.ended
    ]
    left = [f"{hidden.handle} is hidden at the end" for hidden in watch.hidden.values()]
    return [*lost, *watch.findings, *left, *checks.phantoms(history), *checks.stuck(history, within)]


_Copy = tuple[str, int, str, int]
"""Member, number, queue, offset."""


def _copy(event: Hidden | Started | Finished | Cancelled) -> _Copy:
    return event.member, event.number, event.queue, event.offset


class _Watch:
    """A history goes by; what is wrong with it is found as it happens."""

    def __init__(self, retries: int, refused: Refused, are_cut: bool) -> None:
        self._retries, self._refused, self._are_cut = retries, refused, are_cut
        self.findings: list[str] = []
        self.hidden: dict[str, Hidden] = {}
        """By handle, what no member but one gets."""
        self.ended: dict[int, float] = {}
        """By number, when it was done or dead for the first time."""
        self._faults = Faults()
        self._gone: set[str] = set()
        """Members that crashed."""
        self._left: dict[str, float] = {}
        self._stored: dict[int, float] = {}
        self._twice: set[int] = set()
        """Numbers of which a broker has several: a send or a change was repeated, for its outcome was not known."""
        self._dead: set[int] = set()
        self._got: dict[_Copy, Hidden] = {}
        """What was popped last."""
        self._started: dict[_Copy, Started] = {}
        self._finished: set[tuple[_Copy, int, bool]] = set()
        """Copy, attempt, and whether it was done."""
        self._running: defaultdict[int, list[Started]] = defaultdict(list)
        self._run_on: set[int] = set()
        """Numbers that a thread of a member had in flight which has left: it may still end well, which nobody hears."""
        self._cut: set[_Copy] = set()
        """Whose call was cancelled, as its member left: it comes again when its time is over."""
        self._over: dict[_Copy, float] = {}
        """When its time was over last while it was in flight."""

    def _find(self, text: str) -> None:
        self.findings.append(text)

    def see(self, event: Event) -> None:
        self._faults.see(event)
        match event:
            case Fault(kind=kind, who=who) if kind == CRASH:
                self._gone.add(who)
            case Fault(kind=kind, who=who) if kind == LEAVE:
                self._left[who] = event.at
            case Stored(queue=queue, number=number) if is_dead_letter(queue):
                self._is_dead(event)
            case Stored(queue=queue, number=number) if not is_copy(queue):
                if number in self._stored:
                    self._twice.add(number)
                self._stored.setdefault(number, event.at)
            case Hidden():
                self._hides(event)
            case Shown(handle=handle):
                self._shows(event, self.hidden.pop(handle))
            case Acked(handle=handle):
                self._acks(event, self.hidden.pop(handle))
            case Started():
                self._starts(event)
            case Finished():
                self._finishes(event)
            case Cancelled(member=member) if member in self._left:
                self._cut.add(_copy(event))
            case Cancelled():
                self._stops(event)

    # What brokers do.

    def _hides(self, event: Hidden) -> None:
        about = f"message {event.number}, attempt {event.attempt}: {event.why} at {event.at:.3f} by {event.member}"
        before = self._got.get(_copy(event))
        if event.why == POPPED:
            self._got[_copy(event)] = event
        elif before is None:
            self._find(f"{about}, which had not popped it")
        elif self.hidden.pop(event.instead, None) is None:
            self._twice.add(event.number)
            if not self._faults.reached((event.member, event.broker), before.at - UNDER_WAY):
                self._find(f"{about} with a void handle, which makes a copy, without a fault")
        if event.why == RETRY:
            if (_copy(event), event.attempt, False) not in self._finished:
                self._find(f"{about}, which had not failed on it")
            if event.attempt > self._retries:
                self._find(f"{about}, though it had no attempt left")
        elif event.why == GIVEN_BACK and before is not None:
            started = self._started.get(_copy(event))
            if started is not None and started.at >= before.at and started.attempt == event.attempt:
                self._find(f"{about}, though its handler was started at {started.at:.3f}")
        self.hidden[event.handle] = event

    def _shows(self, event: Shown, hidden: Hidden) -> None:
        if hidden.why not in (POPPED, RENEWED):
            return
        self._over[_copy(hidden)] = event.at
        is_leaving = hidden.at >= self._left.get(hidden.member, float("inf")) - UNDER_WAY
        is_disturbed = self._faults.reached((hidden.member, hidden.broker), hidden.at - UNDER_WAY)
        if self._are_cut and hidden.member in self._left:
            self._run_on.add(hidden.number)
            return
        is_explained = is_leaving or is_disturbed or _copy(hidden) in self._cut
        if hidden.member not in self._gone and not is_explained:
            self._find(
                f"message {hidden.number}, attempt {hidden.attempt}: "
                f"in flight of {hidden.member}, and its time was over at {event.at:.3f} "
                f"({hidden.why} at {hidden.at:.3f} for {hidden.seconds:g} s)"
            )

    def _acks(self, event: Acked, hidden: Hidden) -> None:
        is_done = (_copy(hidden), hidden.attempt, True) in self._finished
        if not is_done and hidden.number not in self._dead:
            self._find(f"message {hidden.number}: acknowledged by {event.member} at {event.at:.3f}, and not handled")

    def _is_dead(self, event: Stored) -> None:
        number = event.number
        failed = [attempt for (_, one, *_), attempt, done in self._finished if one == number and not done]
        got = [hidden.attempt for hidden in self._got.values() if hidden.number == number]
        is_due = any(attempt > self._retries or (number, attempt) in self._refused for attempt in failed)
        if not is_due and max(got, default=0) <= max(self._retries, CERTAIN) + 1:
            self._find(f"message {number}: a dead letter at {event.at:.3f} after the attempts {sorted(failed)}")
        self._dead.add(number)
        self._ends(number, event.at)

    # What members do.

    def _starts(self, event: Started) -> None:
        about = f"message {event.number}, attempt {event.attempt}: started at {event.at:.3f} by {event.member}"
        got, before = self._got.get(_copy(event)), self._started.get(_copy(event))
        if got is None or got.attempt < event.attempt:
            self._find(f"{about}, which had not popped it")
        elif before is not None and before.at >= got.at and before.attempt == event.attempt:
            self._find(f"{about}, and at {before.at:.3f} as well")
        for other in self._running[event.number]:
            popped = self._got[_copy(other)]
            is_over = self._over.get(_copy(other), float("-inf")) >= min(popped.at, other.at)
            if event.number not in self._twice | self._run_on and other.member not in self._gone and not is_over:
                self._find(f"{about}, while {other.member} had it in flight since {other.at:.3f}")
        self._running[event.number].append(event)
        self._started[_copy(event)] = event

    def _finishes(self, event: Finished) -> None:
        self._finished.add((_copy(event), event.attempt, event.done))
        running = self._running[event.number]
        for other in running:
            if (_copy(other), other.attempt) == (_copy(event), event.attempt):
                running.remove(other)
                break
        if event.done:
            self._ends(event.number, event.at)

    def _stops(self, event: Cancelled) -> None:
        """It has stopped its topic: it stays hidden, and is called again when that is resumed."""
        self._started.pop(_copy(event), None)
        self._running[event.number] = [one for one in self._running[event.number] if _copy(one) != _copy(event)]

    def _ends(self, number: int, at: float) -> None:
        is_known = number in self.ended and number not in self._run_on
        if is_known and not self._faults.any_since(self._stored.get(number, at) - REMEMBERED):
            self._find(f"message {number}: done or dead at {self.ended[number]:.3f}, and again at {at:.3f}")
        self.ended.setdefault(number, at)
