"""A store with much in it goes from the embedded broker to Apache RocketMQ and back: what each of them serves of it."""

from __future__ import annotations

import hashlib
import os
import signal
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from rocketapp.wire.codes import RequestCode
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests.messages import QueryRequest
from rocketapp.wire.requests.offsets import CommitRequest
from rocketapp.wire.requests.pull import FLAG_SUBSCRIPTION, PullRequest
from tests.faults.scenarios import Figures
from tests.peers import toolchain
from tests.peers.bare import Bare
from tests.peers.clusters import Apache, Embedded
from tests.peers.java_client import JavaClient, Peer, texts
from tests.peers.loading import Loader, Sent
from tests.peers.waiting import wait_until

QUEUES, GROUPS = 4, {"quick": 0.9, "slow": 0.3}
"""Of the topic; and what part of each queue these groups have done."""
_TOPIC, _LATE, _OPEN, _MINUTE = "moving", "late", "decided", 5


class Seen(NamedTuple):
    """What a broker serves."""

    bodies: dict[tuple[int, int], bytes]
    """The digest of each by queue and offset."""
    committed: dict[tuple[str, int], int]
    found: dict[str, list[tuple[int, int]]]
    """Places of messages by key."""


def _seen(address: str, keys: list[str]) -> Seen:
    bodies: dict[tuple[int, int], bytes] = {}
    with Bare(address, timeout=30.0) as asking:
        for queue_id in range(QUEUES):
            offset = 0
            while True:
                pull = PullRequest("reader", _TOPIC, queue_id, offset, 1024, FLAG_SUBSCRIPTION, expression="*")
                answer = asking.ask(RequestCode.PULL_MESSAGE, **pull.to_fields())
                if answer.code:
                    break
                for message in decode_records(answer.body, None):
                    bodies[queue_id, message.offset] = hashlib.sha256(message.body).digest()
                offset = int(answer.fields["nextBeginOffset"])
        committed = {
            (group, queue_id): asking.committed(_TOPIC, group, queue_id)
            for group in GROUPS
            for queue_id in range(QUEUES)
        }
        found = {}
        for key in keys:
            answer = asking.ask(RequestCode.QUERY_MESSAGE, **QueryRequest(_TOPIC, key).to_fields())
            found[key] = sorted((each.queue_id, each.offset) for each in decode_records(answer.body, None))
    return Seen(bodies, committed, found)


def _leave_open(java: JavaClient, prefix: str, count: int, group: str) -> list[str]:
    """Delayed messages, and half messages whose producer does not know yet."""
    bodies = [f"{prefix}-{number}" for number in range(count)]
    for body in bodies[:10]:
        java.transaction(_OPEN, body, group=group, local="unknown")
    java.send(_LATE, *({"text": body, "delay": _MINUTE} for body in bodies))
    return bodies


def _decided(java: JavaClient, group: str, expected: list[str]) -> None:
    """What was left open is checked, and everything comes once."""
    java.join_transactions(_OPEN, group=group, check="commit")
    halves = [body for body in expected if int(body.partition("-")[2]) < 10]
    for topic, bodies in ((_LATE, expected), (_OPEN, halves)):
        wait_until(lambda topic=topic, bodies=bodies: len(java.read(topic)) >= len(bodies), within=180, what=topic)  # type: ignore[misc]
        came, wanted = Counter(texts(java.read(topic))), Counter(bodies)
        assert came == wanted, f"{topic}: missing {wanted - came}, too often {came - wanted}"


def _end(pid: int) -> None:
    """End it politely: a kill would have it deliver once more what it delivered last."""
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), within=60, what="the broker has ended")


def changing_hands(directory: Path, count: int, *, late: int = 100) -> Figures:
    """Each part has a JVM of its own, so that none answers for the half messages of another."""
    peers = [Peer(directory / f"java{number}") for number in range(3)]
    embedded = Embedded(directory / "embedded")
    keys = [f"key{number}" for number in range(0, count, max(count // 50, 1))]
    try:
        java, loader = JavaClient(peers[0], embedded.name_server), Loader(embedded.broker_address)
        for topic in (_TOPIC, _LATE, _OPEN):
            java.create_topic(topic, QUEUES)
        for queue_id in range(QUEUES):
            messages = (Sent(b"%d " % n + bytes(n % 700), keys=f"key{n}") for n in range(queue_id, count, QUEUES))
            loader.send(_TOPIC, queue_id, messages)
        with Bare(embedded.broker_address) as asking:
            for group, part in GROUPS.items():
                for queue_id in range(QUEUES):
                    commit = CommitRequest(group, _TOPIC, queue_id, int(count // QUEUES * part) + queue_id)
                    asking.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **commit.to_fields())
        expected = _leave_open(java, "ours", late, "deciders")
        before = _seen(embedded.broker_address, keys)
    finally:
        peers[0].stop()
        embedded.stop()
    assert len(before.bodies) == count
    assert all(before.found.values())
    apache = Apache(directory / "apache", store=embedded.store, options=toolchain.BRIEF)
    try:
        java = JavaClient(peers[1], apache.name_server)
        there = _seen(apache.broker_address, keys)
        _decided(java, "deciders", expected)
        expected += _leave_open(java, "theirs", late, "others")
        java.stop()
        _end(apache.broker_pid)
    finally:
        peers[1].stop()
        apache.stop()
    assert there == before
    embedded.start_again()
    try:
        java = JavaClient(peers[2], embedded.name_server)
        back = _seen(embedded.broker_address, keys)
        _decided(java, "others", expected)
    finally:
        peers[2].stop()
        embedded.stop()
    assert back == before
    return {
        "messages": count,
        "groups": len(GROUPS),
        "keys": len(keys),
        "delayed_each_way": late,
        "open_halves_each_way": 10,
        "differences": 0,
    }
