"""Stop the embedded broker, point Apache RocketMQ at its directory, and it carries on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.clusters import Apache, Embedded
from tests.peers.java_client import JavaClient, Peer, texts
from tests.peers.running_app import RunningApp
from tests.peers.waiting import wait_until

TAKE = """
app = RocketApp("mover")

@app.subscribe("moving", start="first")
async def take(message: Message) -> None:
    note("done", message)

@app.subscribe("delayed", start="first")
async def take_delayed(message: Message) -> None:
    note("delayed", message)
"""


def _wait_until_offsets_are_written(embedded: Embedded) -> None:
    """Both brokers write committed offsets every 5 s: what a kill takes of them is handled again, on either."""
    file = embedded.store / "config" / "consumerOffset.json"
    wait_until(lambda: file.exists() and "moving@mover" in file.read_text(), within=10, what="offsets are on disk")


@pytest.mark.apache
@pytest.mark.parametrize("ending", ["stopped", "killed"])
@pytest.mark.timeout(180)
def test_apache_carries_on_with_what_the_embedded_broker_left(peer: Peer, tmp_path: Path, ending: str) -> None:
    embedded = Embedded(tmp_path / "embedded")
    try:
        java = JavaClient(peer, embedded.name_server)
        java.create_topic("moving", 4)
        java.create_topic("delayed", 2)
        java.produce("moving", 1000, size=300, tag="TagA").wait(within=30)
        app = RunningApp(tmp_path / "before", TAKE, embedded.name_server, "--exit-when-idle", "0.5")
        assert app.wait(within=30).handled == 1000
        java.produce("moving", 1500, size=300, tag="TagA", prefix="late").wait(within=30)
        java.send("delayed", {"text": "in half a minute", "delay": 4, "keys": ["k"]})
        offsets = java.offsets("moving", "mover")
        if ending == "killed":
            _wait_until_offsets_are_written(embedded)
            embedded.kill_broker()
    finally:
        embedded.stop()
    apache = Apache(tmp_path / "apache", store=embedded.store)
    try:
        java = JavaClient(peer, apache.name_server)
        assert java.offsets("moving", "mover") == offsets
        stored = java.read("moving")
        assert len(stored) == 2500
        assert {message["tag"] for message in stored} == {"TagA"}
        after = RunningApp(tmp_path / "after", TAKE, apache.name_server)
        after.wait_for_count(1500, within=30)
        assert sorted(text.rstrip() for text in after.texts()) == sorted(f"late {n}" for n in range(1500))
        java.send("moving", "written by Apache")
        after.wait_for_count(1501, within=20)
        after.wait_for_count(1, "delayed", within=50)
        assert after.texts("delayed") == ["in half a minute"]
        after.stop()
        wait_until(lambda: java.lag("moving", "mover") == 0, within=5, what="offsets are committed")
        assert texts(java.read("delayed")) == ["in half a minute"]
    finally:
        apache.stop()
