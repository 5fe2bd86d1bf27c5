"""Stop the embedded broker, point Apache RocketMQ at its directory, and it carries on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rocketapp.wire.lenient_json import loads
from tests.peers import toolchain
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

Offsets = dict[int, dict[str, int | None]]
DONE, LEFT = 200, 300
"""Messages that the group has done before the move, and those that are left."""


def _wait_until_tables_are_written(embedded: Embedded, offsets: Offsets) -> None:
    """Every 5 s the broker writes committed offsets, as Apache's does, and the names that Apache is to read."""
    file, names = embedded.store / "config" / "consumerOffset.json", embedded.store / "config" / "topics.json"
    last = {str(queue): line["committed"] for queue, line in offsets.items()}

    def is_written() -> bool:
        try:
            has_offsets = loads(file.read_bytes())["offsetTable"].get("moving@mover") == last
            return has_offsets and {"moving", "delayed", "kept"} <= loads(names.read_bytes())["topicConfigTable"].keys()
        except FileNotFoundError:  # not there yet, or just being replaced
            return False

    wait_until(is_written, within=10, what="offsets and topics are in their files")


@pytest.mark.timeout(180)
def test_apache_carries_on_with_what_the_embedded_broker_left(peer: Peer, tmp_path: Path) -> None:
    # Most of it is waiting for Apache to start and for a delay to end: both endings wait at once.
    with ThreadPoolExecutor(2) as both:
        moves = [
            both.submit(_move, peer, tmp_path / ending, killed=ending == "killed") for ending in ("stopped", "killed")
        ]
    assert [move.result() for move in moves] == [["in half a minute"]] * 2


def _move(peer: Peer, directory: Path, *, killed: bool) -> list[str]:
    """Move once, with all checks; returns the delayed messages that Apache RocketMQ has in the end."""
    embedded = Embedded(directory / "embedded")
    try:
        offsets = _fill(JavaClient(peer, embedded.name_server), embedded, directory)
        if killed:
            _wait_until_tables_are_written(embedded, offsets)
            embedded.kill_broker()
    finally:
        embedded.stop()
    apache = Apache(directory / "apache", store=embedded.store, options=toolchain.BRIEF)
    try:
        java = JavaClient(peer, apache.name_server)
        _carry_on(java, directory, offsets)
        return texts(java.read("delayed"))
    finally:
        apache.stop()


def _fill(java: JavaClient, embedded: Embedded, directory: Path) -> Offsets:
    """Messages of which a group has done the first ones, and one that is delayed; returns the offsets of that group."""
    java.create_topic("moving", 4)
    java.create_topic("delayed", 2)
    java.create_topic("kept", 1)
    java.send("kept", {"text": "found by its key", "keys": ["order-17", "all"]})
    java.produce("moving", DONE, size=300, tag="TagA").wait(within=30)
    app = RunningApp(directory / "before", TAKE, embedded.name_server, "--exit-when-idle", "0.5")
    assert app.wait(within=30).handled == DONE
    java.produce("moving", LEFT, size=300, tag="TagA", prefix="late").wait(within=30)
    java.send("delayed", {"text": "in half a minute", "delay": 4, "keys": ["k"]})
    return java.offsets("moving", "mover")


def _carry_on(java: JavaClient, directory: Path, offsets: Offsets) -> None:
    """Everything is there, the group takes the exact rest, new messages follow, the delayed one comes."""
    assert java.offsets("moving", "mover") == offsets
    stored = java.read("moving")
    assert len(stored) == DONE + LEFT
    assert {message["tag"] for message in stored} == {"TagA"}
    found = java.admin("queryMsgByKey", "-t", "kept", "-k", "order-17").splitlines()
    assert [row.split()[1:3] for row in found if row and not row.startswith("#")] == [["0", "0"]]
    after = RunningApp(directory / "after", TAKE, java.name_server)
    try:
        after.wait_for_count(LEFT, within=30)
        assert sorted(text.rstrip() for text in after.texts()) == sorted(f"late {n}" for n in range(LEFT))
        java.send("moving", "written by Apache")
        after.wait_for_count(LEFT + 1, within=20)
        after.wait_for_count(1, "delayed", within=50)
        assert after.texts("delayed") == ["in half a minute"]
        after.stop()
    finally:
        after.discard()
    wait_until(lambda: java.lag("moving", "mover") == 0, within=5, what="offsets are committed")
