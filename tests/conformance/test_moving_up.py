"""Stop the embedded broker, point Apache RocketMQ at its directory, and it carries on; and the other way back."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.model.pulled import Acks, Handle
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.lenient_json import loads
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests.pop import AckRequest, PopRequest, PopResponse, encode_acks, handle_in, pop_retry_topic
from tests.peers import toolchain
from tests.peers.bare import Bare
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


HIDDEN = 15
"""Seconds for which what is popped before a hand-over is hidden."""


class Popping:
    """A member in bare requests, which tells by itself what it acknowledges."""

    def __init__(self, address: str, topic: str) -> None:
        self._bare, self._topic, self._group = Bare(address, timeout=20), topic, f"{topic}-group"
        self.taken: dict[str, Handle] = {}
        """By text the last handle of each message."""
        self.attempts: dict[str, int] = {}

    def pop(self, count: int = 32) -> list[str]:
        request = PopRequest(self._group, self._topic, -1, count, HIDDEN * 1000, 1000)
        answer = self._bare.ask(RequestCode.POP_MESSAGE, **request.to_fields())
        if answer.code:
            assert answer.code == 210, answer
            return []
        where, texts = PopResponse.from_fields(dict(answer.fields)), []
        for message in decode_records(answer.body, None):
            times = where.starts.get((0, 0), 0), where.popped_ms, where.invisible_ms, where.revive_queue
            own = handle_in(message.raw_properties) or Handle(*times, 0, "broker-a", 0, message.offset)
            texts.append(message.text())
            self.taken[message.text()], self.attempts[message.text()] = own, message.attempt
        return texts

    def ack(self, text: str) -> None:
        handle = self.taken[text]
        request = AckRequest(self._group, pop_retry_topic(self._group, self._topic, handle.kind), handle)
        assert self._bare.ask(RequestCode.ACK_MESSAGE, **request.to_fields()).code == 0

    def ack_all(self, texts: Sequence[str]) -> None:
        acks = [Acks(self.taken[text], [self.taken[text].offset]) for text in texts]
        body = encode_acks(self._group, self._topic, "broker-a", acks)
        assert self._bare.ask(RequestCode.BATCH_ACK_MESSAGE, body).code == 0

    def hide(self, text: str, seconds: int) -> None:
        request = AckRequest(self._group, self._topic, self.taken[text], seconds * 1000)
        assert self._bare.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **request.to_fields()).code == 0

    def pop_until(self, *wanted: str, done: str = "") -> list[str]:
        """Everything that comes until these have come. `done` are acknowledged."""
        found: list[str] = []

        def are_there() -> bool:
            several = self.pop()
            found.extend(several)
            for text in several:
                if text in done:
                    self.ack(text)
            return set(wanted) <= set(found)

        wait_until(are_there, within=90, what=f"{wanted} come again")
        return sorted(found)

    def goes_on(self, address: str) -> None:
        """The same member at another broker."""
        self._bare.close()
        self._bare = Bare(address, timeout=20)

    def close(self) -> None:
        self._bare.close()


def _wait_until_tables_are_written(store: Path, offsets: dict[str, dict[int, int | None]]) -> None:
    """Every 5 s a broker writes committed offsets, and the names of topics. A killed Apache RocketMQ hands out again
    what it has handed out since then.

    `offsets`: by topic and group, and then by queue.
    """
    file, names = store / "config" / "consumerOffset.json", store / "config" / "topics.json"

    def is_written() -> bool:
        try:
            tables, known = loads(file.read_bytes())["offsetTable"], loads(names.read_bytes())["topicConfigTable"]
        except (FileNotFoundError, ProtocolError):  # not there yet, or just being replaced
            return False
        written = {name: {int(queue): offset for queue, offset in table.items()} for name, table in tables.items()}
        return {"moving", "delayed", "kept", "handed"} <= known.keys() and offsets.items() <= written.items()

    wait_until(is_written, within=15, what="offsets and topics are in their files")


@pytest.mark.timeout(240)
def test_apache_carries_on_with_what_the_embedded_broker_left_and_hands_it_back(peer: Peer, tmp_path: Path) -> None:
    """What was popped and is not acknowledged is handed out again there as here, and nothing else."""
    # Most of it is waiting, for Apache to start and for times to be over: both endings wait at once.
    with ThreadPoolExecutor(2) as both:
        moves = [both.submit(_move, peer, tmp_path / ending) for ending in ("stopped", "killed")]
    assert [move.result() for move in moves] == [(["in half a minute"], ["e", "f"], ["e", "h"])] * 2


def _move(peer: Peer, directory: Path) -> tuple[list[str], list[str], list[str]]:
    """There and back, with all checks; returns the delayed messages that Apache RocketMQ has in the end, and what each
    of the two brokers hands out that gets the directory.
    """
    embedded = Embedded(directory / "embedded")
    member = Popping(embedded.broker_address, "handed")
    try:
        java = JavaClient(peer, embedded.name_server)
        offsets = _fill(java, embedded, directory)
        java.create_topic("handed", 1)
        java.send("handed", *"abcdef")
        assert sorted(member.pop(5)) == [*"abcde"]
        member.ack("a")
        member.ack_all(["b"])
        member.hide("c", 3600)
        member.hide("d", 240)
        if directory.name == "killed":
            moved = {queue: line["committed"] for queue, line in offsets.items()}
            _wait_until_tables_are_written(embedded.store, {"moving@mover": moved, "handed@handed-group": {0: 5}})
            embedded.kill_broker()
        embedded.stop()
        delayed, at_apache = _at_apache(peer, directory, member, offsets)
        embedded.start_again()
        member.goes_on(embedded.broker_address)
        back_here = member.pop_until("e", "h")
        # Counted on, and not begun anew; on a slow machine a time may be over once more.
        assert member.attempts["e"] >= 3
        assert member.attempts["h"] >= 2
        return delayed, at_apache, back_here
    finally:
        member.close()
        embedded.stop()


def _at_apache(peer: Peer, directory: Path, member: Popping, offsets: Offsets) -> tuple[list[str], list[str]]:
    store = directory / "embedded" / "data"
    apache = Apache(directory / "apache", store=store, options=toolchain.BRIEF)
    try:
        java = JavaClient(peer, apache.name_server)
        member.goes_on(apache.broker_address)
        member.ack("d")
        found = member.pop_until("e", "f", done="f")
        assert member.attempts["e"] == 2
        java.send("handed", *"gh")
        member.pop_until("g", "h", done="g")
        _carry_on(java, directory, offsets)
        _wait_until_tables_are_written(store, {"handed@handed-group": {0: 8}})
        return texts(java.read("delayed")), found
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
