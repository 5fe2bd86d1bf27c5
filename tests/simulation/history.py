"""What happened in a simulated cluster, event by event.

A history is the list of events in the order in which they happened, written by the producer, the handlers,
the brokers and the part that injects faults. A message has a number, which is its body, and places (queue and
offset): one for each time it was stored. A place is settled once a handler was done there, or failed there and
a copy was stored for later or among the dead letters. What must hold of a history stands in `checks`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

Place = tuple[str, int]
"""Queue and offset; a queue is `topic@broker:id`."""

CRASH, FREEZE, THAW = "crash", "freeze", "thaw"
CUT, HOLD, RELEASE = "cut", "hold", "release"
BROKER_STOP, BROKER_CRASH, BROKER_START = "broker stop", "broker crash", "broker start"
JOIN, LEAVE, CLOCK = "join", "leave", "clock"
DRAIN_CUT, LEFT = "drain cut", "left"
"""A member that leaves has no more time for what it started; it is gone, and what still runs in its threads nobody
hears of."""
HIDE, SHOW = "hide", "show"
"""The name server does not name a broker that runs; it names it again."""

UNANSWERED = "unanswered"
"""A member had no answer in time to the commit of a queue, which stands for `who`: slow networks take so long."""

REFUSED = "refused"
"""A broker had no administration thread for a request within 5 s."""

POPPED, RENEWED, RETRY, GIVEN_BACK = "popped", "renewed", "retry", "given back"
"""Why a broker hides a message: a member got it, keeps it, failed on it, or has not started it."""

SERVICE_DOWN, SERVICE_UP = "service down", "service up"
"""What handlers call fails, so they raise; it answers again."""

DISTURBING = frozenset({CRASH, FREEZE, THAW, CUT, HOLD, RELEASE, BROKER_STOP, BROKER_CRASH, BROKER_START})
"""Faults and their ends: to a broker that is back its members come one after the other. Joins, clean leaves, changed
routes and jumps of the clock do not count."""
REBALANCING = frozenset({JOIN, LEAVE, HIDE, SHOW})


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


class Cancelled(NamedTuple):
    """A handler was cancelled, as its member stopped or gave the queue up, or it has stopped its topic.

    It has neither returned nor failed.
    """

    at: float
    member: str
    queue: str
    offset: int
    number: int
    attempt: int


class Paused(NamedTuple):
    """A topic was paused in one member."""

    at: float
    member: str
    topic: str


class Resumed(NamedTuple):
    """It goes on there."""

    at: float
    member: str
    topic: str


class Unexplained(NamedTuple):
    """A member has unfinished messages of a queue, and names no reason why it does not move."""

    at: float
    member: str
    queue: str


class Decided(NamedTuple):
    """A handler that commits by hand said so, or that all is to be handled again; its call then ended well."""

    at: float
    member: str
    queue: str
    commits: bool


class Dropped(NamedTuple):
    """A member of a broadcast group gave a message up."""

    at: float
    member: str
    queue: str
    offset: int


class Committed(NamedTuple):
    """A broker took an offset of the group."""

    at: float
    queue: str
    offset: int


class Hidden(NamedTuple):
    """A broker hid one message, for it was popped by a member, or as that member asked."""

    at: float
    member: str
    broker: str
    handle: str
    """Names this hiding."""
    queue: str
    offset: int
    number: int
    attempt: int
    seconds: float
    why: str
    """POPPED, RENEWED, RETRY or GIVEN_BACK."""
    instead: str = ""
    """The handle with which the member asked; when it is void, the broker has one copy more from now on."""


class Shown(NamedTuple):
    """The time of a hiding is over, so the message comes again."""

    at: float
    handle: str


class Acked(NamedTuple):
    """A member acknowledged what was hidden: it comes no more."""

    at: float
    member: str
    handle: str


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
    """Something was done to the cluster; `who` is a member, the sender or a broker; empty: every connection."""

    at: float
    kind: str
    who: str = ""


class Calm(NamedTuple):
    """Faults and sends have ended: from now on the group only has to catch up."""

    at: float


class Idle(NamedTuple):
    """Every offset is committed up to the end of its queue."""

    at: float


Event = (
    Sent
    | Stored
    | Started
    | Finished
    | Cancelled
    | Paused
    | Resumed
    | Unexplained
    | Decided
    | Dropped
    | Committed
    | Assigned
    | Released
    | Fault
    | Calm
    | Idle
    | Hidden
    | Shown
    | Acked
)
History = Sequence[Event]


def topic_of(queue: str) -> str:
    return queue.rpartition(":")[0].partition("@")[0]


def broker_of(queue: str) -> str:
    return queue.rpartition(":")[0].partition("@")[2]


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
        self.waiting: defaultdict[str, set[int]] = defaultdict(set)
        """Of each queue what failed when it was handled last: an owner may not know that it is dead already."""
        self._failed: defaultdict[int, set[Place]] = defaultdict(set)
        self._low: defaultdict[str, int] = defaultdict(int)

    def see(self, event: Event) -> None:
        match event:
            case Finished(queue=queue, offset=offset, number=number, done=True):
                self.places.add((queue, offset))
                self.numbers.add(number)
                self.waiting[queue].discard(offset)
            case Finished(queue=queue, offset=offset, number=number):
                self._failed[number].add((queue, offset))
                self.waiting[queue].add(offset)
            case Stored(queue=queue, number=number) if is_copy(queue):
                settled = self._failed.pop(number, set())
                self.places |= settled
                for place, offset in settled:
                    self.waiting[place].discard(offset)
                if is_dead_letter(queue):
                    self.numbers.add(number)

    def lowest_open(self, queue: str) -> int:
        """The first offset of a queue that is not settled."""
        low = self._low[queue]
        while (queue, low) in self.places:
            low += 1
        self._low[queue] = low
        return low
