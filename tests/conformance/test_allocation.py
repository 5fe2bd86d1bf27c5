"""Every strategy gives what Java's class of that name gives, and groups of both kinds of members share by it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rocketapp.errors import AllocationError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation.average import Average
from rocketapp.state.allocation.by_circle import ByCircle
from rocketapp.state.allocation.by_config import ByConfig
from rocketapp.state.allocation.consistent_hash import ConsistentHash
from rocketapp.state.allocation.machine_room import ByMachineRoom
from rocketapp.state.allocation.nearby import Nearby
from rocketapp.state.allocation.order import sorted_members, sorted_queues
from rocketapp.state.allocation.strategy import Allocation
from tests.conformance.test_rebalance import send_round, take
from tests.conftest import RunApp
from tests.peers import toolchain
from tests.peers.java_client import JavaClient
from tests.peers.waiting import wait_until

CASES = 6000
_INNER = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")
STRATEGIES = (*_INNER, "CONFIG", "MACHINE_ROOM", *(f"MACHINE_ROOM_NEARBY-{name}" for name in _INNER))
_TOPICS = ("orders", "%RETRY%shop", "訂單", "")
_BROKERS = (
    "broker-a",
    "broker-b",
    "r1@b",
    "r2@b",
    "r2@c",
    "r1@b@",
    "r1@@",
    "@b",
    "r1",
    "ré@😀",
    "\uff21@b",
    "r1@b@c",
    "",
)
_MEMBERS = ("r1@1#1", "r2@2#2", "r1@3#3", "ré@4#4", "10.0.0.5@5#5", "😀", "\uff21", "@6", "a", "aa", "")


def _case(random: Random) -> dict[str, Any]:
    # Mostly names that a cluster has: what throws is one case of many.
    brokers, members = (_BROKERS[:5], _MEMBERS[:5]) if random.random() < 0.7 else (_BROKERS, _MEMBERS)
    topic = random.choice(_TOPICS)
    queues = [MessageQueue(topic, random.choice(brokers), random.randrange(40)) for _ in range(random.randrange(0, 40))]
    many = [f"r{number % 3}@10.0.0.{number}#{random.randrange(10**9)}" for number in range(random.randrange(1, 12))]
    there = random.choice([many, random.choices(members, k=random.randrange(0, 6))])
    sort = random.random() < 0.9  # duplicates are left in: what is sorted out before is not the strategy's
    return {
        "strategy": random.choice(STRATEGIES),
        "me": random.choice([*there, *there, random.choice(members)]),
        "queues": sorted_queues(queues) if sort else queues,
        "members": sorted_members(there) if sort else there,
        "rooms": random.sample(["r1", "r2", "", "ré", "none"], random.randrange(0, 5)),
        "nodes": random.choice([0, 1, 10, 10, 10, 100]),
        "list": queues[: random.randrange(0, 4)],
    }


def _room(name: str) -> str:
    return name.partition("@")[0]


def _strategy(name: str, case: dict[str, Any]) -> Allocation:
    if name.startswith("MACHINE_ROOM_NEARBY-"):
        return Nearby(_strategy(name.removeprefix("MACHINE_ROOM_NEARBY-"), case), _room, _room)
    made: dict[str, Allocation] = {
        "AVG": Average(),
        "AVG_BY_CIRCLE": ByCircle(),
        "CONSISTENT_HASH": ConsistentHash(case["nodes"]),
        "CONFIG": ByConfig(tuple(case["list"])),
        "MACHINE_ROOM": ByMachineRoom(frozenset(case["rooms"])),
    }
    return made[name]


def _ours(case: dict[str, Any]) -> dict[str, Any]:
    strategy = _strategy(case["strategy"], case)
    try:
        mine = strategy.allocate("g", case["me"], case["queues"], case["members"])
    except AllocationError as error:
        return {"name": strategy.name, "error": error.problem}
    return {"name": strategy.name, "queues": [list(queue) for queue in mine]}


def test_ours_answer_as_javas_for_thousands_of_groups(java_classes: Path, tmp_path: Path) -> None:
    random = Random(20260131)
    cases = [_case(random) for _ in range(CASES)]
    asked, answered = tmp_path / "cases.json", tmp_path / "answers.json"
    asked.write_text(json.dumps(cases), encoding="utf-8")
    # Java's hash takes the bytes of its default encoding.
    command = toolchain.java_command(
        "Allocating", str(asked), str(answered), home=tmp_path, properties=("-Dfile.encoding=UTF-8",)
    )
    subprocess.run(command, check=True, timeout=120)
    theirs = json.loads(answered.read_text(encoding="utf-8"))
    differ = [
        (case, ours, java) for case, ours, java in zip(cases, map(_ours, cases), theirs, strict=True) if ours != java
    ]
    assert differ[:1] == []
    assert {java["name"] for java in theirs} == set(STRATEGIES)
    assert sum(bool(java.get("queues")) for java in theirs) > CASES / 4
    assert {java["error"].partition(" for ")[0] for java in theirs if "error" in java} == {
        "currentCID is empty",
        "mqAll is null or mqAll empty",
        "cidAll is null or cidAll empty",
        "Machine room is null",
    }


@pytest.mark.parametrize("strategy", [ByCircle(), ConsistentHash()], ids=lambda strategy: strategy.name)
@pytest.mark.parametrize("cluster", ["apache"], indirect=True)
def test_in_a_group_with_java_every_queue_has_one_owner(
    java: JavaClient, run_app: RunApp, topic: str, group: str, strategy: Allocation
) -> None:
    java.create_topic(topic, 8)
    chosen = {"ROCKETAPP_CONSUMER__ALLOCATION": strategy.name}
    apps = [run_app(take(topic, group), environment=chosen) for _ in range(2)]
    consumer = java.consume(topic, group, allocation=strategy.name)

    def who() -> list[str]:
        return sorted(java.members(group)["ids"])

    wait_until(
        lambda: len(who()) == 3, within=45, what=lambda: f"three members, not {who()}\n{apps[0].describe()}", every=0.2
    )
    members = sorted_members(who())
    queues = [MessageQueue(topic, "broker-a", number) for number in range(8)]
    shares = {
        member: {queue.queue_id for queue in strategy.allocate(group, member, queues, members)} for member in members
    }
    rounds = 0
    taken: dict[str, set[int]] = {}

    def look() -> int:
        """Which queues of the round each member has handled; how many they are together."""
        name = f"probe{rounds} "
        taken["java"] = {one["queue"] for one in consumer.poll() if one["body"].decode().startswith(name)}
        for number, app in enumerate(apps):
            taken[f"app{number}"] = {event["queue"] for event in app.events("done") if event["text"].startswith(name)}
        return sum(map(len, taken.values()))

    def shared() -> bool:
        nonlocal rounds
        rounds += 1
        send_round(java, topic, f"probe{rounds}", 8)
        wait_until(
            lambda: look() >= 8, within=40, what=lambda: f"each message is handled: {taken}, and wanted is {shares}"
        )
        ours = [taken["app0"], taken["app1"]]
        return taken["java"] == shares[consumer.client_id] and all(queues in shares.values() for queues in ours)

    wait_until(shared, within=45, what=lambda: f"each has its share of {shares}, not {taken}", every=0.5)
    assert sum(map(len, taken.values())) == 8
    for app in apps:
        app.stop()
        assert f"queues are shared by {strategy.name} " in app.stderr
