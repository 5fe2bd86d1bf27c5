"""The administrators' commands against both brokers, beside the Java client and Apache's own tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import RunApp, on_apache
from tests.peers.clusters import Cluster
from tests.peers.commands import Commands
from tests.peers.java_client import JavaClient
from tests.peers.waiting import wait_until

TAKE = """
app = RocketApp("{group}")

@app.subscribe("{topic}", start="first", retries=0{options})
async def take(message: Message) -> None:
    note("seen", message)
    if message.text().startswith("bad"):
        raise ValueError("no " + message.text())
    note("done", message)

@app.on_startup
async def started() -> None:
    mark("started")
"""


def take(topic: str, group: str, options: str = "") -> str:
    """An app that refuses bodies which begin with `bad`."""
    return TAKE.replace("{group}", group).replace("{topic}", topic).replace("{options}", options)


@pytest.fixture
def rocketapp(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return Commands(cluster.name_server)


@on_apache
def test_a_topic_is_created_listed_and_shown(rocketapp: Commands, java: JavaClient, topic: str, group: str) -> None:
    rocketapp.run("topic", "create", topic, "--queues", "3")
    wait_until(lambda: topic in rocketapp.run("topic", "list").out, within=20, what="the topic is listed", every=0.2)
    (listed,) = [one for one in rocketapp.json("topic", "list") if one["topic"] == topic]
    assert [(one["broker"], one["read_queues"], one["writable"]) for one in listed["brokers"]] == [
        ("broker-a", 3, True)
    ]
    java.send(topic, *({"text": f"m{n}", "queue": 1} for n in range(4)))
    shown = rocketapp.json("topic", "show", topic)
    assert {one["queue_id"]: one["next_offset"] for one in shown["queues"]} == {0: 0, 1: 4, 2: 0}
    assert shown["messages"] == 4
    refused = rocketapp.run("topic", "create", topic, code=1)
    assert "is there already" in refused.err
    kinds = {one["topic"]: one["kind"] for one in rocketapp.json("topic", "list", "--all")}
    assert kinds["TBW102"] == kinds["broker-a"] == "system"


@on_apache
def test_a_group_is_shown_with_its_members_and_its_lag(
    rocketapp: Commands, java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 2)
    java.send(topic, *({"text": f"m{n}", "queue": n % 2} for n in range(6)))
    app = run_app(take(topic, group, ', tags="*"'))
    app.wait_for_count(6)
    shown = rocketapp.json("group", "show", group)
    subscriptions = {topic: "*", f"%RETRY%{group}": "*"}
    told = [(member["language"], member["subscriptions"]) for member in shown["members"]]
    assert told == [("PYTHON", subscriptions)]
    assert (shown["subscriptions"], shown["members_differ"]) == (subscriptions, False)
    other = java.consume(topic, group, tags="paid")
    wait_until(lambda: len(rocketapp.json("group", "show", group)["members"]) == 2, within=15, what="two", every=0.1)
    shown = rocketapp.json("group", "show", group)
    said = {member["language"]: (member["subscriptions"] or {}).get(topic) for member in shown["members"]}
    assert said == {"JAVA": "paid", "PYTHON": "*"}
    assert "the members subscribe differently" in rocketapp.run("group", "show", group).out
    other.stop()
    app.stop()
    java.send(topic, *({"text": f"n{n}", "queue": 1} for n in range(5)))
    wait_until(lambda: rocketapp.json("group", "show", group)["lag"] == 5, within=15, what="a lag of 5", every=0.1)
    shown = rocketapp.json("group", "show", group)
    assert shown["members"] == []
    assert {one["queue_id"]: one["lag"] for one in shown["queues"] if one["topic"] == topic} == {0: 0, 1: 5}
    (listed,) = [one for one in rocketapp.json("group", "list") if one["group"] == group]
    assert (listed["members"], listed["lag"]) == (0, 5)
    assert java.lag(topic, group) == 5
    rocketapp.run("group", "show", f"{group}-missing", code=1)


@on_apache
def test_a_message_is_found_by_the_brokers_id(rocketapp: Commands, java: JavaClient, topic: str) -> None:
    (sent,) = java.send(topic, {"text": "hello", "keys": ["k-1"], "tag": "paid"})
    (found,) = rocketapp.json("message", sent["offset_id"])
    assert (found["body"], found["tag"], found["keys"]) == ("hello", "paid", ["k-1"])
    assert found["stored_topic"] == topic
    rocketapp.run("message", sent["offset_id"][:-4] + "FFFF", "--topic", topic, code=1)


@on_apache
def test_a_message_is_found_by_the_producers_id_and_by_key(rocketapp: Commands, java: JavaClient, topic: str) -> None:
    sent = java.send(topic, {"text": "one", "keys": ["k-1"]}, {"text": "two", "keys": ["k-1", "k-2"]})
    wait_until(
        lambda: rocketapp.run("message", "--key", "k-1", "--topic", topic, code=None).out.count("KEYS=") == 2,
        within=10,
        what="both are in the index",
        every=0.3,
    )
    (found,) = rocketapp.json("message", sent[1]["id"])
    assert (found["body"], found["stored_topic"]) == ("two", topic)
    (found,) = rocketapp.json("message", "--key", "k-2", "--topic", topic)
    assert found["body"] == "two"


@on_apache
def test_an_offset_is_planned_reset_and_consumed_from(
    rocketapp: Commands, java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 2)
    java.send(topic, *({"text": f"m{n}", "queue": n % 2} for n in range(10)))
    app = run_app(take(topic, group), "--exit-when-idle", "0.5")
    assert app.wait(within=20).handled == 10
    planned = rocketapp.json("offset", "reset", group, topic, "--to", "2", "--dry-run")
    assert [(one["from"], one["to"]) for one in planned["queues"]] == [(5, 2), (5, 2)]
    shown = rocketapp.json("offset", "show", group, "--topic", topic)
    assert [(one["first_offset"], one["committed_offset"], one["next_offset"]) for one in shown] == [(0, 5, 5)] * 2
    rocketapp.run("offset", "reset", group, topic, "--to", "2")
    assert {line["committed"] for line in java.offsets(topic, group).values()} == {2}
    app = run_app(take(topic, group), "--exit-when-idle", "0.5")
    assert app.wait(within=20).handled == 6
    rocketapp.run("offset", "reset", group, topic, "--to", "last")
    rocketapp.run("offset", "reset", group, topic, "--to", "7", code=2)
    rocketapp.run("offset", "reset", group, topic, "--to", "2000-01-01T00:00+00:00")
    assert java.lag(topic, group) == 10


@on_apache
def test_a_live_group_is_moved_by_its_broker(
    rocketapp: Commands, java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 2)
    java.send(topic, *({"text": f"m{n}", "queue": n % 2} for n in range(10)))
    app = run_app(take(topic, group), environment={"ROCKETAPP_CONSUMER__LONG_POLL": "1"})
    app.wait_for_count(10)
    rocketapp.run("offset", "reset", group, topic, "--to", "first")
    assert len(app.wait_for_count(20, within=40)) == 20
    app.stop()
    assert java.lag(topic, group) == 0


MIXED = """
app = RocketApp("{group}", retries=0, start="first")

async def take(message: Message) -> None:
    if {fails}:
        raise ValueError("no " + message.text())
    note("done", message)

app.subscribe("{topic}")(take)
app.subscribe("{topic}-o", orderly=True)(take)
app.subscribe("{topic}-k", order_by=lambda message: message.text())(take)

@app.on_startup
async def started() -> None:
    mark("started")
"""


@on_apache
def test_dead_letters_of_a_group_that_holds_locks_are_taken_by_its_members(
    rocketapp: Commands, java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    for name in (topic, f"{topic}-o", f"{topic}-k"):
        java.create_topic(name, 2)
        java.send(name, *(f"{n} of {name}" for n in range(7)))
    source = MIXED.replace("{topic}", topic).replace("{group}", group)
    app = run_app(source.replace("{fails}", "True"), "--exit-when-idle", "0.5")
    assert app.wait(within=60).dead_lettered == 21
    app = run_app(source.replace("{fails}", 'message.text()[0] == "3"'))
    app.wait_for_count(1, "started")
    wait_until(lambda: rocketapp.json("group", "show", group)["members"], within=20, what="a member", every=0.2)
    done = rocketapp.json("dlq", "replay", group, "--rate", "0")
    assert (done["replayed"], done["left"], done["failed"], done["perhaps_twice"]) == (21, 0, 3, [])
    assert len(app.texts()) == len(set(app.texts())) == 18
    letters = rocketapp.json("dlq", "list", group)
    assert len(letters) == 24
    assert all(letter["reason"].startswith("ValueError: no ") for letter in letters)
    app.stop()


@on_apache
def test_dead_letters_are_listed_tried_and_replayed(
    rocketapp: Commands, java: JavaClient, run_app: RunApp, tmp_path: Path, topic: str, group: str
) -> None:
    java.create_topic(topic, 2)
    java.send(topic, *(f"bad {n}" for n in range(5)), "good")
    app = run_app(take(topic, group), "--exit-when-idle", "0.5")
    assert app.wait(within=20).dead_lettered == 5
    letters = rocketapp.json("dlq", "list", group)
    assert sorted(letter["body"] for letter in letters) == [f"bad {n}" for n in range(5)]
    assert {letter["published_in"] for letter in letters} == {topic}
    assert all(letter["reason"].startswith("ValueError: no bad") for letter in letters)
    assert {one["group"]: one["dead_letters"] for one in rocketapp.json("dlq", "list")}[group] == 5

    module = group.replace("-", "_")
    (tmp_path / f"{module}.py").write_text(f'''
from rocketapp import Message, RocketApp

app = RocketApp("{group}")

@app.subscribe("{topic}")
async def take(message: Message) -> None:
    await app.publish("{topic}-invoices", b"for " + message.body)
''')
    tried = rocketapp.run("dlq", "try", f"{module}:app", letters[0]["place"])
    assert tried.out.splitlines() == [
        f"{module}:take: done",
        f"would publish to {topic}-invoices: for {letters[0]['body']}",
    ]
    assert f"{topic}-invoices" not in rocketapp.run("topic", "list").out

    app = run_app(take(topic, group).replace('"bad"', '"worse"'))
    app.wait_for_count(1, "started")
    done = rocketapp.json("dlq", "replay", group, "--rate", "0")
    assert (done["replayed"], done["left"]) == (5, 0)
    app.wait_for_count(5, within=20)
    assert rocketapp.json("dlq", "replay", group)["replayed"] == 0
    assert app.stop().handled == 5
    assert sorted(app.texts()) == [f"bad {n}" for n in range(5)]
