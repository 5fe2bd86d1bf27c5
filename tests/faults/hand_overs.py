"""What a history proves of queues that change hands: repeats and their cause, take-overs, double owners, pauses.

Pure, as checker.py is: events and requests in, findings out; test_hand_overs.py feeds it bad histories.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.faults.checker import Event, by_time


class Change(NamedTuple):
    """Something that was done to the group or to its broker."""

    at: float
    kind: str
    """`join` (the member reached the cluster), `leave` (SIGTERM), `kill` (`kill -9`) or `broker` (it serves again)."""
    pid: int = 0
    began: float = 0.0
    """Of a broker's restart: when it went away."""


class Move(NamedTuple):
    """A member says that a queue is its own from now on, or no more."""

    at: float
    event: str
    """`assigned` or `released`."""
    pid: int
    queue: int


class Drop(NamedTuple):
    """A member's connection broke."""

    at: float
    pid: int


class Request(NamedTuple):
    """A pull or a commit of a member, as the broker gets it."""

    at: float
    member: str
    queue: int
    offset: int


class HandOver(NamedTuple):
    """A queue begins anew, in another process or in the same one: the messages that were done before."""

    queue: int
    at: float
    before: int
    pid: int
    repeats: int


def hand_overs(events: Iterable[Event]) -> list[HandOver]:
    """Every point where the messages of a queue did not simply go on in one process (orderly)."""
    found: list[HandOver] = []
    done: dict[int, set[int]] = {}
    last: dict[int, Event] = {}
    latest: dict[int, int] = {}
    for event in sorted(events, key=by_time):
        known = done.setdefault(event.queue, set())
        if event.event == "done":
            known.add(event.offset)
            continue
        before = last.get(event.queue)
        if before is not None and (before.pid != event.pid or event.offset <= before.offset):
            found.append(HandOver(event.queue, event.at, before.pid, event.pid, 0))
            latest[event.queue] = len(found) - 1
        if event.offset in known:
            one = found[latest[event.queue]]
            found[latest[event.queue]] = one._replace(repeats=one.repeats + 1)
        last[event.queue] = event
    return found


def running_when_dropped(call: Event, until: float, drops: Iterable[Drop]) -> bool:
    """Whether a call was already running when its member's connection broke, before `until`."""
    return any(drop.pid == call.pid and call.at <= drop.at <= until for drop in drops)


class Repeat(NamedTuple):
    """A message that was done twice, and what lies between."""

    first: Event
    again: Event
    duration: float
    """Seconds that the first call ran."""


def repeats(events: Iterable[Event]) -> list[Repeat]:
    """Every message that was done again, with the last call before it."""
    found: list[Repeat] = []
    started: dict[tuple[int, int, int], float] = {}
    finished: dict[tuple[int, int], tuple[Event, float]] = {}
    for event in sorted(events, key=by_time):
        place, call = (event.queue, event.offset), (event.pid, event.queue, event.offset)
        if event.event == "start":
            started[call] = event.at
            continue
        if place in finished:
            first, duration = finished[place]
            found.append(Repeat(first, event, duration))
        finished[place] = event, event.at - started.get(call, event.at)
    return found


_REJOINING = 10.0
"""Seconds after a broker's restart in which members register again, one after the other."""


def cause(repeat: Repeat, changes: Iterable[Change]) -> str:
    """Why a message was repeated, as far as the changes before its repetition tell: the first cause that fits."""
    begin, end = repeat.first.at - repeat.duration - 1.0, repeat.again.at
    between = [change for change in changes if change.kind != "broker" and begin <= change.at <= end]
    restarts = [change for change in changes if change.kind == "broker"]
    if any(change.kind == "kill" and change.pid == repeat.first.pid for change in between):
        return "its member was killed"
    if any(change.began <= end and begin <= change.at + _REJOINING for change in restarts):
        return "a broker restart"
    if any(change.kind == "leave" and change.pid == repeat.first.pid for change in between):
        return "its member left"
    if repeat.first.pid == repeat.again.pid:
        return "the same member again"
    return "a rebalance"


def repeats_of_short_calls(events: Sequence[Event], limit: float) -> list[Repeat]:
    """Repeats that no call of more than `limit` seconds explains.

    It explains itself, and the messages behind it in its queue that were done while it ran: its offset was the highest
    that could be committed.
    """
    started: dict[tuple[int, int, int], float] = {}
    long_calls: dict[int, list[tuple[int, float, float]]] = {}
    for event in sorted(events, key=by_time):
        call = (event.pid, event.queue, event.offset)
        if event.event == "start":
            started[call] = event.at
        elif event.at - started.get(call, event.at) > limit:
            long_calls.setdefault(event.queue, []).append((event.offset, started[call], event.at))
    return [
        repeat
        for repeat in repeats(events)
        if repeat.duration <= limit
        and not any(
            offset < repeat.first.offset and begin <= repeat.first.at <= end
            for offset, begin, end in long_calls.get(repeat.first.queue, ())
        )
    ]


def takeovers(events: Sequence[Event], change: Change, until: float = float("inf")) -> dict[int, float]:
    """Seconds from the end of a member until each queue that it handled last moves in another one; inf: never."""
    owners: dict[int, int] = {}
    found: dict[int, float] = {}
    for event in sorted(events, key=by_time):
        if event.at > until:
            break
        if event.event != "start":
            continue
        if event.at <= change.at:
            owners[event.queue] = event.pid
        elif owners.get(event.queue) == change.pid != event.pid and event.queue not in found:
            found[event.queue] = event.at - change.at
    orphans = {queue for queue, pid in owners.items() if pid == change.pid}
    return {queue: found.get(queue, float("inf")) for queue in orphans}


class Settled(NamedTuple):
    """How the queues stand some time after a change."""

    seconds: float
    """Until the last queue was handled by the member that owns it in the end; inf: not before the next change."""
    unowned: list[int]
    doubly: list[int]


def settled(
    change: Change,
    until: float,
    queues: Iterable[int],
    events: Iterable[Event],
    moves: Iterable[Move],
    dead: Mapping[int, float],
) -> Settled:
    """What became of each queue between a change and the next one.

    A queue is settled when the member that owns it in the end (assigned, not released, alive) has begun a message of
    it after the change and after it got it. dead: when which process ended.
    """
    owners = owners_at(until, moves, dead)
    starts = [event for event in events if event.event == "start" and change.at <= event.at <= until]
    unowned, doubly, latest = [], [], 0.0
    for queue in queues:
        held = owners.get(queue, {})
        if not held:
            unowned.append(queue)
            continue
        if len(held) > 1:
            doubly.append(queue)
        pid, since = max(held.items(), key=lambda item: item[1])
        mine = (event.at for event in starts if event.queue == queue and event.pid == pid and event.at >= since)
        latest = max(latest, min(mine, default=float("inf")) - change.at)
    return Settled(float("inf") if unowned else latest, unowned, doubly)


def owners_at(at: float, moves: Iterable[Move], dead: Mapping[int, float]) -> dict[int, dict[int, float]]:
    """By queue: the living members that own it at this time, and since when."""
    owners: dict[int, dict[int, float]] = {}
    for move in sorted(moves):
        if move.at > at:
            break
        held = owners.setdefault(move.queue, {})
        held.pop(move.pid, None)
        if move.event == "assigned":
            held[move.pid] = move.at
    return {
        queue: {pid: since for pid, since in held.items() if dead.get(pid, float("inf")) >= at}
        for queue, held in owners.items()
    }


def owned_once_after(change: Change, until: float, queues: Collection[int], pulls: Iterable[Request]) -> float:
    """Seconds after a change from which on each queue was pulled by exactly one member until the next change.

    inf: a queue was not pulled at all. The member that pulls a queue last owns it.
    """
    by_queue: dict[int, list[Request]] = {queue: [] for queue in queues}
    for pull in sorted(pulls):
        if change.at <= pull.at < until and pull.queue in by_queue:
            by_queue[pull.queue].append(pull)
    latest = 0.0
    for found in by_queue.values():
        if not found:
            return float("inf")
        owner = found[-1].member
        others = [pull.at for pull in found if pull.member != owner]
        first = next(pull.at for pull in found if pull.member == owner)
        latest = max(latest, first - change.at, *(at - change.at for at in others))
    return latest


def lowered(commits: Iterable[Request], ours: Collection[str]) -> list[tuple[Request, Request]]:
    """Commits of our members below what the broker had, with the commit that they undid."""
    found: list[tuple[Request, Request]] = []
    at_broker: dict[int, Request] = {}
    for commit in sorted(commits):
        before = at_broker.get(commit.queue)
        if before is not None and commit.offset < before.offset and commit.member in ours:
            found.append((before, commit))
        at_broker[commit.queue] = commit
    return found


def longest_pause(times: Iterable[float], begin: float, end: float) -> float:
    """The longest time within these bounds in which nothing happened."""
    inside = sorted(at for at in times if begin < at < end)
    return max(later - sooner for sooner, later in pairwise([begin, *inside, end]))
