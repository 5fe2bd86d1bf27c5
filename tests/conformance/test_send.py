"""What is sent by one side arrives unchanged on the other: bodies, tags, keys, properties."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

from tests.conftest import RunApp, on_apache
from tests.peers.java_client import JavaClient

BODIES = {
    "blanks": b"   ",
    "chinese": "你好，世界".encode(),
    "emoji": "🚀🎉 done".encode(),
    "newlines": b"a\r\nb\x00c\x01d\x02",
    "noise": random.Random(7).randbytes(10_000),
    "compressible": b"abc" * 20_000,
    # Java compresses what is larger than 4 KiB even where that makes it longer: noise of this size would be refused.
    "largest": random.Random(8).randbytes(2 * 1024 * 1024).hex().encode(),
}
PROPERTIES = {"colour": "red", "名字": "值", "spaced": " a b ", "long": "x" * 2000}


def test_what_java_sends_arrives_unchanged(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    for name, body in BODIES.items():
        java.send_bytes(topic, body, tag="标签", keys=[name, "键"], properties=PROPERTIES)
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}", start="first")
        async def take(message: Message) -> None:
            note("done", message)
        """
    )
    seen = {event["keys"][0]: event for event in app.wait_for_count(len(BODIES))}
    assert {name: event["sha"] for name, event in seen.items()} == {
        name: hashlib.sha256(body).hexdigest() for name, body in BODIES.items()
    }
    for event in seen.values():
        assert event["tag"] == "标签"
        assert event["keys"][1:] == ["键"]
        assert {key: event["properties"][key] for key in PROPERTIES} == PROPERTIES
        assert event["topic"] == topic
        assert event["attempt"] == 1
    assert app.stop().handled == len(BODIES)


def test_what_ours_publishes_arrives_unchanged_at_java(
    java: JavaClient, run_app: RunApp, topic: str, group: str, tmp_path: Path
) -> None:
    java.create_topic(topic, 4)
    bodies = {**BODIES, "largest-noise": random.Random(9).randbytes(4 * 1024 * 1024)}
    for number, body in enumerate(bodies.values()):
        (tmp_path / f"body{number}").write_bytes(body)
    app = run_app(
        f"""
        from pathlib import Path
        app = RocketApp("{group}")

        @app.on_startup
        async def publish() -> None:
            for number, name in enumerate({list(bodies)!r}):
                body = Path({str(tmp_path)!r}, f"body{{number}}").read_bytes()
                result = await app.publish(
                    "{topic}", body, tag="标签", keys=[name, "键"], properties={PROPERTIES!r}, timeout=60
                )
                mark("sent", name=name, id=result.message_id, offset=result.queue_offset, queue=result.queue.queue_id)
        """
    )
    sent = {event["name"]: event for event in app.wait_for_count(len(bodies), "sent")}
    stored = {message["keys"].split()[0]: message for message in java.read(topic, least=len(bodies))}
    assert {name: message["body"] for name, message in stored.items()} == bodies
    for name, message in stored.items():
        assert message["tag"] == "标签"
        assert message["keys"] == f"{name} 键"
        assert {key: message["properties"][key] for key in PROPERTIES} == PROPERTIES
        assert message["id"] == sent[name]["id"]
        assert (message["queue"], message["offset"]) == (sent[name]["queue"], sent[name]["offset"])
    app.stop()


@on_apache
def test_a_body_above_four_mebibytes_is_refused_before_the_wire(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 1)
    app = run_app(
        f"""
        from rocketapp import SendRefused
        app = RocketApp("{group}")

        @app.on_startup
        async def publish() -> None:
            try:
                await app.publish("{topic}", b"x" * (4 * 1024 * 1024 + 1))
            except SendRefused as refused:
                mark("refused", text=str(refused))
        """
    )
    (refused,) = app.wait_for_count(1, "refused")
    assert "4194304" in refused["text"]
    app.stop()
    assert java.read(topic) == []


@on_apache
def test_equal_order_keys_go_to_one_queue(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 8)
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.on_startup
        async def publish() -> None:
            for number in range(40):
                await app.publish("{topic}", str(number), order_key=f"key{{number % 5}}", keys=[f"key{{number % 5}}"])
            mark("published")
        """
    )
    app.wait_for_count(1, "published")
    by_key: dict[str, list[tuple[int, int]]] = {}
    for message in java.read(topic, least=40):
        by_key.setdefault(message["keys"], []).append((message["queue"], int(message["body"])))
    assert len(by_key) == 5
    for places in by_key.values():
        assert len({queue for queue, _ in places}) == 1
        assert [number for _, number in places] == sorted(number for _, number in places)
    app.stop()


def test_a_publish_creates_a_topic_and_is_seen_by_the_apps_own_subscription(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}")
        async def take(message: Message) -> None:
            note("done", message)

        @app.on_startup
        async def publish() -> None:
            for number in range(10):
                await app.publish("{topic}", f"hello {{number}}")
            mark("published")
        """
    )
    (published,) = app.wait_for_count(1, "published")
    done = app.wait_for_count(10, within=10)
    assert sorted(event["text"] for event in done) == [f"hello {number}" for number in range(10)]
    # Routes are asked for every 30 s: what the app creates itself is not waited for.
    assert max(event["at"] for event in done) - published["at"] < 20
    assert len(java.read(topic)) == 10
    assert app.stop().handled == 10
