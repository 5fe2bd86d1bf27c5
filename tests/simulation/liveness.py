"""How long anything may take: a queue whose broker is well moves, whatever happens to the other brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from tests.simulation.history import (
    BROKER_CRASH,
    BROKER_START,
    BROKER_STOP,
    CRASH,
    CUT,
    FREEZE,
    HIDE,
    HOLD,
    JOIN,
    LEAVE,
    RELEASE,
    SHOW,
    THAW,
    Assigned,
    Committed,
    Event,
    Fault,
    Finished,
    History,
    Idle,
    Released,
    Settling,
    Started,
    Stored,
    broker_of,
    is_copy,
    topic_of,
)

STARTS = 3.0
"""Seconds in which a message is started, while no handler of its queue runs."""
COMMITS = 12.0
"""Seconds in which what is finished is committed: commits are 5 s apart, and the first of a session reads before."""
IDLE_COMMITS = 3.0
"""Seconds in which an orderly queue is committed once it is idle: 50 ms, and what the slowest networks take."""
EXCUSED = {
    JOIN: 15.0,
    LEAVE: 15.0,
    HIDE: 60.0,
    SHOW: 60.0,
    CUT: 60.0,
    RELEASE: 60.0,
    THAW: 60.0,
    BROKER_STOP: 60.0,
    BROKER_CRASH: 60.0,
    BROKER_START: 60.0,
    # A member whose machine is gone is forgotten after 120 s, and its locks 60 s after their last renewal.
    CRASH: 190.0,
}
"""Seconds for which a fault of the queue's own broker, of a member or of all connections excuses a wait.
A fault of another broker excuses nothing. A hold or a freeze excuses until it ends, a broker that is down until 60 s
after its start."""
_BEGINS = {HOLD: RELEASE, FREEZE: THAW, BROKER_STOP: BROKER_START, BROKER_CRASH: BROKER_START}


@dataclass(slots=True)
class _Queue:
    """What waits in one queue, since when."""

    started: int = 0
    stored: int = 0
    running: set[tuple[str, int]] = field(default_factory=set)
    """Member and offset of calls of sessions that go on."""
    left: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Calls that run on although their session is over."""
    committed: int = 0
    idle_since: float = 0.0
    """When the last handler ended, or a message came while nothing waited."""
    finished_since: float | None = None
    """When the first message was finished that is not committed."""

    def settle(self, settling: Settling, name: str, at: float) -> None:
        """What is done somewhere is settled, unless it runs again at its owner, or has failed there."""
        settled, running = settling.lowest_open(name), (offset for _, offset in self.running)
        if min([settled, *running, *settling.waiting[name]]) <= self.committed:
            self.finished_since = None
        elif self.finished_since is None:
            self.finished_since = at

    def drop(self, member: str) -> None:
        """Its session is over: what it still runs moves nothing any more."""
        self.left.update(call for call in self.running if call[0] == member)
        self.running = {call for call in self.running if call[0] != member}

    def finish(self, member: str, offset: int) -> None:
        """A call ended: of two, the one that began first."""
        call = member, offset
        if self.left[call]:
            self.left[call] -= 1
        else:
            self.running.discard(call)


class _Excuses:
    """Until when waiting is excused, by broker; the empty name: for every queue."""

    def __init__(self, brokers: set[str]) -> None:
        self._brokers = brokers
        self._until: dict[str, float] = {}
        self._lasting: dict[str, set[str]] = {}

    def see(self, event: Event) -> None:
        if not isinstance(event, Fault):
            return
        scope = event.who if event.who in self._brokers else ""
        if event.who == "sender":
            return
        lasting = self._lasting.setdefault(scope, set())
        if event.kind in _BEGINS:
            lasting.add(event.who + _BEGINS[event.kind])
        lasting.discard(event.who + event.kind)
        self._until[scope] = max(self._until.get(scope, 0.0), event.at + EXCUSED.get(event.kind, 0.0))

    def last(self, broker: str, at: float) -> float:
        """When waiting was last excused."""
        scopes = ("", broker)
        if any(self._lasting.get(scope) for scope in scopes):
            return at
        return min(at, max(self._until.get(scope, 0.0) for scope in scopes))


def starved(history: History, orderly: Collection[str] = (), guarded: Collection[str] = ()) -> list[str]:
    """A message is started within 3 s, and committed within 12 s once all before it are settled.

    An orderly queue that has nothing more to do is committed within 3 s.

    Not counted is the time in which a handler of the queue runs, or no member is there, or the queue has no owner that
    could tell. Faults of other brokers excuse nothing; other faults do, for as long as EXCUSED says. Messages of
    `guarded` topics may wait, for the rate or the breaker of their handler.
    """
    brokers = {broker_of(event.queue) for event in history if isinstance(event, Stored)}
    findings, excuses, settling = [], _Excuses(brokers), Settling()
    queues: dict[str, _Queue] = {}
    owned: dict[str, set[str]] = {}

    def look(name: str, queue: _Queue, at: float) -> None:
        last = excuses.last(broker_of(name), at)
        if not owned.get(name):
            queue.idle_since, queue.finished_since = at, at if queue.finished_since is not None else None
            return
        may_wait = topic_of(name) in guarded or (bool(guarded) and is_copy(name))
        if (
            queue.started < queue.stored
            and not may_wait
            and not queue.running
            and at - max(queue.idle_since, last) > STARTS
        ):
            since = max(queue.idle_since, last)
            findings.append(f"{name}: #{queue.started} waits since {since:.3f}, still at {at:.3f}")
            queue.idle_since = at
        if queue.finished_since is not None and at - max(queue.finished_since, last) > COMMITS:
            since = max(queue.finished_since, last)
            findings.append(f"{name}: finished and not committed since {since:.3f}, still at {at:.3f}")
            queue.finished_since = at
        is_idle = queue.started == queue.stored and not queue.running and topic_of(name) in orderly
        if is_idle and queue.finished_since is not None and at - max(queue.idle_since, last) > IDLE_COMMITS:
            findings.append(f"{name}: idle and not committed since {queue.idle_since:.3f}, still at {at:.3f}")
            queue.finished_since = queue.idle_since = at

    for event in history:
        # Whatever changes how long something waited is looked at before it does.
        if isinstance(event, Fault | Idle):
            for name, queue in queues.items():
                look(name, queue, event.at)
        elif (name := getattr(event, "queue", "")) in queues:
            look(name, queues[name], event.at)
        excuses.see(event)
        settling.see(event)
        match event:
            case Assigned(member=member, queue=name):
                owned.setdefault(name, set()).add(member)
            case Released(member=member, queue=name):
                owned.setdefault(name, set()).discard(member)
                if name in queues:
                    queues[name].drop(member)
            case Fault(kind="crash", who=who):
                for members in owned.values():
                    members.discard(who)
                for queue in queues.values():
                    queue.drop(who)
            case Stored(queue=name, offset=offset) if not topic_of(name).startswith(("%DLQ%", "SCHEDULE_TOPIC")):
                queue = queues.setdefault(name, _Queue())
                if queue.started == queue.stored:
                    queue.idle_since = event.at
                queue.stored = offset + 1
            case Started(queue=name, offset=offset) if name in queues:
                queue = queues[name]
                queue.running.add((event.member, offset))
                queue.started = max(queue.started, offset + 1)
                queue.settle(settling, name, event.at)
            case Finished(queue=name, offset=offset) if name in queues:
                queue = queues[name]
                queue.finish(event.member, offset)
                queue.idle_since = event.at
                queue.settle(settling, name, event.at)
            case Committed(queue=name, offset=offset) if name in queues:
                queue = queues[name]
                queue.committed, queue.finished_since = offset, None
                queue.settle(settling, name, event.at)
    return findings
