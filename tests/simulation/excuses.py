"""What may explain that a history is not perfect: which faults could reach whom, and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from tests.simulation.history import (
    DISTURBING,
    FREEZE,
    HIDE,
    HOLD,
    RELEASE,
    SHOW,
    THAW,
    Assigned,
    Committed,
    Event,
    Fault,
    Finished,
    Place,
    Released,
    Started,
    Stored,
)

NEVER = float("-inf")
NOWHERE = 1 << 63
"""Above every offset."""
LOCK_LIFE = 60.0
"""Seconds that a queue lock lives."""
REMEMBERED = 15.0
"""Seconds after which a fault explains no more what starts then: commits are 5 s apart, and a broker that
crashes forgets the last 5 s of them."""
UNDER_WAY = 2.5
"""Seconds after the end of a hold, or of a freeze, in which everything has arrived that was under way, and that was
asked again 2 s after it failed."""
LONG, NEWS = 1.0, 0.4
"""Seconds that a hand-over waits for a handler that runs, and for what members say and ask meanwhile."""
ROUTES_HEARD = 40.0
"""Seconds after which every member has heard of changed routes: it asks for them every 30 s, and a look that fails is
repeated."""
HAND_OVER = 3.0
"""Seconds after which a member has heard that another one has its queue."""
RECOVERY = 60.0
"""Seconds after a fault in which two members may both believe that they have a concurrent queue."""

Forwards = Callable[[str, int], bool]
"""Whether this member hands a message of its queues, by number, to another one: only that one wants it."""


def nothing(owner: str, number: int) -> bool:
    """Where no member forwards."""
    return False


class Faults:
    """When each part of the cluster was last disturbed; a hold or a freeze lasts until it ends."""

    def __init__(self, kinds: Collection[str] = DISTURBING) -> None:
        self._kinds = kinds
        self._last: defaultdict[str, float] = defaultdict(lambda: NEVER)
        self._lasting: set[tuple[str, str]] = set()

    def see(self, event: Event) -> None:
        if not isinstance(event, Fault) or event.kind not in self._kinds:
            return
        self._last[event.who] = event.at
        if event.kind in (HOLD, FREEZE):
            self._lasting.add((event.kind, event.who))
        elif event.kind in (RELEASE, THAW):
            self._lasting.discard((HOLD if event.kind == RELEASE else FREEZE, event.who))

    def reached(self, whom: Collection[str], since: float) -> bool:
        """Whether one of them was disturbed since then: by itself, or as all connections were cut."""
        concerned = {"", *whom}
        return any(self._last[who] >= since for who in concerned) or any(who in concerned for _, who in self._lasting)

    def any_since(self, since: float) -> bool:
        """Whether anything was disturbed since then."""
        return bool(self._lasting) or max(self._last.values(), default=NEVER) >= since


class Routes:
    """When the routes last changed: members hear of it at different times, and share out other queues meanwhile."""

    def __init__(self) -> None:
        self._changed = NEVER

    def see(self, event: Event) -> None:
        if isinstance(event, Fault) and event.kind in (HIDE, SHOW):
            self._changed = event.at

    def differ(self, since: float) -> bool:
        """Whether two members may have known other routes at some time since then."""
        return self._changed + ROUTES_HEARD >= since


class LongCalls:
    """Calls that ran longer than a hand-over waits, by queue. A failed one ends when its message is stored again.

    What a slow network adds is missing for the calls: the news, a question, its answer and the commit go one after the
    other, each with this latency in seconds.
    """

    def __init__(self, history: Iterable[Event], latency: float = 0.0) -> None:
        self._most = LONG - max(0.0, 4 * latency - NEWS)
        self._ends: defaultdict[tuple[str, str, int], list[float]] = defaultdict(list)
        """When the calls end that have not, in their order."""
        for event in history:
            if isinstance(event, Finished):
                self._ends[event.member, event.queue, event.offset].append(event.at)
        self._running: defaultdict[tuple[str, str, int], list[float]] = defaultdict(list)
        self._long: defaultdict[str, list[tuple[int, float, float]]] = defaultdict(list)
        self._failed: dict[int, tuple[str, int, float]] = {}

    def see(self, event: Event) -> None:
        if isinstance(event, Started):
            # A member that gets a queue back may begin a call anew while the one of its earlier session still runs.
            self._running[event.member, event.queue, event.offset].append(event.at)
        elif isinstance(event, Finished):
            running = self._running[event.member, event.queue, event.offset]
            began = running.pop(0) if running else event.at
            self._ends[event.member, event.queue, event.offset].pop(0)
            if event.at - began > self._most:
                self._long[event.queue].append((event.offset, began, event.at))
            elif not event.done:
                self._failed[event.number] = event.queue, event.offset, began
        elif isinstance(event, Stored) and event.number in self._failed:
            queue, offset, began = self._failed.pop(event.number)
            if event.at - began > self._most:
                self._long[queue].append((offset, began, event.at))

    def will_last(self, call: Started) -> bool:
        """Whether this call still runs, and will have been long: one below a started message may start while the
        hand-over waits.
        """
        key = call.member, call.queue, call.offset
        return call.at in self._running[key][:1] and next(iter(self._ends[key]), float("inf")) - call.at > self._most

    def held_back(self, queue: str, offset: int, since: float, at: float) -> bool:
        """Whether a long call at this offset or below it ran between the two times.

        The committed offset stays below a call that runs, so what is above it may be handled again with it.
        """
        if any(low <= offset and began < at and since < end for low, began, end in self._long[queue]):
            return True
        return any(
            where == queue and low <= offset and at - running[0] > self._most
            for (_, where, low), running in self._running.items()
            if running
        )


class Untaken:
    """Queues that were given up while nobody had taken the message at their committed offset, which the owner forwards.

    What was done above it is not committed. It does not matter whether that message was settled in an earlier session:
    it had come again.
    """

    def __init__(self, forwards: Forwards) -> None:
        self._forwards = forwards
        self._numbers: dict[Place, int] = {}
        self._committed: defaultdict[str, int] = defaultdict(int)
        self._started: defaultdict[str, set[int]] = defaultdict(set)
        """By queue what was started in this session."""
        self._at_end: dict[str, int] = {}
        self._before: dict[str, int] = {}
        """By queue that offset, if the session before this one ended so."""

    def see(self, event: Event) -> None:
        match event:
            case Stored():
                self._numbers[event.queue, event.offset] = event.number
            case Committed():
                self._committed[event.queue] = event.offset
            case Started():
                self._started[event.queue].add(event.offset)
            case Assigned(queue=queue):
                self._started[queue].clear()
                self._before[queue] = self._at_end.pop(queue, NOWHERE)
            case Released(queue=queue):
                offset = self._committed[queue]
                number = self._numbers.get((queue, offset))
                if number is not None and offset not in self._started[queue] and self._forwards(event.member, number):
                    self._at_end[queue] = offset

    def held_up(self, queue: str, offset: int) -> bool:
        """Whether that message lay below this offset when the queue changed hands last."""
        return self._before.get(queue, NOWHERE) < offset
