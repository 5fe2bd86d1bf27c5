"""Several brokers under one name server, one of them dead or frozen: the others are consumed and published to."""

from __future__ import annotations

import asyncio
import json
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rocketapp import Client
from tests.faults import checker
from tests.faults.checker import Event
from tests.faults.hand_overs import longest_pause
from tests.faults.members import Members, pause
from tests.faults.scenarios import Figures, fresh_name
from tests.peers.bare import Bare
from tests.peers.clusters import Apache
from tests.peers.java_client import JavaClient, Load, Peer
from tests.peers.waiting import wait_until

PAUSE = 3.0
"""Longest time without a handled message, or without a commit, in a queue whose broker is well."""
BESIDE_FROZEN = 0.8
"""Least rate of one caller beside a frozen broker, of its rate while that broker is dead."""
_QUEUES = 4
_NAMES = ("broker-a", "broker-b", "broker-c")

_SOURCE = """
app = RocketApp("{group}")

@app.on_startup
async def joined() -> None:
    mark("joined")

@app.subscribe("{topic}", start="first"{options})
async def take(message: Message) -> None:
    number = int(message.body.split(b" ", 2)[1])
    mark("done", broker=message.queue.broker_name, queue=message.queue_id, offset=message.offset, number=number)
"""


class _Commits:
    """Asks every broker that is well, twice a second, how far the group committed each of its queues."""

    def __init__(self, brokers: dict[str, Apache], topic: str, group: str) -> None:
        self._brokers, self._topic, self._group = brokers, topic, group
        self.advanced: dict[tuple[str, int], list[float]] = {}
        self.sick: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="commits", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        last: dict[tuple[str, int], int] = {}
        while not self._over.wait(0.5):
            for name, broker in self._brokers.items():
                if name in self.sick:
                    continue
                try:
                    with Bare(broker.broker_address, timeout=1.0) as asking:
                        for queue in range(_QUEUES):
                            offset = asking.committed(self._topic, self._group, queue)
                            if offset > last.get((name, queue), -1):
                                last[name, queue] = offset
                                self.advanced.setdefault((name, queue), []).append(time.monotonic())
                except OSError:
                    continue

    def stop(self) -> None:
        self._over.set()
        self._thread.join(10)


def three_brokers(
    peer: Peer, directory: Path, *, seconds: float = 120.0, rate: int = 200, orderly: bool = False
) -> Figures:
    """One broker of three is killed, then another is frozen, for `seconds` each, under two members and load."""
    first = Apache(directory / _NAMES[0], heap="512m")
    brokers = {_NAMES[0]: first}
    members, loads, commits = None, list[Load](), None
    try:
        for name in _NAMES[1:]:
            brokers[name] = Apache(directory / name, heap="512m", name_server=first.name_server, broker_name=name)
        java, topic, group = JavaClient(peer, first.name_server), fresh_name("three"), fresh_name("group")
        java.create_topic(topic, _QUEUES)
        source = _SOURCE.replace("{topic}", topic).replace("{group}", group)
        source = source.replace("{options}", ", orderly=True" if orderly else "")
        members = Members(directory / "members", source, [first.name_server] * 2)
        for place in range(2):
            members.join(place)
        for place in range(2):
            members.wait_until_joined(place, within=30)
        for name in _NAMES:
            loads.append(
                java.produce(topic, 10**9, size=64, threads=1, rate=rate, broker=name, prefix=name, producer=name)
            )
        commits = _Commits(brokers, topic, group)
        pause(12)
        dead, frozen = brokers["broker-b"], brokers["broker-c"]
        outages = {
            "killed": _outage(dead, dead.kill_broker, dead.start_again, seconds, commits, members.log),
            "frozen": _outage(frozen, frozen.freeze, frozen.thaw, seconds, commits, members.log),
        }
        ends = _end(loads)
        assert all(end["stored"] for end in ends.values()), [end["first_problem"] for end in ends.values()]
        commits.stop()
        _await_all(members, ends)
        members.stop()
    finally:
        for load in loads:
            load.stop()
        if commits is not None:
            commits.stop()
        if members is not None:
            members.discard()
        for broker in reversed(brokers.values()):
            broker.stop()
    return _figures(members.log, ends, outages, commits.advanced, orderly=orderly)


class _Outage(NamedTuple):
    """A broker that was away, and the bounds of the time in which the others are judged."""

    name: str
    begin: float
    back: float
    """When the broker served again."""
    over: float
    """When messages of all its queues were handled again, and a little later."""


def _outage(
    broker: Apache, begin: Callable[[], None], end: Callable[[], None], seconds: float, commits: _Commits, log: Path
) -> _Outage:
    """Let a broker be away so long, and wait until its own queues are handled again."""
    name = broker.broker_name
    commits.sick.add(name)
    at = time.monotonic()
    begin()
    pause(seconds)
    end()
    back = time.monotonic()
    # The producer may need 30 s to learn of a broker that had been away.
    wait_until(
        lambda: len({line["queue"] for line in _done(log) if line["broker"] == name and line["at"] > back}) == _QUEUES,
        within=90,
        what=f"the queues of {name} are handled again",
        every=1.0,
    )
    over = time.monotonic()
    pause(10)
    commits.sick.discard(name)
    return _Outage(name, at, back, over)


def _end(loads: list[Load]) -> dict[str, dict[str, Any]]:
    for load in loads:
        load.stop()
    return {name: load.wait(within=60) for name, load in zip(_NAMES, loads, strict=True)}


def _await_all(members: Members, ends: dict[str, dict[str, Any]]) -> None:
    wanted = {(name, number) for name, end in ends.items() for number in end["stored"]}
    wait_until(
        lambda: wanted <= {(line["broker"], line["number"]) for line in _done(members.log)},
        within=90,
        what=members.describe,
        every=2.0,
    )


def _done(log: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.read_bytes().split(b"\n")[:-1]]
    return [line for line in lines if line["event"] == "done"]


def _figures(
    log: Path,
    ends: dict[str, dict[str, Any]],
    outages: dict[str, _Outage],
    advanced: dict[tuple[str, int], list[float]],
    *,
    orderly: bool,
) -> Figures:
    done, lost, repeated = _done(log), 0, 0
    times: dict[tuple[str, int], list[float]] = {}
    for line in done:
        times.setdefault((line["broker"], line["queue"]), []).append(line["at"])
    for name, end in ends.items():
        events = [
            Event("done", line["at"], line["pid"], line["queue"], line["offset"], line["number"])
            for line in done
            if line["broker"] == name
        ]
        lost += len(checker.lost(end["stored"], events))
        repeated += len(checker.repeated(events))
    figures: Figures = {"handlers": "orderly" if orderly else "async", "lost": lost, "repeated": repeated}
    for kind, outage in outages.items():
        well = [place for place in times if place[0] != outage.name]
        assert len(well) == 2 * _QUEUES, f"all queues of the others are consumed: {well}"
        consumed = (longest_pause(times[one], outage.begin, outage.over) for one in well)
        committed = (longest_pause(advanced.get(one, []), outage.begin, outage.over) for one in well)
        figures[f"{kind}_longest_pause_s"] = round(max(consumed), 1)
        figures[f"{kind}_longest_commit_pause_s"] = round(max(committed), 1)
        figures[f"{kind}_all_moves_after_s"] = round(outage.over - outage.back, 1)
    assert lost == 0, figures
    assert all(value <= PAUSE for key, value in figures.items() if key.endswith("pause_s")), figures
    return figures


def frozen_of_two(peer: Peer, directory: Path, *, rounds: int = 3, seconds: float = 30.0) -> Figures:
    """One caller publishes to two brokers of which one is frozen, then dead, in turns: its rate is the same.

    Each is told as a part of its rate to a topic of the other broker alone, between whose sends it sends: what else
    the machine does then slows both.
    """
    first = Apache(directory / _NAMES[0])
    brokers, alone, both = [first], fresh_name("alone"), fresh_name("both")
    try:
        java = JavaClient(peer, first.name_server)
        java.create_topic(alone, _QUEUES)
        other = Apache(directory / _NAMES[1], name_server=first.name_server, broker_name=_NAMES[1])
        brokers.append(other)
        java.create_topic(both, _QUEUES)
        frozen, dead, slowest = asyncio.run(_parts_of_rate(first.name_server, other, alone, both, rounds, seconds))
    finally:
        for broker in reversed(brokers):
            broker.stop()
    ratio = statistics.median(frozen) / statistics.median(dead)
    figures: Figures = {
        "frozen": [round(part, 2) for part in frozen],
        "dead": [round(part, 2) for part in dead],
        "ratio": round(ratio, 2),
        "slowest_send_s": round(slowest, 2),
    }
    assert ratio >= BESIDE_FROZEN, figures
    return figures


async def _parts_of_rate(
    name_server: str, other: Apache, alone: str, both: str, rounds: int, seconds: float
) -> tuple[list[float], list[float], float]:
    """Of each round, frozen and dead, the rate to `both` as a part of that to `alone`; seconds of the slowest send."""
    parts: tuple[list[float], list[float]] = ([], [])
    slowest, states = 0.0, ((other.freeze, other.thaw), (other.kill_broker, other.start_again))
    async with Client(name_server) as client:
        for _ in range(rounds):
            for part, (begin, end) in zip(parts, states, strict=True):
                await _reach(client, both, other.broker_name)
                await asyncio.to_thread(begin)
                spent, until = {alone: 0.0, both: 0.0}, time.monotonic() + seconds
                while time.monotonic() < until:
                    for topic in (alone, both):
                        at = time.monotonic()
                        await client.publish(topic, bytes(100))
                        took = time.monotonic() - at
                        spent[topic], slowest = spent[topic] + took, max(slowest, took)
                part.append(spent[alone] / spent[both])
                await asyncio.to_thread(end)
    return *parts, slowest


async def _reach(client: Client, topic: str, broker: str) -> None:
    """Publish until this broker, which is well again, is chosen again."""
    async with asyncio.timeout(90):
        while (await client.publish(topic, b"warm")).queue.broker_name != broker:
            pass
