"""Topics whose first messages Apache's broker has deleted: where a group without offsets begins."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.test_offsets import take
from tests.peers import toolchain
from tests.peers.clusters import Apache
from tests.peers.java_client import JavaClient, Peer
from tests.peers.running_app import RunningApp
from tests.peers.waiting import wait_until

QUEUES, OLD = 2, 60


@pytest.fixture
def aged(tmp_path: Path) -> Iterator[Apache]:
    """A broker with small files, which can forget the first of them."""
    apache = Apache(tmp_path / "aged", conf=["mappedFileSizeCommitLog=1048576"], options=toolchain.BRIEF)
    yield apache
    apache.stop()


def test_a_new_group_begins_at_the_oldest_message_or_behind_the_last(aged: Apache, peer: Peer, tmp_path: Path) -> None:
    """As a Java member of a group of its own does."""
    java, topic = JavaClient(peer, aged.name_server), "old"
    java.create_topic(topic, QUEUES)
    body = random.Random(1).randbytes(50_000).hex()  # Java compresses it to its half
    java.send(topic, *({"text": f"{n} {body}", "queue": n % QUEUES} for n in range(OLD)))
    aged.forget_old_files()
    least = {queue: line["min"] or 0 for queue, line in java.offsets(topic).items()}
    assert all(0 < offset < OLD // QUEUES for offset in least.values()), java.offsets(topic)
    kept = {n for n in range(OLD) if n // QUEUES >= least[n % QUEUES]}

    def numbers(texts: list[str]) -> list[int]:
        return sorted(int(text.split(" ", 1)[0]) for text in texts)

    theirs = {start: java.consume(topic, f"java-{start}", **{"from": start}) for start in ("first", "last")}
    first, last = (
        RunningApp(tmp_path / start, take(topic, f"ours-{start}", f'"{start}"'), aged.name_server)
        for start in ("first", "last")
    )
    first.wait_for_count(len(kept))
    last.wait_for(lambda: last.events("started"), within=20, what="the group that takes the last began")
    wait_until(lambda: len(theirs["first"].bodies()) >= len(kept), within=30, what="Java has the kept ones", every=0.2)
    wait_until(lambda: java.offsets(topic, "java-last")[1]["committed"], within=30, what="Java began", every=0.2)
    java.send(topic, *({"text": f"{n}", "queue": n % QUEUES} for n in range(OLD, OLD + 4)))
    new, every = list(range(OLD, OLD + 4)), sorted(kept | set(range(OLD, OLD + 4)))
    first.wait_for_count(len(every))
    last.wait_for_count(len(new))
    for start, wanted in (("first", every), ("last", new)):
        found = theirs[start]
        wait_until(lambda: len(found.bodies()) >= len(wanted), within=30, what=f"Java has {wanted}", every=0.2)  # noqa: B023
        assert numbers(found.bodies()) == wanted
    assert (numbers(first.texts()), numbers(last.texts())) == (every, new)
    java.stop_consumers()
    first.stop()
    last.stop()
