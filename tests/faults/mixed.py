"""A group of Java and rocketapp members that come and go: each queue has one owner, and no commit of ours goes back.

Every member talks to the broker through a tap (tests/peers/tap.py), which sees the pulls and commits of all of them in
one order. The owner of a queue is the member that pulls it.
"""

from __future__ import annotations

import random
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.faults import checker, hand_overs
from tests.faults.hand_overs import Change, Request
from tests.faults.members import Members, filled, pause, read
from tests.faults.scenarios import Figures, Progress, end_load, fresh_name
from tests.faults.storms import QUEUES, causes
from tests.peers.clusters import Apache, Cluster, Embedded
from tests.peers.java_client import JavaClient, JavaConsumer, Peer
from tests.peers.tap import Tap
from tests.peers.waiting import wait_until

SETTLE = 5.0
"""Seconds within which each queue has exactly one owner after a change."""
_OURS, _JAVA = 2, 2


class _JavaMembers:
    """Members of the group inside the JVM: places that are running or free."""

    def __init__(self, client: JavaClient, topic: str, group: str, doors: list[str], log: Path) -> None:
        self._client, self._topic, self._group, self._doors, self._log = client, topic, group, doors, log
        self._consumers: dict[int, JavaConsumer] = {}
        self._starts = 0
        self.changes: list[Change] = []

    def running(self) -> list[int]:
        return list(self._consumers)

    def free(self) -> list[int]:
        return [place for place in range(len(self._doors)) if place not in self._consumers]

    def join(self, place: int) -> None:
        self._starts += 1
        self._consumers[place] = self._client.consume(
            self._topic, self._group, ns_of_member=self._doors[place], instance=f"member{self._starts}",
            work_ms=5, history=str(self._log), pid=-self._starts,
        )  # fmt: skip
        self.changes.append(Change(time.monotonic(), "join", -self._starts))

    def leave(self, place: int) -> None:
        self.changes.append(Change(time.monotonic(), "leave", -self._starts))
        self._consumers.pop(place).stop()

    def stop(self) -> None:
        for place in self.running():
            self.leave(place)


class _Outcome(NamedTuple):
    changes: list[Change]
    """The last one is the end of the load."""
    pulls: list[Request]
    commits: list[Request]


def mixed(cluster: Cluster, peer: Peer, directory: Path, *, changes: int = 50, rate: int = 500) -> Figures:
    """2 Java and 2 rocketapp members join and leave; the figures tell how soon every queue has one owner again."""
    assert isinstance(cluster, Apache | Embedded)
    client, topic, group = JavaClient(peer, cluster.name_server), fresh_name("mixed"), fresh_name("group")
    client.create_topic(topic, QUEUES)
    tap = Tap(cluster.name_server, cluster.broker_address)
    ours = Members(directory, filled(topic, group, seconds="0.005"), [tap.door(f"ours{n}") for n in range(_OURS)])
    ours.log.touch()
    java = _JavaMembers(client, topic, group, [tap.door(f"java{n}") for n in range(_JAVA)], ours.log)
    load = None
    try:
        for place in range(2):
            java.join(place)
            ours.join(place)
            ours.wait_until_joined(place, within=30)
        load = client.produce(topic, 10**9, size=64, threads=4, rate=rate)
        pause(SETTLE + 2)
        begin = time.monotonic()
        _come_and_go(ours, java, changes)
        over = time.monotonic()
        end = end_load(load)
        progress, stored = Progress(ours.log), set(end["stored"])
        wait_until(lambda: stored <= progress.read(), within=90, what=ours.describe, every=0.5)
        history = read(ours.log, topic)
        made = [one for one in (*ours.all_changes(history), *java.changes) if begin <= one.at <= over]
        ours.stop()
        java.stop()
    finally:
        if load is not None:
            load.stop()
        ours.discard()
        java.stop()
        tap.stop()
    assert not ours.unclean, ours.unclean[0][1]
    seen = [one for one in tap.seen if one.topic == topic]
    outcome = _Outcome(
        [*sorted(made), Change(over, "end")],
        [Request(one.at, one.member, one.queue, one.offset) for one in seen if one.kind == "pull"],
        [Request(one.at, one.member, one.queue, one.offset) for one in seen if one.kind == "commit"],
    )
    figures = {"cluster": cluster.name, "messages": len(stored), **_figures(outcome)}
    figures |= {
        "lost": len(checker.lost(stored, history.events)),
        "repeated": len(hand_overs.repeats(history.events)),
        "causes": causes(history, outcome.changes),
    }
    _judge(figures, outcome)
    return figures


def _come_and_go(ours: Members, java: _JavaMembers, changes: int) -> None:
    chance = random.Random(7)
    for _ in range(changes):
        leavers = [(kind, place) for kind in (ours, java) for place in kind.running()]
        joiners = [(kind, place) for kind in (ours, java) for place in kind.free()]
        leaves = len(leavers) > 1 and (not joiners or chance.random() < (0.6 if len(leavers) > 2 else 0.3))
        kind, place = chance.choice(leavers if leaves else joiners)
        if leaves:
            kind.leave(place)
        else:
            kind.join(place)
            if isinstance(kind, Members):
                kind.wait_until_joined(place, within=30)
        pause(SETTLE + 1.5)


def _figures(outcome: _Outcome) -> Figures:
    times = _times(outcome)
    return {
        "changes": len(times),
        "longest_until_owned_once_s": round(max(seconds for _, seconds in times), 2),
        "median_until_owned_once_s": round(sorted(seconds for _, seconds in times)[len(times) // 2], 2),
        "not_within_5_s": sum(seconds > SETTLE for _, seconds in times),
        "commits_of_ours": sum(one.member.startswith("ours") for one in outcome.commits),
        "lowered_by_ours": len(hand_overs.lowered(outcome.commits, ("ours0", "ours1"))),
        "lowered_by_java": len(hand_overs.lowered(outcome.commits, ("java0", "java1"))),
    }


def _times(outcome: _Outcome) -> list[tuple[Change, float]]:
    return [
        (change, hand_overs.owned_once_after(change, following.at, range(QUEUES), outcome.pulls))
        for change, following in pairwise(outcome.changes)
        if following.at - change.at >= SETTLE
    ]


def _judge(figures: Figures, outcome: _Outcome) -> None:
    assert figures["lost"] == 0, figures
    assert figures["lowered_by_ours"] == 0, (hand_overs.lowered(outcome.commits, ("ours0", "ours1"))[:5], figures)


def settles_in_time(figures: Figures) -> Figures:
    """Judge the times as well: a machine that is busy with other things has no part in them."""
    assert figures["not_within_5_s"] == 0, figures
    return figures
