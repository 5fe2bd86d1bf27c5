"""Storms: members of a group come, go and die, and brokers restart, while messages flow.

Each run is the same storm over another way of consuming. What is measured, and how:

- lost, order, overlaps: from the starts and ends of handlers, which every member writes to one history.
- repeats: messages done again. Orderly, they are counted for each hand-over of a queue; otherwise each has a cause.
- settled: seconds from a change (a member reached the cluster, was told to leave, or was killed) until every queue is
  owned by a living member (its own word: queue assigned, not released) that has begun a message of it since. Only
  changes that were followed by at least `SETTLE` seconds of calm count, and no broker restart.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.faults import checker, hand_overs
from tests.faults.hand_overs import Change
from tests.faults.members import TAKE, History, Members, filled, pause, read
from tests.faults.scenarios import Figures, Progress, end_load, fresh_name
from tests.peers.clusters import Apache, Cluster
from tests.peers.java_client import JavaClient, Peer
from tests.peers.waiting import wait_until

BATCH = 32
"""An orderly hand-over may repeat one batch."""
SETTLE = 3.0
"""Seconds within which every queue of a concurrent group has to move again after a change."""
REGISTERS = 10.0
"""Seconds after which Apache's broker registers again. When it comes back quickly, its name server may end the new
registration with the old connection, and knows of no topic until then.
"""
REVIVES = 30.0
"""Seconds after its restart in which Apache's broker hands out again what was acknowledged minutes before: a kill loses
how far it was with that.
"""
QUEUES, PLACES, KEYS = 16, 4, 64


class Storm(NamedTuple):
    """How hard it blows."""

    changes: int
    kills: int
    restarts: int
    rate: int
    seconds: str
    """How long message `number` takes."""
    calm: float = 3.6
    """Least seconds between two changes."""


_SHORT = "0.02 + number * 7919 % 181 / 1000"
"""20 to 200 ms, by message."""
_SOME_LONG = f"5.0 if number % 997 == 500 else {_SHORT}"

FULL_ORDERLY = Storm(100, kills=5, restarts=4, rate=60, seconds=_SOME_LONG)
TINY_ORDERLY = Storm(5, kills=0, restarts=1, rate=30, seconds=f"2 * ({_SHORT})")
"""Without a kill, whose locks would be waited for 60 s. Half the messages, twice as long: as many calls run at once."""
SMALL_ORDERLY = Storm(8, kills=1, restarts=1, rate=60, seconds=f"5.0 if number % 499 == 200 else {_SHORT}")
FULL_CONCURRENT = Storm(100, kills=8, restarts=4, rate=400, seconds=_SHORT)
SMALL_CONCURRENT = Storm(8, kills=1, restarts=1, rate=400, seconds=_SHORT)


class _Way(NamedTuple):
    """A way of consuming."""

    options: str = ""
    """Of the subscription, with a comma in front."""
    settings: str = ""
    """Of the app, with a comma in front."""
    handler: str = TAKE
    order_keys: int = 0
    commits: int = 1
    """Messages of a queue from one commit to the next; 0: the broker has no offsets of the group."""


_POLLED = _Way(
    handler="""
@app.poll("{topic}", every=0.2, start="first")
async def take(pull: Pull) -> None:
    messages = await pull(8)
    for message in messages:
        await work(message)
    if len(messages) == 8:
        pull.next_in(0)
"""
)
_BY_HAND = _Way(
    commits=4,
    handler="""
@app.subscribe("{topic}", start="first", orderly=True, commit="manual")
async def take(message: Message, context: Context) -> None:
    await work(message)
    if message.offset % 100 == 50 and context.attempt == 1:
        context.rollback(after=0.1)
    elif message.offset % 4 == 3:
        context.commit()
""",
)
_POPPED = _Way(options=', mode="pop"', settings=', settings={"consumer": {"pop_invisible_time": 10}}', commits=0)
_BROADCAST = _Way(options=", broadcast=True, orderly=True", commits=0)


class _Weather:
    """Does damage to a group: which, when and to whom is drawn from a seed."""

    def __init__(self, storm: Storm, members: Members, cluster: Cluster, seed: int) -> None:
        self._storm, self._members, self._cluster = storm, members, cluster
        self._chance = random.Random(seed)
        self._kills_due = 0
        self.broker_restarts: list[Change] = []

    def blow(self, check: Callable[[], None]) -> None:
        """All the damage, one after the other; `check` is called in between."""
        storm, chance = self._storm, self._chance
        kills = set(chance.sample(range(1, storm.changes), storm.kills))
        restarts = set(chance.sample(range(1, storm.changes), storm.restarts))
        changed = 0
        while changed < storm.changes:
            pause(storm.calm + chance.random() * 0.8)
            check()
            if changed in restarts:
                restarts.discard(changed)
                self._restart_broker()
                continue
            if changed in kills:
                kills.discard(changed)
                self._kills_due += 1
            changed += self._change()

    def _change(self) -> bool:
        members, chance = self._members, self._chance
        running, free = members.running(), members.free()
        may_go = len(running) >= 2
        if self._kills_due and may_go:
            self._kills_due -= 1
            members.kill(members.oldest())
        elif may_go and (not free or chance.random() < (0.7 if len(running) > 2 else 0.3)):
            members.leave(chance.choice(running))
        elif free:
            members.join(chance.choice(free))
        else:
            return False
        return True

    def _restart_broker(self) -> None:
        began = time.monotonic()
        if isinstance(self._cluster, Apache):
            self._cluster.bounce(0.5)
        else:
            self._cluster.kill_broker()
            self._cluster.start_again()
        self.broker_restarts.append(Change(time.monotonic(), "broker", began=began))


class _Run(NamedTuple):
    """What a storm left behind."""

    history: History
    changes: list[Change]
    restarts: list[Change]
    stored: list[int]
    unknown: list[int]
    members: Members


def _storm(
    cluster: Cluster, peer: Peer, directory: Path, storm: Storm, way: _Way, *, seed: int, everywhere: bool = False
) -> _Run:
    """`everywhere`: all places run at the end, and each of them has handled everything."""
    java, topic, group = JavaClient(peer, cluster.name_server), fresh_name("storm"), fresh_name("group")
    java.create_topic(topic, QUEUES)
    source = filled(
        topic, group, options=way.options, seconds=storm.seconds, settings=way.settings, handler=way.handler
    )
    members = Members(directory, source, [cluster.name_server] * PLACES)
    load = None
    try:
        for place in range(3):
            members.join(place)
        for place in range(3):
            members.wait_until_joined(place, within=30)
        load = java.produce(topic, 10**9, size=64, threads=2, rate=storm.rate, order_keys=way.order_keys)
        progress = Progress(members.log)
        weather = _Weather(storm, members, cluster, seed)
        weather.blow(progress.read)
        pause(storm.calm)
        for place in members.free() if everywhere else ():
            members.join(place)
        end = end_load(load)
        stored = set(end["stored"])
        wait_until(
            lambda: stored <= progress.read() and (not everywhere or not _incomplete(members, topic, stored)),
            within=150,
            what=lambda: f"all are handled, {len(stored - progress.read())} are missing\n{members.describe()}",
            every=0.5,
        )
        history = read(members.log, topic)
        changes = members.all_changes(history)
        members.stop()
        _check_commits(java, topic, group, way.commits)
    finally:
        if load is not None:
            load.stop()
        members.discard()
    return _Run(history, changes, weather.broker_restarts, end["stored"], end["unknown"], members)


def _incomplete(members: Members, topic: str, stored: set[int]) -> dict[int, int]:
    """By place, of the members that run: how many messages they have not handled, if any."""
    events = read(members.log, topic).events
    done = {place: set[int]() for place in members.running()}
    for event in events:
        if event.event == "done" and members.places[event.pid] in done:
            done[members.places[event.pid]].add(event.number)
    return {place: len(stored - numbers) for place, numbers in done.items() if not stored <= numbers}


def _check_commits(java: JavaClient, topic: str, group: str, commits: int) -> None:
    """Every queue is committed as far as its handler has said."""
    offsets = java.offsets(topic, group) if commits else {}
    for queue, line in offsets.items():
        end = line["max"] or 0
        assert (line["committed"] or 0) == end - end % commits, f"queue {queue} is committed: {offsets}"


def _common(cluster: Cluster, run: _Run) -> Figures:
    """Nothing is lost, nothing comes from nowhere."""
    events = run.history.events
    assert checker.lost(run.stored, events) == []
    assert checker.phantoms([*run.stored, *run.unknown], events) == []
    assert checker.conflicts(events) == []
    for at, log in run.members.unclean:
        assert any(one.began - 10 <= at <= one.at + 10 for one in run.restarts), f"a member left uncleanly\n{log}"
    kinds = Counter(change.kind for change in run.changes)
    return {
        "cluster": cluster.name,
        "messages": len(run.stored),
        "joins": kinds["join"],
        "leaves": kinds["leave"],
        "kills": kinds["kill"],
        "broker_restarts": len(run.restarts),
        "lost": 0,
    }


def orderly(cluster: Cluster, peer: Peer, directory: Path, storm: Storm, *, seed: int = 6) -> Figures:
    """Orderly handlers in a storm: order, one handler for each queue, at most a batch repeated at a hand-over."""
    return _in_order(cluster, _storm(cluster, peer, directory, storm, _Way(", orderly=True"), seed=seed))


def polled(cluster: Cluster, peer: Peer, directory: Path, storm: Storm, *, seed: int = 6) -> Figures:
    """Polled handlers in a storm promise what orderly ones do."""
    return _in_order(cluster, _storm(cluster, peer, directory, storm, _POLLED, seed=seed))


def by_hand(cluster: Cluster, peer: Peer, directory: Path, storm: Storm, *, seed: int = 6) -> Figures:
    """So do handlers that commit and roll back by hand."""
    return _in_order(cluster, _storm(cluster, peer, directory, storm, _BY_HAND, seed=seed))


def _in_order(cluster: Cluster, run: _Run) -> Figures:
    figures, events = _common(cluster, run), run.history.events
    overlaps, excused = _overlaps(cluster, run, events)
    handed = hand_overs.hand_overs(events)
    took = {"kill": 0.0, "leave": 0.0}
    for change in run.changes:
        if change.kind in took:
            took[change.kind] = max(took[change.kind], *hand_overs.takeovers(events, change).values(), 0.0)
    figures |= {
        "order_violations": len(checker.overtaken(events)),
        "overlaps": len(overlaps),
        "overlaps_of_a_call_at_a_broker_restart": len(excused),
        "hand_overs": len(handed),
        "repeated": len(hand_overs.repeats(events)),
        "most_repeats_of_a_hand_over": max((one.repeats for one in handed), default=0),
        "causes": causes(run.history, [*run.changes, *run.restarts]),
        "longest_takeover_after_kill_s": round(took["kill"], 1),
        "longest_takeover_after_leave_s": round(took["leave"], 1),
    }
    assert figures["order_violations"] == 0, (checker.overtaken(events)[:5], figures)
    assert figures["overlaps"] == 0, (overlaps[:3], figures)
    assert figures["most_repeats_of_a_hand_over"] <= BATCH, (
        [one for one in handed if one.repeats > BATCH][:5], figures
    )  # fmt: skip
    return figures


def keyed(cluster: Cluster, peer: Peer, directory: Path, storm: Storm, *, seed: int = 6) -> Figures:
    """Handlers with `order_by=` in a storm: order and one handler for each key, while many keys of a queue run."""
    run = _storm(cluster, peer, directory, storm, _Way(', order_by="KEYS"', order_keys=KEYS), seed=seed)
    figures, events = _common(cluster, run), checker.by_key(run.history.events, KEYS)
    overlaps, excused = _overlaps(cluster, run, events)
    figures |= {
        "order_violations": len(checker.overtaken(events)),
        "overlaps": len(overlaps),
        "overlaps_of_a_call_at_a_broker_restart": len(excused),
        "calls_beside_another_key_of_the_queue": len(checker.overlaps(run.history.events, run.members.kills)),
        "repeated": len(hand_overs.repeats(run.history.events)),
        "causes": causes(run.history, [*run.changes, *run.restarts]),
    }
    assert figures["order_violations"] == 0, (checker.overtaken(events)[:5], figures)
    assert figures["overlaps"] == 0, (overlaps[:3], figures)
    assert figures["calls_beside_another_key_of_the_queue"] > 0, figures
    return figures


def popped(cluster: Cluster, peer: Peer, directory: Path, storm: Storm, *, seed: int = 6) -> Figures:
    """Popped messages in a storm: each is handled once, unless a kill or a restart of the broker explains it."""
    run = _storm(cluster, peer, directory, storm, _POPPED, seed=seed)
    # A message that comes again may lie elsewhere: each is followed by its number.
    events = [event._replace(queue=event.number, offset=0) for event in run.history.events]
    run = run._replace(history=run.history._replace(events=events))
    restarts = [one._replace(at=one.at + REVIVES) for one in run.restarts]
    overlaps = checker.overlaps(events, run.members.kills)
    figures = _common(cluster, run) | {
        "overlaps": len(overlaps),
        "repeated": len(hand_overs.repeats(events)),
        "causes": causes(run.history, [*run.changes, *restarts]),
    }
    assert not overlaps, (overlaps[:3], figures)
    assert set(figures["causes"]) <= {"its member was killed", "a broker restart"}, figures
    return figures


def broadcast(cluster: Cluster, peer: Peer, directory: Path, storm: Storm, *, seed: int = 6) -> Figures:
    """Broadcast in a storm: each member gets all in its order, and after a restart goes on; a kill alone repeats."""
    run = _storm(cluster, peer, directory, storm, _BROADCAST, seed=seed, everywhere=True)
    places = run.members.places
    # Each place has queues of its own.
    events = [event._replace(queue=event.queue + QUEUES * places[event.pid]) for event in run.history.events]
    run = run._replace(history=run.history._replace(events=events))
    figures = _common(cluster, run) | {
        "handled": len(checker.done_numbers(events)),
        "order_violations": len(checker.overtaken(events)),
        "overlaps": len(checker.overlaps(events, run.members.kills)),
        "repeated": len(hand_overs.repeats(events)),
        "causes": causes(run.history, [*run.changes, *run.restarts]),
    }
    assert (figures["order_violations"], figures["overlaps"]) == (0, 0), (checker.overtaken(events)[:5], figures)
    assert set(figures["causes"]) <= {"its member was killed"}, figures
    return figures


def _overlaps(
    cluster: Cluster, run: _Run, events: list[checker.Event]
) -> tuple[list[tuple[checker.Event, checker.Event]], list[tuple[checker.Event, checker.Event]]]:
    """Two calls at once where one is promised; and those that a restart of Apache's broker, which forgets, excuses."""
    found = checker.overlaps(events, run.members.kills)
    excused = [
        pair
        for pair in found
        if cluster.name == "apache" and hand_overs.running_when_dropped(pair[0], pair[1].at, run.history.drops)
    ]
    return [pair for pair in found if pair not in excused], excused


def concurrent(cluster: Cluster, peer: Peer, directory: Path, storm: Storm, *, seed: int = 6) -> Figures:
    """Concurrent handlers in a storm: nothing lost, and every queue moves again within 3 s of a change."""
    run = _storm(cluster, peer, directory, storm, _Way(), seed=seed)
    figures, events = _common(cluster, run), run.history.events
    unrouted = REGISTERS if cluster.name == "apache" else 0.0
    times = settle_times(run.history, run.changes, run.restarts, run.members.ends, unrouted=unrouted)
    slow = [(change, found) for change, found in times if found.seconds > SETTLE or found.doubly]
    figures |= {
        "changes_measured": len(times),
        "longest_settle_s": max((round(found.seconds, 2) for _, found in times), default=None),
        "median_settle_s": round(sorted(found.seconds for _, found in times)[len(times) // 2], 2) if times else None,
        "not_settled": len(slow),
        "repeated": len(hand_overs.repeats(events)),
        "causes": causes(run.history, [*run.changes, *run.restarts]),
    }
    assert times, "no change could be measured"
    assert not slow, (slow[:5], figures)
    return figures


def settle_times(
    history: History, changes: list[Change], restarts: list[Change], ends: dict[int, float], *, unrouted: float
) -> list[tuple[Change, hand_overs.Settled]]:
    """For every change that was followed by calm: how long the group took.

    `unrouted`: seconds after a restart in which members that join may find no route.
    """
    ordered = sorted([*changes, *restarts, *(Change(one.began, "broker") for one in restarts)])
    last = max(event.at for event in history.events if event.event == "start")
    found, gone = [], set[int]()
    for change, following in pairwise([*ordered, Change(last, "end")]):
        # A joiner is given queues a moment before it says that it joined.
        until = following.at - 0.5
        alive = [pid for pid, at in history.joined.items() if at <= change.at and pid not in gone]
        gone |= {change.pid} if change.kind in ("leave", "kill") else set()
        if change.kind == "broker" or until - change.at < SETTLE or not set(alive) - gone:
            continue
        if change.kind == "join" and any(0 <= change.at - one.at < unrouted for one in restarts):
            continue
        found.append((change, hand_overs.settled(change, until, range(QUEUES), history.events, history.moves, ends)))
    return found


def causes(history: History, changes: list[Change]) -> dict[str, int]:
    """Repeats by cause."""
    return dict(Counter(hand_overs.cause(repeat, changes) for repeat in hand_overs.repeats(history.events)))
