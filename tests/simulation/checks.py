"""What must hold of a history: one check per sentence of the contract, and no finding means that it was kept.

The checks are pure: a history goes in, findings come out. Here stands what becomes of messages and offsets;
`ownership` has who may handle what, `repeats` what may be handled again, `liveness` how long anything may take.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable

from tests.simulation import guards, liveness, ownership
from tests.simulation import repeats as repeated
from tests.simulation.excuses import HAND_OVER, NEVER, RECOVERY, UNDER_WAY, Faults, Routes
from tests.simulation.history import (
    BROKER_CRASH,
    FREEZE,
    RELEASE,
    THAW,
    Assigned,
    Calm,
    Committed,
    Fault,
    History,
    Idle,
    Place,
    Released,
    Sent,
    Settling,
    Started,
    Stored,
    broker_of,
    is_copy,
    topic_of,
)
from tests.simulation.world import Topic

FORGOTTEN = 6.0
"""Seconds of commits that a broker that crashes may have forgotten: it writes them every 5 s."""


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
    """Nothing is handled that was refused, or never sent."""
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


def commits_back(history: History, orderly: Collection[str] = ()) -> list[str]:
    """A committed offset never goes back.

    Excused are: a crash of that broker, which forgets the commits of its last 6 s (all since the freeze began, if it
    was frozen then); and the 2.5 s after the end of a hold or of a freeze of that broker, or of a hold of any client:
    what was under way on the held connection arrives then, and no client can call it back. The offset of a concurrent
    queue may also go back while two members believe that they have it, for no broker compares before it writes: within
    40 s after the routes changed, and within the 3 s in which the owner before hears of another one, when a fault had
    reached one of the two, the broker, or any connection in the 60 s before.
    """
    routes, faults = Routes(), Faults()
    owners, taken = dict[str, str](), dict[str, tuple[float, tuple[str, str]]]()
    findings, arrived = [], defaultdict[str, float](lambda: float("-inf"))
    commits: defaultdict[str, deque[tuple[float, int]]] = defaultdict(deque)
    frozen: dict[str, float] = {}
    for event in history:
        routes.see(event)
        faults.see(event)
        if isinstance(event, Assigned):
            if (owner := owners.get(event.queue, event.member)) != event.member:
                taken[event.queue] = event.at, (owner, event.member)
            owners[event.queue] = event.member
        elif isinstance(event, Released):
            if owners.get(event.queue) == event.member:
                del owners[event.queue]
        elif isinstance(event, Committed):
            recent = commits[event.queue]
            before = recent[-1][1] if recent else 0
            is_explained = event.at < max(arrived[""], arrived[broker_of(event.queue)]) + UNDER_WAY
            at, both = taken.get(event.queue, (NEVER, ()))
            are_two = event.at <= at + HAND_OVER and faults.reached((*both, broker_of(event.queue)), at - RECOVERY)
            is_explained |= topic_of(event.queue) not in orderly and (routes.differ(event.at) or are_two)
            if event.offset < before and not is_explained:
                findings.append(f"{event.queue}: committed {event.offset} at {event.at:.3f} after {before}")
            recent.append((event.at, event.offset))
        elif not isinstance(event, Fault):
            continue
        elif event.kind == FREEZE:
            frozen[event.who] = event.at
        elif event.kind in (RELEASE, THAW):
            # A member that was frozen had sent what it sent before; what it sends now is its own fault.
            if event.kind == RELEASE:
                arrived[""] = event.at
            arrived[event.who] = event.at
        elif event.kind == BROKER_CRASH:
            since = frozen.get(event.who, event.at)
            kept_until = (since if event.at - since < 2 * FORGOTTEN else event.at) - FORGOTTEN
            for queue, recent in commits.items():
                while broker_of(queue) == event.who and recent and recent[-1][0] > kept_until:
                    recent.pop()
    return findings


def overtaking(history: History, orderly: Collection[str], keyed: Collection[str] = ()) -> list[str]:
    """In orderly queues nothing starts before its predecessor is settled: by queue, and by order key.

    In keyed queues nothing starts before its predecessor by order key is settled.

    Of several brokers the keys count within each queue only: which queue a key has follows from the brokers there are.
    """
    findings, settling = [], Settling()
    keys, before, last = dict[int, str](), dict[int, int](), dict[tuple[str, str], int]()
    stored: dict[int, str] = {}
    is_alone = len({broker_of(event.queue) for event in history if isinstance(event, Stored)}) < 2
    for event in history:
        settling.see(event)
        match event:
            case Stored(queue=queue, number=number) if not is_copy(queue):
                stored.setdefault(number, queue)
            case Sent(number=number, key=key) if key:
                keys[number] = key
                line = key, "" if is_alone else stored.get(number, "")
                if line in last:
                    before[number] = last[line]
                if event.outcome == "ok":
                    last[line] = number
            case Started(queue=queue, offset=offset, number=number) if topic_of(queue) in {*orderly, *keyed}:
                low = settling.lowest_open(queue)
                if offset > low and topic_of(queue) in orderly:
                    findings.append(f"{queue}: #{offset} started at {event.at:.3f} before #{low} was settled")
                predecessor = before.get(number)
                if predecessor is not None and predecessor not in settling.numbers:
                    findings.append(f"key {keys[number]}: message {number} started before {predecessor} was settled")
    return findings


def stuck(history: History, within: float) -> list[str]:
    """Once everything is calm, the group catches up within the given seconds."""
    calm = max((event.at for event in history if isinstance(event, Calm)), default=None)
    if calm is None:
        return ["the history never became calm"]
    idle = [event.at for event in history if isinstance(event, Idle) and event.at >= calm]
    if not idle:
        return [f"calm since {calm:.3f}, and never idle"]
    return [f"idle {idle[0] - calm:.1f} s after it was calm, allowed are {within:g}"] if idle[0] - calm > within else []


def check(
    history: History,
    *,
    orderly: Collection[str] = (),
    keyed: Collection[str] = (),
    guarded: Iterable[Topic] = (),
    polled: Collection[str] = (),
    within: float,
    latency: float = 0.0,
) -> list[str]:
    """Everything that is wrong with a history. `orderly`, `keyed`, `polled`: names of the topics that are consumed so.

    `guarded`: those with a rate or a breaker. `latency`: of the network, in seconds.
    """
    locked, guarded = {*orderly, *keyed, *polled}, tuple(guarded)
    names = {topic.name for topic in guarded}
    checks: Iterable[Callable[[], list[str]]] = (
        lambda: lost(history),
        lambda: phantoms(history),
        lambda: conflicts(history),
        lambda: commits_ahead(history),
        lambda: commits_back(history, locked),
        lambda: overtaking(history, orderly, keyed),
        lambda: ownership.overlaps(history, orderly, keyed),
        lambda: ownership.double_sessions(history),
        lambda: ownership.two_owners(history, locked),
        lambda: repeated.repeats(history, locked, keyed, names, latency=latency),
        lambda: repeated.late_commits(history, orderly),
        # What a polled call repeats and fails with is not done any more: only the next call can settle it.
        lambda: liveness.starved(history, locked.difference(polled), {*names, *polled}),
        lambda: [finding for topic in guarded for finding in guards.broken(history, topic)],
        lambda: stuck(history, within),
    )
    return [finding for one in checks for finding in one()]
