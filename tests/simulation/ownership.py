"""Who may handle what: one owner per queue."""

from __future__ import annotations

from collections.abc import Collection

from tests.simulation.excuses import (
    HAND_OVER,
    LOCK_LIFE,
    NEVER,
    RECOVERY,
    ROUTES_HEARD,
    Faults,
    Forwards,
    Routes,
    nothing,
)
from tests.simulation.history import (
    CRASH,
    Assigned,
    Cancelled,
    Fault,
    Finished,
    History,
    Released,
    Sent,
    Started,
    broker_of,
    topic_of,
)

LOCK_RENEWED = 20.0
"""Seconds between two requests for a lock: the last one of a member that left may be so old."""


def overlaps(history: History, orderly: Collection[str], keyed: Collection[str] = ()) -> list[str]:
    """At most one handler at once per orderly queue, and per key of a keyed queue, in the whole group.

    What a crashed member had in flight ended with it; a handler that was frozen in the middle does not count: no
    program can stop its lock from running out. Nor does a thread that a member has left behind when its drain was cut,
    once the last lock that it asked for has run out.
    """
    findings, active, left = [], dict[tuple[str, str], Started](), dict[str, float]()
    keys = {event.number: event.key for event in history if isinstance(event, Sent)}
    for event in history:
        match event:
            case Started(queue=queue, number=number) if topic_of(queue) in {*orderly, *keyed}:
                line = queue, keys.get(number, "") if topic_of(queue) in keyed else ""
                other = active.get(line)
                if other and event.at < left.get(other.member, event.at) + LOCK_LIFE - LOCK_RENEWED:
                    findings.append(
                        f"{queue}: {event.member} started #{event.offset} at {event.at:.3f} "
                        f"while {other.member} had #{other.offset} in flight"
                    )
                active[line] = event
            case Finished(queue=queue, number=number) | Cancelled(queue=queue, number=number):
                line = queue, keys.get(number, "") if topic_of(queue) in keyed else ""
                other = active.get(line)
                if other is not None and (other.member, other.offset) == (event.member, event.offset):
                    del active[line]
            case Fault(kind="left", who=who):
                left[who] = event.at
            case Fault(kind="crash" | "freeze", who=who):
                active = {line: started for line, started in active.items() if started.member != who}
    return findings


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


def two_owners(history: History, orderly: Collection[str], forwards: Forwards = nothing) -> list[str]:
    """Once a member has a queue, the one before starts nothing in it any more, nor does another one unless the owner
    forwards to it, or, of a concurrent queue, an owner before.

    An orderly queue is given up before another member gets it, unless its owner crashed, or was frozen or held back in
    the last 60 s. Of a concurrent queue the owner before has 3 s to hear of it, and 60 s after a fault that reached one
    of the two, the broker of the queue, or any connection; and 40 s after the routes changed, or after any member
    crashed: brokers drop it from their lists at different times.
    """
    findings, owners, faults = [], dict[str, Assigned](), Faults()
    had: dict[str, set[str]] = {}
    sessions, routes, crashed = dict[str, dict[str, float]](), Routes(), NEVER
    for event in history:
        faults.see(event)
        routes.see(event)
        if isinstance(event, Fault) and event.kind == CRASH:
            crashed = event.at
            for members in sessions.values():
                members.pop(event.who, None)
        elif isinstance(event, Assigned):
            owners[event.queue] = event
            others = sessions.setdefault(event.queue, {})
            broker = broker_of(event.queue)
            if topic_of(event.queue) in orderly:
                findings += [
                    f"{event.queue}: {event.member} began at {event.at:.3f} while {other} consumed it since {began:.3f}"
                    for other, began in others.items()
                    if other != event.member and not faults.reached((other, broker), event.at - LOCK_LIFE)
                ]
            others[event.member] = event.at
            had.setdefault(event.queue, set()).add(event.member)
        elif isinstance(event, Released):
            left = sessions.setdefault(event.queue, {})
            left.pop(event.member, None)
            if (owner := owners.get(event.queue)) is not None and owner.member == event.member:
                # It had the queue for a while only; the one before has it still, or it has no owner.
                del owners[event.queue]
        elif isinstance(event, Started) and (owner := owners.get(event.queue)) is not None:
            who = owner.member, event.member, broker_of(event.queue)
            forwarding = {owner.member} if topic_of(event.queue) in orderly else had[event.queue]
            if (
                owner.member != event.member
                and not any(forwards(one, event.number) for one in forwarding)
                and event.at > owner.at + HAND_OVER
                and not faults.reached(who, owner.at - RECOVERY)
                and not (
                    topic_of(event.queue) not in orderly
                    and (routes.differ(event.at) or event.at <= crashed + ROUTES_HEARD)
                )
            ):
                findings.append(
                    f"{event.queue}: {event.member} started #{event.offset} at {event.at:.3f}, "
                    f"{owner.member} has it since {owner.at:.3f}"
                )
    return findings
