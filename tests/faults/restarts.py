"""Restarts without a storm: a rolling deploy, and a broker that is gone for a moment while a member joins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.faults import checker, hand_overs
from tests.faults.members import History, Members, filled, pause, read
from tests.faults.scenarios import Figures, Progress, end_load, fresh_name
from tests.faults.storms import BATCH, QUEUES, causes
from tests.peers.clusters import Cluster, Embedded
from tests.peers.java_client import JavaClient, Peer
from tests.peers.waiting import wait_until

_SHORT, _MEDIUM, _LONG = "0.005 + number * 7919 % 41 / 1000", "0.3 + number % 7 / 10", "1.5"
_DEPLOY = f"{_LONG} if number % 2003 == 7 else {_MEDIUM} if number % 31 == 5 else {_SHORT}"
"""Most take 5 to 45 ms, one of 31 takes 0.3 to 0.9 s, one of 2003 longer than a hand-over waits for."""


def rolling(
    cluster: Cluster, peer: Peer, directory: Path, *, rate: int = 2000, rounds: int = 2, workers: int = 1
) -> Figures:
    """A rolling deploy: three members under load are stopped and started, one after the other.

    workers: processes of each member (`rocketapp run --workers`).
    """
    java, topic, group = JavaClient(peer, cluster.name_server), fresh_name("rolling"), fresh_name("group")
    java.create_topic(topic, QUEUES)
    source, more = filled(topic, group, seconds=_DEPLOY), ("--workers", str(workers)) if workers > 1 else ()
    members = Members(directory, source, [cluster.name_server] * 3, *more)
    load, restarts = None, 0
    try:
        for place in range(3):
            members.join(place)
        members.wait_for_joins(3 * workers, within=40)
        load = java.produce(topic, 10**9, size=64, threads=8, rate=rate)
        pause(4)
        for _ in range(rounds):
            for place in range(3):
                members.leave(place)
                members.wait_until_gone(place, within=40)
                members.join(place)
                restarts += 1
                members.wait_for_joins((3 + restarts) * workers, within=40)
                pause(2)
        end = end_load(load)
        progress, stored = Progress(members.log), set(end["stored"])
        wait_until(lambda: stored <= progress.read(), within=60, what=members.describe, every=0.5)
        members.stop()
        history = read(members.log, topic)
    finally:
        if load is not None:
            load.stop()
        members.discard()
    return {"workers_each": workers, **_rolling_figures(cluster, members, history, end, restarts)}


def _rolling_figures(
    cluster: Cluster, members: Members, history: History, end: dict[str, Any], restarts: int
) -> Figures:
    assert not members.unclean, members.unclean[0][1]
    found = hand_overs.repeats(history.events)
    short = hand_overs.repeats_of_short_calls(history.events, 1.0)
    figures = {
        "cluster": cluster.name,
        "messages": len(end["stored"]),
        "per_second": round(len(end["stored"]) / end["seconds"]),
        "restarts": restarts,
        "lost": len(checker.lost(end["stored"], history.events)),
        "repeated": len(found),
        "repeated_longer_than_1_s": sum(repeat.duration > 1.0 for repeat in found),
        "repeated_behind_such_a_call": len(found) - len(short) - sum(repeat.duration > 1.0 for repeat in found),
        "repeated_otherwise": len(short),
        "causes": causes(history, members.all_changes(history)),
    }
    assert figures["lost"] == 0, figures
    return figures


def repeats_no_short_call(figures: Figures) -> Figures:
    """Judge the repeats as well: a machine that is busy with other things makes hand-overs long."""
    assert figures["repeated_otherwise"] == 0, figures
    return figures


def broker_pause(peer: Peer, directory: Path, delays: tuple[float, ...]) -> Figures:
    """A broker restarts under an orderly member that is at work, and another member is started some seconds later.

    0: while the broker is away, so that it joins as soon as the broker serves.
    The embedded broker keeps the locks: nothing may overlap.
    """
    broker = Embedded(directory / "broker")
    java, topic, group = JavaClient(peer, broker.name_server), fresh_name("pause"), fresh_name("group")
    members = Members(
        directory / "members",
        filled(topic, group, options=", orderly=True", seconds="4.0 if number % 101 == 50 else 0.05"),
        [broker.name_server] * 2,
    )
    load = None
    try:
        java.create_topic(topic, 8)
        members.join(0)
        members.wait_until_joined(0, within=30)
        load = java.produce(topic, 10**9, size=64, rate=60)
        for delay in delays:
            pause(2)
            broker.kill_broker()
            if not delay:
                members.join(1)
            broker.start_again()
            if delay:
                pause(delay)
                members.join(1)
            members.wait_until_joined(1, within=30)
            pause(3)
            members.leave(1)
            members.wait_until_gone(1, within=40)
        end = end_load(load)
        progress, stored = Progress(members.log), set(end["stored"])
        wait_until(lambda: stored <= progress.read(), within=90, what=members.describe, every=0.5)
        members.stop()
        history = read(members.log, topic)
    finally:
        if load is not None:
            load.stop()
        members.discard()
        broker.stop()
    assert not members.unclean, members.unclean[0][1]
    handed = hand_overs.hand_overs(history.events)
    figures = {
        "joins_after_s": delays,
        "messages": len(stored),
        "lost": len(checker.lost(stored, history.events)),
        "overlaps": len(checker.overlapping(history.events)),
        "order_violations": len(checker.overtaken(history.events)),
        "most_repeats_of_a_hand_over": max((one.repeats for one in handed), default=0),
    }
    assert figures["lost"] == figures["order_violations"] == 0, figures
    assert figures["overlaps"] == 0, (checker.overlapping(history.events)[:5], figures)
    assert figures["most_repeats_of_a_hand_over"] <= BATCH, figures
    return figures
