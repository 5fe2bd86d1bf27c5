"""Every strategy gives what Java's class of that name gives, and groups of both kinds of members share by it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

from rocketapp.errors import AllocationError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation import (
    Allocation,
    Average,
    ByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    Nearby,
    sorted_members,
    sorted_queues,
)
from tests.conformance.test_rebalance import send_round, take
from tests.conftest import RunApp, on_apache
from tests.peers import toolchain
from tests.peers.java_client import JavaClient
from tests.peers.waiting import wait_until

CASES = 3000
QUEUES = 8
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
    properties = (*toolchain.BRIEF, "-Dfile.encoding=UTF-8")
    command = toolchain.java_command("Allocating", str(asked), str(answered), home=tmp_path, properties=properties)
    subprocess.run(command, check=True, timeout=300)
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


class Mixed:
    """A group of two members, ours and Java's, that share the queues of a topic."""

    def __init__(self, java: JavaClient, run_app: RunApp, topic: str, group: str, strategy: Allocation) -> None:
        self._java, self.group, self.strategy, self._topic = java, f"{group}-{strategy.name}", strategy, topic
        self.app = run_app(take(topic, self.group), environment={"ROCKETAPP_CONSUMER__ALLOCATION": strategy.name})
        self._consumer = java.consume(topic, self.group, allocation=strategy.name)

    def describe(self) -> str:
        return f"{self.group}: {self._java.members(self.group)}\n{self.app.describe()}"

    def members(self) -> list[str]:
        return sorted_members(self._java.members(self.group)["ids"])

    def wanted(self) -> tuple[set[int], set[int]]:
        """The queues of our member and of Java's."""
        queues = [MessageQueue(self._topic, "broker-a", number) for number in range(QUEUES)]
        theirs = self.strategy.allocate(self.group, self._consumer.client_id, queues, self.members())
        ids = {queue.queue_id for queue in theirs}
        return set(range(QUEUES)) - ids, ids

    def owners(self, name: str) -> tuple[set[int], set[int]]:
        """The queues whose message of this round each of the two has handled."""
        ours = {event["queue"] for event in self.app.events("done") if event["text"].startswith(name)}
        return ours, {one["queue"] for one in self._consumer.poll() if one["body"].decode().startswith(name)}


@on_apache
def test_in_a_group_with_java_every_queue_has_one_owner(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, QUEUES)
    groups = [Mixed(java, run_app, topic, group, strategy) for strategy in (ByCircle(), ConsistentHash(10))]
    rounds = 0

    def describe() -> str:
        return "\n".join(each.describe() for each in groups)

    def all_handled() -> bool:
        return all(sum(map(len, each.owners(f"probe{rounds} "))) >= QUEUES for each in groups)

    def shared() -> bool:
        nonlocal rounds
        rounds += 1
        send_round(java, topic, f"probe{rounds}", QUEUES)
        wait_until(all_handled, within=40, what=describe)
        return all(each.owners(f"probe{rounds} ") == each.wanted() for each in groups)

    wait_until(lambda: all(len(each.members()) == 2 for each in groups), within=30, what=describe, every=0.2)
    wait_until(shared, within=45, what=describe, every=0.5)
    assert [each.owners(f"probe{rounds} ") for each in groups] == [each.wanted() for each in groups]
    for each in groups:
        each.app.stop()
