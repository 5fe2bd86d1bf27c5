"""What happened in a simulated cluster, and what must hold of it.

A history is the list of events in the order in which they happened, written by the producer, the handlers,
the broker and whoever injects faults. The checks are pure: a history goes in, findings come out, and no
finding means that the contract was kept. A message has a number, which is its body, and places (queue and
offset): one for each time it was stored. A place is settled once a handler was done there, or failed there and
a copy was stored for later or among the dead letters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

Place = tuple[str, int]
"""Queue and offset; a queue is `topic:id`."""

CRASH, FREEZE, THAW = "crash", "freeze", "thaw"
CUT, HOLD, RELEASE = "cut", "hold", "release"
BROKER_STOP, BROKER_CRASH = "broker stop", "broker crash"
JOIN, LEAVE, CLOCK = "join", "leave", "clock"

DISTURBING = frozenset({CRASH, FREEZE, THAW, CUT, HOLD, RELEASE, BROKER_STOP, BROKER_CRASH})
"""What explains that a message is handled again. Joins, clean leaves and jumps of the clock do not."""
REBALANCING = frozenset({JOIN, LEAVE})
LOCK_LIFE = 60.0
"""Seconds that a queue lock lives. A broker keeps its locks in memory, as Apache's does: as long after its restart two
members may believe that they hold the same one."""
UNDER_WAY = 2.0
"""Seconds after the end of a hold in which everything has arrived that was held back."""
REMEMBERED = 15.0
"""Seconds after which a disturbance explains no more what starts then: commits are 5 s apart, and a broker that
crashes forgets the last 5 s of them."""


class Sent(NamedTuple):
    """A send ended: `ok`, `refused` or `unknown`."""

    at: float
    number: int
    key: str
    outcome: str


class Stored(NamedTuple):
    """A broker appended a message, or a copy of it, to a queue."""

    at: float
    queue: str
    offset: int
    number: int


class Started(NamedTuple):
    """A handler began."""

    at: float
    member: str
    queue: str
    offset: int
    number: int
    attempt: int


class Finished(NamedTuple):
    """A handler ended: it returned (`done`), or it raised."""

    at: float
    member: str
    queue: str
    offset: int
    number: int
    attempt: int
    done: bool


class Committed(NamedTuple):
    """A broker took an offset of the group."""

    at: float
    queue: str
    offset: int


class Assigned(NamedTuple):
    """A member begins to consume a queue."""

    at: float
    member: str
    queue: str


class Released(NamedTuple):
    """A member has ended to consume a queue."""

    at: float
    member: str
    queue: str


class Fault(NamedTuple):
    """Something was done to the cluster; `who` is a member, a link, or empty for the broker."""

    at: float
    kind: str
    who: str = ""


class Calm(NamedTuple):
    """Faults and sends have ended: from now on the group only has to catch up."""

    at: float


class Idle(NamedTuple):
    """Every offset is committed up to the end of its queue."""

    at: float


Event = Sent | Stored | Started | Finished | Committed | Assigned | Released | Fault | Calm | Idle
History = Sequence[Event]


def topic_of(queue: str) -> str:
    return queue.rpartition(":")[0]


def is_copy(queue: str) -> bool:
    """Whether what is stored there was handed back by a consumer."""
    return topic_of(queue).startswith(("%RETRY%", "%DLQ%", "SCHEDULE_TOPIC"))


def is_dead_letter(queue: str) -> bool:
    return topic_of(queue).startswith("%DLQ%")


class Settling:
    """Which places and numbers are settled, while a history goes by."""

    def __init__(self) -> None:
        self.places: set[Place] = set()
        self.numbers: set[int] = set()
        """Done by a handler, or dead."""
        self._failed: defaultdict[int, set[Place]] = defaultdict(set)
        self._low: defaultdict[str, int] = defaultdict(int)

    def see(self, event: Event) -> None:
        match event:
            case Finished(queue=queue, offset=offset, number=number, done=True):
                self.places.add((queue, offset))
                self.numbers.add(number)
            case Finished(queue=queue, offset=offset, number=number):
                self._failed[number].add((queue, offset))
            case Stored(queue=queue, number=number) if is_copy(queue):
                self.places |= self._failed.pop(number, set())
                if is_dead_letter(queue):
                    self.numbers.add(number)

    def lowest_open(self, queue: str) -> int:
        """The first offset of a queue that is not settled."""
        low = self._low[queue]
        while (queue, low) in self.places:
            low += 1
        self._low[queue] = low
        return low


# One check per sentence of the contract.


def lost(history: History) -> list[str]:
    """Every message that was sent is done or dead in the end, and every stored place is settled."""
    settling = Settling()
    for event in history:
        settling.see(event)
    findings = [
        f"message {event.number} was sent at {event.at:.3f} and is neither done nor dead"
        for event in history
        if isinstance(event, Sent) and event.outcome == "ok" and event.number not in settling.numbers
    ]
    waits = ("%DLQ%", "SCHEDULE_TOPIC")
    return findings + [
        f"{event.queue} #{event.offset} (message {event.number}) was stored at {event.at:.3f} and never settled"
        for event in history
        if isinstance(event, Stored)
        and not topic_of(event.queue).startswith(waits)
        and (event.queue, event.offset) not in settling.places
    ]


def phantoms(history: History) -> list[str]:
    """Nobody handles what was refused, or never sent."""
    outcomes = {event.number: event.outcome for event in history if isinstance(event, Sent)}
    return [
        f"{event.member} handled message {event.number} at {event.at:.3f}: {outcomes.get(event.number, 'never sent')}"
        for event in history
        if isinstance(event, Started) and outcomes.get(event.number, "refused") == "refused"
    ]


def conflicts(history: History) -> list[str]:
    """A place names one message for ever, and the places of a queue have no gaps."""
    findings, values, ends = [], dict[Place, int](), defaultdict[str, int](int)
    for event in history:
        if not isinstance(event, Stored | Started):
            continue
        place = event.queue, event.offset
        if isinstance(event, Stored):
            if event.offset != ends[event.queue]:
                findings.append(f"{event.queue} #{event.offset} was stored where #{ends[event.queue]} comes next")
            ends[event.queue] = event.offset + 1
        elif place not in values:
            findings.append(f"{event.queue} #{event.offset} was handled and never stored")
        if values.setdefault(place, event.number) != event.number:
            findings.append(f"{event.queue} #{event.offset} is message {values[place]} and {event.number}")
    return findings


def commits_ahead(history: History) -> list[str]:
    """No committed offset passes a place that is not settled, or the end of the queue."""
    findings, settling, ends = [], Settling(), defaultdict[str, int](int)
    for event in history:
        settling.see(event)
        if isinstance(event, Stored):
            ends[event.queue] = event.offset + 1
        elif isinstance(event, Committed):
            allowed = min(settling.lowest_open(event.queue), ends[event.queue])
            if event.offset > allowed:
                findings.append(f"{event.queue}: committed {event.offset} at {event.at:.3f}, settled up to {allowed}")
    return findings


def commits_back(history: History) -> list[str]:
    """A committed offset never goes back, unless the broker crashed and forgot the last ones.

    Soon after a restart it may as well: the broker forgot who is in the group, too, and whoever joins before the others
    are back gets their queues. And what was under way on a connection that
    was held arrives when that ends, whoever owns the queue by then: no client can call it back.
    """
    findings, highest, locks, released = [], dict[str, int](), _ForgottenLocks(), float("-inf")
    for event in history:
        locks.see(event)
        if isinstance(event, Committed):
            before = highest.get(event.queue, 0)
            is_explained = event.at < released + UNDER_WAY or locks.in_doubt(event.at)
            if event.offset < before and not is_explained:
                findings.append(f"{event.queue}: committed {event.offset} at {event.at:.3f} after {before}")
            highest[event.queue] = event.offset
        elif isinstance(event, Fault) and event.kind == BROKER_CRASH:
            highest.clear()
        elif isinstance(event, Fault) and event.kind == RELEASE:
            released = event.at
    return findings


def overlaps(history: History, orderly: Collection[str]) -> list[str]:
    """At most one handler at once per orderly queue, in the whole group.

    What a crashed member had in hand ended with it; a handler that was frozen in the middle does not count.
    """
    findings, active, locks = [], dict[str, Started](), _ForgottenLocks()
    for event in history:
        locks.see(event)
        match event:
            case Started(queue=queue) if topic_of(queue) in orderly:
                if (other := active.get(queue)) and not locks.in_doubt(event.at):
                    findings.append(
                        f"{queue}: {event.member} started #{event.offset} at {event.at:.3f} "
                        f"while {other.member} had #{other.offset} in hand"
                    )
                active[queue] = event
            case Finished(queue=queue):
                other = active.get(queue)
                if other is not None and (other.member, other.offset) == (event.member, event.offset):
                    del active[queue]
            case Fault(kind="crash" | "freeze", who=who):
                active = {queue: started for queue, started in active.items() if started.member != who}
    return findings


class _ForgottenLocks:
    """Whether a broker has restarted so recently that its locks say nothing."""

    def __init__(self) -> None:
        self._restarted = float("-inf")

    def see(self, event: Event) -> None:
        if isinstance(event, Fault) and event.kind in (BROKER_STOP, BROKER_CRASH):
            self._restarted = event.at

    def in_doubt(self, at: float) -> bool:
        return at < self._restarted + LOCK_LIFE


def overtaking(history: History, orderly: Collection[str]) -> list[str]:
    """In orderly queues nothing starts before its predecessor is settled: by queue, and by order key."""
    findings, settling = [], Settling()
    keys, before, last = dict[int, str](), dict[int, int](), dict[str, int]()
    for event in history:
        settling.see(event)
        match event:
            case Sent(number=number, key=key) if key:
                keys[number] = key
                if key in last:
                    before[number] = last[key]
                if event.outcome == "ok":
                    last[key] = number
            case Started(queue=queue, offset=offset, number=number) if topic_of(queue) in orderly:
                low = settling.lowest_open(queue)
                if offset > low:
                    findings.append(f"{queue}: #{offset} started at {event.at:.3f} before #{low} was settled")
                predecessor = before.get(number)
                if predecessor is not None and predecessor not in settling.numbers:
                    findings.append(f"key {keys[number]}: message {number} started before {predecessor} was settled")
    return findings


def repeats(history: History, explaining: Collection[str] = DISTURBING) -> list[str]:
    """Whatever is handled again has a disturbance to explain it, shortly before its first start or since.

    An attempt that failed may be made again while its place is not settled: attempts in place are counted in memory,
    and whoever gets the queue begins to count anew.
    """
    findings, disturbed, settling = [], _Disturbances(explaining), Settling()
    first, done, begun = dict[tuple[Place, int], Started](), dict[int, Finished](), dict[int, float]()
    failed: set[tuple[Place, int]] = set()
    for event in history:
        disturbed.see(event)
        settling.see(event)
        if isinstance(event, Stored):
            begun.setdefault(event.number, event.at)
        elif isinstance(event, Started):
            place = event.queue, event.offset
            earlier = first.setdefault((place, event.attempt), event)
            may_repeat = (place, event.attempt) in failed and place not in settling.places
            if earlier is not event and not may_repeat and not disturbed.since(earlier.at - REMEMBERED):
                findings.append(
                    f"{event.queue} #{event.offset} attempt {event.attempt} started at {earlier.at:.3f} "
                    f"by {earlier.member}, and again at {event.at:.3f} by {event.member}"
                )
        elif isinstance(event, Finished) and not event.done:
            failed.add(((event.queue, event.offset), event.attempt))
        elif isinstance(event, Finished):
            once = done.setdefault(event.number, event)
            # A copy too many may have been stored long before it comes: a retry waits for minutes.
            if once is not event and not disturbed.since(begun.get(event.number, event.at) - REMEMBERED):
                findings.append(f"message {event.number} was done at {once.at:.3f}, and again at {event.at:.3f}")
    return findings


class _Disturbances:
    """When something last disturbed the cluster; a hold or a freeze lasts until it ends."""

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = kinds
        self._last = float("-inf")
        self._locks = _ForgottenLocks()
        self._lasting: set[tuple[str, str]] = set()

    def see(self, event: Event) -> None:
        if not isinstance(event, Fault) or event.kind not in self._kinds:
            return
        self._locks.see(event)
        self._last = event.at
        if event.kind in (HOLD, FREEZE):
            self._lasting.add((event.kind, event.who))
        elif event.kind in (RELEASE, THAW):
            self._lasting.discard((HOLD if event.kind == RELEASE else FREEZE, event.who))

    def since(self, at: float) -> bool:
        return bool(self._lasting) or self._last >= at or self._locks.in_doubt(at)


def double_sessions(history: History) -> list[str]:
    """A member consumes a queue in one session at a time."""
    findings, open_sessions = [], set[tuple[str, str]]()
    for event in history:
        if isinstance(event, Assigned):
            if (event.member, event.queue) in open_sessions:
                findings.append(f"{event.member} began {event.queue} at {event.at:.3f} while it consumed it")
            open_sessions.add((event.member, event.queue))
        elif isinstance(event, Released):
            open_sessions.discard((event.member, event.queue))
    return findings


def stuck(history: History, within: float) -> list[str]:
    """Once everything is calm, the group catches up within so many seconds."""
    calm = max((event.at for event in history if isinstance(event, Calm)), default=None)
    if calm is None:
        return ["the history never became calm"]
    idle = [event.at for event in history if isinstance(event, Idle) and event.at >= calm]
    if not idle:
        return [f"calm since {calm:.3f}, and never idle"]
    return [f"idle {idle[0] - calm:.1f} s after it was calm, allowed are {within:g}"] if idle[0] - calm > within else []


def check(
    history: History, *, orderly: Collection[str] = (), within: float, rebalances_repeat: bool = False
) -> list[str]:
    """Everything that is wrong with a history.

    `rebalances_repeat`: handlers were slower than a hand-over waits for them, so a rebalance may repeat them.
    """
    explaining = DISTURBING | REBALANCING if rebalances_repeat else DISTURBING
    checks: Iterable[Callable[[], list[str]]] = (
        lambda: lost(history),
        lambda: phantoms(history),
        lambda: conflicts(history),
        lambda: commits_ahead(history),
        lambda: commits_back(history),
        lambda: overlaps(history, orderly),
        lambda: overtaking(history, orderly),
        lambda: repeats(history, explaining),
        lambda: double_sessions(history),
        lambda: stuck(history, within),
    )
    return [finding for one in checks for finding in one()]
