"""A changed subscription is rolled out: members that subscribe differently, on both brokers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import RunApp, on_apache
from tests.peers.clusters import Cluster
from tests.peers.commands import Commands
from tests.peers.java_client import JavaClient
from tests.peers.waiting import wait_until

_APP = """
app = RocketApp("{group}")

@app.subscribe("{topic}", tags="{tags}", start="first"{options})
async def take(message: Message) -> None:
    note("done", message)

@app.on_startup
async def started() -> None:
    mark("started")
"""


def app_of(topic: str, group: str, tags: str, options: str = "") -> str:
    named = {"{topic}": topic, "{group}": group, "{tags}": tags, "{options}": options}
    source = _APP
    for name, value in named.items():
        source = source.replace(name, value)
    return source


def everywhere(tags: str, queues: int = 4) -> list[dict[str, object]]:
    """A message of each tag for each queue."""
    return [{"text": f"{tag}{queue}", "tag": tag, "queue": queue} for queue in range(queues) for tag in tags]


@on_apache
@pytest.mark.parametrize("options", ["", ", orderly=True"], ids=["concurrent", "orderly"])
def test_old_and_new_members_take_what_they_want_from_the_queues_of_each_other(
    java: JavaClient, run_app: RunApp, topic: str, group: str, options: str
) -> None:
    java.create_topic(topic, 4)
    old = run_app(app_of(topic, group, "a || b", options))
    old.wait_for_count(1, "started")
    new = run_app(app_of(topic, group, "b || c", options))
    new.wait_for_count(1, "started")
    java.send(topic, *everywhere("abc"))
    old.wait_for(
        lambda: {tag for tag in old.texts() if tag[0] == "a"} == {f"a{n}" for n in range(4)}, within=20, what="a"
    )
    new.wait_for(
        lambda: {tag for tag in new.texts() if tag[0] == "c"} == {f"c{n}" for n in range(4)}, within=20, what="c"
    )
    counts = [app.stop() for app in (old, new)]
    assert [one.unmatched for one in counts] == [0, 0]
    assert sum(one.handled for one in counts) == 12
    assert java.lag(topic, group) == 0


@on_apache
def test_a_java_member_is_handed_what_only_it_wants(
    java: JavaClient,
    run_app: RunApp,
    topic: str,
    group: str,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    java.create_topic(topic, 4)
    consumer = java.consume(topic, group, tags="a || b")
    wait_until(lambda: java.members(group)["ids"], within=20, what="Java is a member", every=0.2)
    source = app_of(topic, group, "b || c")
    monkeypatch.delitem(sys.modules, "changed", raising=False)
    (tmp_path / "changed.py").write_text(
        "from rocketapp import Message, RocketApp\n" + source.partition("@app.on_startup")[0]
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    said = Commands(cluster.name_server).run("check", "changed", code=1).out
    assert consumer.client_id in said
    new = run_app(source)
    new.wait_for(
        lambda: f"{consumer.client_id} cannot pull more of {topic} than it wants" in new.stderr,
        within=20,
        what="Java is named",
    )
    new.wait_for(lambda: len(java.members(group)["ids"]) == 2, within=20, what="both are members")
    java.send(topic, *everywhere("ab"))
    wait_until(
        lambda: {f"a{n}" for n in range(4)} <= set(consumer.bodies()),
        within=45,
        what=lambda: f"Java has all it wants: {consumer.bodies()} {new.texts()}\n{new.stderr[-2000:]}",
        every=0.3,
    )
    new.stop()
