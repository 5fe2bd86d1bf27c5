"""Messages that the broker hands out one by one."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketapp.clock import SystemClock
from rocketapp.wire.codes import RequestCode
from tests.peers.bare import Bare
from tests.peers.clusters import Cluster
from tests.peers.java_client import JavaClient, Peer
from tests.peers.running_app import RunningApp
from tests.peers.tap import Tap
from tests.peers.waiting import wait_until

INVISIBLE = 5
"""Seconds: the least that RocketMQ's clients allow."""
SETTINGS = {"ROCKETAPP_CONSUMER__POP_INVISIBLE_TIME": str(INVISIBLE)}
LATE = 12.0
"""Seconds that a message may come later than its time: the broker looks once in 1 to 4 s, a request is held for 1 s."""
BLOCKING = """
    app = RocketApp("{group}", mode="pop", start="first")

    @app.subscribe("{topic}-killed")
    async def hang(message: Message) -> None:
        note("begun", message)
        await asyncio.sleep(600)
"""
STORIES = """
    app = RocketApp("{group}", mode="pop", start="first")

    @app.subscribe("{topic}-plain", tags="a || b")
    async def plain(message: Message) -> None:
        note("done", message)

    @app.subscribe("{topic}-slow")
    async def slow(message: Message) -> None:
        note("begun", message)
        await asyncio.sleep(12)
        note("done", message)

    @app.subscribe("{topic}-failing", retries=2)
    def failing(message: Message) -> None:
        note("attempt", message)
        raise Retry(after=1)

    @app.subscribe("{topic}-killed")
    async def take_over(message: Message) -> None:
        note("done", message)
"""


class Stories(NamedTuple):
    """One app with all handlers, behind a tap."""

    cluster: Cluster
    app: RunningApp
    java: JavaClient
    tap: Tap
    topic: str
    group: str


@pytest.fixture(scope="module", params=["apache", "embedded"])
def stories(request: pytest.FixtureRequest, peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    cluster: Cluster = request.getfixturevalue(request.param)
    java = JavaClient(peer, cluster.name_server)
    topic, group = f"pop-{os.getpid()}", f"pop-group-{os.getpid()}"
    for name in ("plain", "slow", "failing", "killed"):
        java.create_topic(f"{topic}-{name}", 2)
    place = tmp_path_factory.mktemp("pop")
    killed = RunningApp(
        place / "killed", BLOCKING.format(topic=topic, group=group), cluster.name_server, environment=SETTINGS
    )
    java.send(f"{topic}-killed", "left")
    killed.wait_for_count(1, "begun")
    killed.kill()
    tap = Tap(cluster.name_server, cluster.broker_address)
    app = RunningApp(place / "app", STORIES.format(topic=topic, group=group), tap.door("ours"), environment=SETTINGS)
    java.send(f"{topic}-slow", "slow")
    java.send(f"{topic}-failing", {"text": "bad", "keys": ["k1"]})
    java.send(f"{topic}-plain", *({"text": f"{number}", "tag": "abc"[number % 3]} for number in range(60)))
    yield Stories(cluster, app, java, tap, topic, group)
    app.stop()
    tap.stop()


def test_each_message_of_the_tags_is_handled_once_and_no_queue_is_pulled(stories: Stories) -> None:
    done = stories.app.wait_for_count(40, "done", topic=f"{stories.topic}-plain")
    assert sorted(int(one["text"]) for one in done) == [number for number in range(60) if number % 3 < 2]
    assert {one["attempt"] for one in done} == {1}
    asked = stories.tap.asked
    pulled = {topic for _, code, topic in asked if code == RequestCode.PULL_MESSAGE}
    assert pulled <= {f"%RETRY%{stories.group}"}
    assert asked["ours", RequestCode.POP_MESSAGE, f"{stories.topic}-plain"] >= 2
    # What ended together is acknowledged together, a moment later.
    acknowledgements = ("ours", RequestCode.BATCH_ACK_MESSAGE, "")
    wait_until(lambda: asked[acknowledgements], within=20, what="an acknowledgement of several")
    assert asked[acknowledgements] <= 20
    assert asked["ours", RequestCode.SET_MESSAGE_REQUEST_MODE, ""] >= 1


def test_a_message_is_hidden_while_its_handler_runs_for_longer_than_its_time(stories: Stories) -> None:
    topic = f"{stories.topic}-slow"
    stories.app.wait_for_count(1, "done", topic=topic, within=40)
    assert len(stories.app.events("begun", topic=topic)) == 1
    assert stories.tap.asked["ours", RequestCode.CHANGE_MESSAGE_INVISIBLETIME, topic] >= 3


def test_a_message_that_fails_comes_again_in_time_and_ends_in_the_dead_letters(stories: Stories) -> None:
    attempts = stories.app.wait_for_count(3, "attempt", within=60)
    assert [one["attempt"] for one in attempts] == [1, 2, 3]
    gaps = [after["at"] - before["at"] for before, after in itertools.pairwise(attempts)]
    assert all(0.9 <= gap <= 1 + LATE for gap in gaps), gaps
    dead = wait_until(lambda: stories.java.dead_letters(stories.group), within=20, what="a dead letter")
    (letter,) = dead
    assert letter["body"] == b"bad"
    assert letter["properties"]["rocketapp.attempts"] == "3"
    assert letter["properties"]["RETRY_TOPIC"] == f"{stories.topic}-failing"


def test_what_a_killed_member_had_in_hand_comes_to_another_one(stories: Stories) -> None:
    (done,) = stories.app.wait_for_count(1, "done", topic=f"{stories.topic}-killed", within=60)
    assert (done["text"], done["attempt"]) == ("left", 2)


def test_an_answer_that_comes_while_its_member_stops_goes_to_another_one_as_its_first_attempt(
    stories: Stories, tmp_path: Path
) -> None:
    topic, group = f"{stories.topic}-late", f"{stories.group}-late"
    for name in (topic, f"{topic}-slow"):
        stories.java.create_topic(name, 1)
    source = f"""
        app = RocketApp("{group}", mode="pop", start="first")

        @app.subscribe("{topic}")
        async def take(message: Message) -> None:
            note("done", message)

        @app.subscribe("{topic}-slow")
        async def slow(message: Message) -> None:
            note("begun", message)
            await asyncio.Event().wait()
    """
    # Its requests are held for longer than the test waits: that takes a hidden time of twice as long.
    held = {"ROCKETAPP_CONSUMER__LONG_POLL": "60", "ROCKETAPP_CONSUMER__POP_INVISIBLE_TIME": "120"}
    leaving = RunningApp(tmp_path / "leaving", source, stories.cluster.name_server, environment=held)
    stories.java.send(f"{topic}-slow", "slow")
    leaving.wait_for_count(1, "begun")
    leaving.process.send_signal(signal.SIGTERM)
    leaving.wait_for(lambda: f"gave up {topic}@broker-a" in leaving.stderr, within=5, what="the topic was given back")
    stories.java.send(topic, "late")
    other = RunningApp(
        tmp_path / "other", source, stories.cluster.name_server, environment={"ROCKETAPP_CONSUMER__LONG_POLL": "1"}
    )
    (done,) = other.wait_for_count(1, within=LATE + 5)
    assert (done["text"], done["attempt"]) == ("late", 1)
    assert leaving.process.poll() is None and leaving.events("done") == []
    leaving.kill()
    other.stop()


def test_a_java_member_and_ours_share_one_queue(stories: Stories, tmp_path: Path) -> None:
    topic, group = f"{stories.topic}-shared", f"{stories.group}-shared"
    stories.java.create_topic(topic, 1)
    source = f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}", mode="pop", start="first")
        async def take(message: Message) -> None:
            note("done", message)
    """
    app = RunningApp(tmp_path / "ours", source, stories.cluster.name_server)
    stories.java.send(topic, "first")
    app.wait_for_count(1)
    theirs = stories.java.consume(topic, group, server_rebalance=True)
    sent = 0

    def both_take_part() -> bool:
        nonlocal sent
        stories.java.send(topic, *(f"{number}" for number in range(sent, sent + 20)))
        sent += 20
        return bool(theirs.bodies()) and len(app.events("done")) > 1

    wait_until(both_take_part, within=40, what="both members take part")

    def handled() -> list[str]:
        return sorted([*app.texts(), *theirs.bodies()])

    wait_until(lambda: len(handled()) >= sent + 1, within=40, what="every message is handled")
    assert handled() == sorted(["first", *map(str, range(sent))])
    theirs.stop()
    app.stop()


def test_a_java_member_that_was_told_so_by_an_operator_pops_and_gets_what_failed_again(stories: Stories) -> None:
    topic, group, java = f"{stories.topic}-java", f"{stories.group}-java", stories.java
    java.create_topic(topic, 2)
    java.admin("updateSubGroup", "-c", "DefaultCluster", "-g", group)
    java.admin("setConsumeMode", "-c", "DefaultCluster", "-t", topic, "-g", group, "-m", "POP", "-q", "0")
    member = java.consume(topic, group, server_rebalance=True, fail_first=1)
    java.send(topic, "a", "b")
    seen = wait_until(lambda: found if len(found := member.poll()) >= 4 else None, within=60, what="retries")
    assert sorted((one["body"].decode(), one["attempt"]) for one in seen) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    member.stop()


def test_who_asks_is_told_that_a_pop_would_find_something(cluster: Cluster, peer: Peer) -> None:
    java, topic = JavaClient(peer, cluster.name_server), f"looks-{os.getpid()}"
    java.create_topic(topic, 1)
    where = {"consumerGroup": f"{topic}-group", "topic": topic, "queueId": 0}
    with ThreadPoolExecutor(1) as pool, Bare(cluster.broker_address, timeout=20) as asking:
        told = asking.ask(RequestCode.NOTIFICATION, **where, pollTime=0, bornTime=0)
        assert (told.code, told.fields["hasMsg"], told.fields["pollingFull"]) == (0, "false", "false")
        with Bare(cluster.broker_address, timeout=20) as waiting:
            now_ms = int(SystemClock().now() * 1000)
            later = pool.submit(waiting.ask, RequestCode.NOTIFICATION, **where, pollTime=15_000, bornTime=now_ms)
            java.send(topic, "a", "b", "c")
            told = later.result()
        assert (told.code, told.fields["hasMsg"]) == (0, "true")
