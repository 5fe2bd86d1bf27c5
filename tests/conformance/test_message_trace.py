"""Message trace: what Apache's admin tool and the Java client read of what we write, beside what Java writes."""

from __future__ import annotations

import json

from rocketapp.wire.trace import PubRecord
from tests.conftest import RunApp, on_apache
from tests.golden.traces import GOLDEN, RECORDS, SubAfterRecord, TraceRecord, asked, decode
from tests.peers.clusters import Cluster
from tests.peers.java_client import JavaClient, Peer
from tests.peers.waiting import wait_until

TRACED = {"ROCKETAPP_CLIENT__MESSAGE_TRACE": "true", "ROCKETAPP_CLIENT__TRACE_TOPIC": "traces"}

SOURCE = """
app = RocketApp("{group}")

@app.subscribe("{topic}", start="first")
async def take(message: Message) -> None:
    if message.text() == "bad" and message.attempt == 1:
        raise Retry(after=1)
    note("done", message)

@app.subscribe("{topic}-batch", batch=10, start="first")
def count(messages: list[Message]) -> None:
    note("batch", messages[0])

@app.on_startup
async def begin() -> None:
    for text in ("good", "bad"):
        sent = await app.publish("{topic}", text, tag="new", keys=["key-{topic}-" + text])
        mark("sent", text=sent.message_id)
    for sent in await app.publish_many("{topic}-batch", ["one", "two"]):
        mark("sent", text=sent.message_id)
"""


def traces(java: JavaClient, topic: str = "traces") -> list[TraceRecord]:
    return [record for message in java.read(topic) for record in decode(message["body"])]


def test_records_are_those_that_java_makes_and_reads(peer: Peer) -> None:
    made = peer.call("trace_encode", records=[asked(record) for record in RECORDS])
    assert made == json.loads(GOLDEN.read_text())
    read = peer.call("trace_decode", text="".join(record.encode() for record in RECORDS))
    assert [one["type"] for one in read] == [asked(record)["type"] for record in RECORDS]


@on_apache
def test_all_that_is_sent_and_handled_is_traced(
    cluster: Cluster, java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    for name in (topic, f"{topic}-batch", "traces"):
        java.create_topic(name, 2)
    app = run_app(SOURCE.format(topic=topic, group=group), environment=TRACED)
    app.wait_for_count(2, within=40)  # the second after a retry
    app.wait_for_count(1, "batch", within=20)
    app.stop()
    # What waits is written before the process ends.
    good, bad, one, two = app.texts("sent")
    found: list[TraceRecord] = []

    def are_there() -> bool:
        found[:] = [record for record in traces(java) if record.message_id in (good, bad, one, two)]
        return len(found) >= 14

    wait_until(are_there, within=20, what=lambda: f"all are traced: {found}")
    pubs = {record.message_id: record for record in found if isinstance(record, PubRecord)}
    assert pubs.keys() == {good, bad, one, two}
    assert (pubs[good].topic, pubs[good].group, pubs[good].tag) == (topic, group, "new")
    assert (pubs[good].keys, pubs[good].body_bytes, pubs[good].success) == (f"key-{topic}-good", 4, True)
    ends = sorted((record for record in found if isinstance(record, SubAfterRecord)), key=lambda record: record.at_ms)
    assert [record.code for record in ends if record.message_id == bad] == [4, 0]
    assert [record.success for record in ends if record.message_id == one] == [True]
    begun = {(record.message_id, record.request_id) for record in found if hasattr(record, "request_id")}
    assert len(begun) == 5


def test_the_admin_tool_shows_java_and_us_together(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    """Sent by Java, handled by both."""
    java.create_topic(topic, 1)
    source = SOURCE.format(topic=topic, group=group)
    app = run_app(source, environment={"ROCKETAPP_CLIENT__MESSAGE_TRACE": "true"})
    theirs = java.consume(topic, f"{group}-java", traced=True)
    (sent,) = java.send(topic, {"text": "theirs", "tag": "new"}, traced=True)
    wait_until(lambda: "theirs" in theirs.bodies() and "theirs" in app.texts("done"), within=40, what="both", every=0.2)
    ours = app.texts("sent")[0]

    def shown(message_id: str, *wanted: str) -> str | None:
        said = java.admin("queryMsgTraceById", "-i", message_id)
        return said if all(word in said for word in wanted) else None

    groups = (group, f"{group}-java", "peer_producer")
    wait_until(lambda: shown(sent["id"], *groups), within=30, what="what Java sent is shown", every=1.0)
    both = wait_until(lambda: shown(ours, f"{group}-java", f"{group} "), within=30, what="ours is shown", every=1.0)
    rows = [line.split() for line in both.splitlines() if line.startswith(("Pub", "Sub"))]
    assert sorted((row[0], row[1], row[-1]) for row in rows) == [
        ("Pub", group, "success"),
        ("Sub", group, "success"),
        ("Sub", f"{group}-java", "success"),
    ]


OTHER_WAYS = """
app = RocketApp("{group}")

@app.transaction("{topic}")
async def place(body: str) -> bool:
    return True

@place.check
async def placed(message: Message) -> bool:
    return True

@app.subscribe("{topic}", orderly=True, start="first")
async def take(message: Message) -> None:
    note("orderly", message)

@app.subscribe("{topic}-popped", mode="pop", start="first")
async def pop(message: Message) -> None:
    note("popped", message)

@app.on_startup
async def begin() -> None:
    await place("committed", tag="new")
    await app.publish("{topic}-popped", "popped")
    late = await app.publish("{topic}", "late", delay=60, recallable=True)
    await app.recall("{topic}", late.recall_handle or "")
    mark("recalled", text=late.message_id)
"""


@on_apache
def test_transactions_recalls_and_what_is_popped_or_orderly_are_shown(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    for name in (topic, f"{topic}-popped", f"{topic}-traces"):
        java.create_topic(name, 1)
    environment = {**TRACED, "ROCKETAPP_CLIENT__TRACE_TOPIC": f"{topic}-traces"}
    app = run_app(OTHER_WAYS.format(topic=topic, group=group), environment=environment)
    (orderly,) = app.wait_for_count(1, "orderly", within=40)
    (popped,) = app.wait_for_count(1, "popped", within=40)
    (recalled,) = app.texts("recalled")
    app.stop()

    def shown(message_id: str, rows: int) -> list[tuple[str, str, str]] | None:
        said = java.admin("queryMsgTraceById", "-i", message_id, "-t", f"{topic}-traces")
        found = [line.split() for line in said.splitlines() if line.startswith(("Pub", "Sub"))]
        return sorted((row[0], row[1], row[-1]) for row in found) if len(found) >= rows else None

    sent, handled = ("Pub", group, "success"), ("Sub", group, "success")
    for message_id, rows in ((orderly["id"], [sent, handled]), (popped["id"], [sent, handled]), (recalled, [sent])):
        what = f"{rows} of {message_id}"
        assert wait_until(lambda: shown(message_id, len(rows)), within=30, what=what, every=1.0) == rows  # noqa: B023
