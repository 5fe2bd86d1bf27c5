"""A broadcast group: every member gets every message, ours and Java's, and each goes on where it was."""

from __future__ import annotations

from tests.conftest import RunApp, on_apache
from tests.peers.clusters import Cluster
from tests.peers.commands import Commands
from tests.peers.java_client import JavaClient

APP = """
app = RocketApp("{group}")

@app.subscribe("{topic}", broadcast=True, start="{start}"{options})
async def take(message: Message) -> None:
    note("tried", message)
    if message.text() == "bad":
        raise ValueError("no")
    note("done", message)
"""


def app_of(topic: str, group: str, options: str = "", *, start: str = "first") -> str:
    source = APP.replace("{topic}", topic).replace("{group}", group)
    return source.replace("{start}", start).replace("{options}", options)


def numbered(name: str, count: int = 40) -> list[str]:
    return [f"{name} {number}" for number in range(count)]


def test_members_of_both_clients_get_everything_also_one_that_comes_late(
    cluster: Cluster, java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 4)
    java.send(topic, *numbered("early"))
    first = run_app(app_of(topic, group))
    member = java.consume(topic, group, broadcast=True)
    first.wait_for_count(40)
    late = run_app(app_of(topic, group))
    late.wait_for_count(40)
    java.send(topic, *numbered("then"))
    wanted = sorted(numbered("early") + numbered("then"))
    for app in (first, late):
        app.wait_for_count(80)
    first.wait_for(lambda: len(member.bodies()) >= 80, within=20, what="Java's member has everything")
    assert sorted(member.bodies()) == wanted
    shown = Commands(cluster.name_server).json("group", "show", group)
    assert (len(shown["members"]), shown["lag"], shown["queues"]) == (3, None, [])
    for app in (first, late):
        assert app.stop() == (80, 0, 0, 0)
        assert sorted(app.texts()) == wanted
    # Nothing is kept at the broker, where the offsets of all members would be one.
    assert all(line["committed"] in (None, 0) for line in java.offsets(topic, group).values())


@on_apache
def test_a_member_goes_on_where_it_was_when_the_same_group_starts_again(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 4)
    java.send(topic, *numbered("before"))
    app = run_app(app_of(topic, group), "--exit-when-idle", "1")
    assert app.wait(within=30) == (40, 0, 0, 0)
    java.send(topic, *numbered("while it is away"))
    app.start()
    assert app.wait(within=30) == (40, 0, 0, 0)
    assert sorted(app.texts()) == sorted(numbered("before") + numbered("while it is away"))


@on_apache
def test_queues_that_are_added_while_a_member_is_away_lose_nothing(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 2)
    app = run_app(app_of(topic, group, start="last"), "--exit-when-idle", "0.5")
    assert app.wait(within=30) == (0, 0, 0, 0)
    java.create_topic(topic, 4)
    java.send(topic, *({"text": text, "queue": number % 4} for number, text in enumerate(numbered("away", 8))))
    app.start()
    assert app.wait(within=30) == (8, 0, 0, 0)
    assert sorted(app.texts()) == numbered("away", 8)


@on_apache
def test_every_worker_is_a_member_and_keeps_its_own_offsets(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 4)
    java.send(topic, *numbered("one"))
    app = run_app(app_of(topic, group), "--workers", "2", "--exit-when-idle", "1")
    assert app.wait(within=30) == (80, 0, 0, 0)
    assert sorted(app.texts()) == sorted(numbered("one") * 2)
    app.start()
    assert app.wait(within=30) == (0, 0, 0, 0)


@on_apache
def test_a_failed_message_is_dropped_and_the_last_line_says_how_many(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.send(topic, "good", "bad", "better")
    app = run_app(app_of(topic, group), "--exit-when-idle", "1")
    assert app.wait(within=30) == (2, 0, 0, 0)
    assert app.last_line == "handled=2 retried=0 dead_lettered=0 unmatched=0 dropped=1"
    assert app.texts("tried").count("bad") == 1
    assert app.stderr.count("dropped by broadcast group") == 1
    assert java.dead_letters(group) == []


@on_apache
def test_broadcast_in_order_needs_no_lock(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 1)
    java.send(topic, *numbered("ordered"))
    apps = [run_app(app_of(topic, group, ", orderly=True")) for _ in range(2)]
    for app in apps:
        app.wait_for_count(40)
    for app in apps:
        app.stop()
        assert app.texts() == numbered("ordered")
