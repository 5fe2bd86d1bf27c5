"""Batches: many messages in one send, each a message of its own afterwards."""

from __future__ import annotations

from tests.conftest import RunApp, on_apache
from tests.peers.java_client import JavaClient


def test_each_message_of_a_java_batch_is_handled_by_itself(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 2)
    batch = [{"text": f"m{n}", "tag": f"T{n % 2}", "keys": [f"k{n}"], "properties": {"n": str(n)}} for n in range(20)]
    (result,) = java.send(topic, *batch, as_batch=True)
    assert len(set(result["offset_id"].split(","))) == 20
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}", start="first")
        async def take(message: Message) -> None:
            note("done", message)
        """
    )
    seen = {event["text"]: event for event in app.wait_for_count(20)}
    first = result["offset"]
    for n in range(20):
        event = seen[f"m{n}"]
        assert (event["queue"], event["offset"]) == (result["queue"], first + n)
        assert (event["tag"], event["keys"], event["properties"]["n"]) == (f"T{n % 2}", [f"k{n}"], str(n))
    assert len({event["id"] for event in seen.values()}) == 20
    stored = java.read(topic, least=20)
    assert not [one for one in stored if {"MSG_REGION", "TRACE_ON", "CLUSTER"} & one["properties"].keys()]
    assert app.stop().handled == 20


def test_publish_many_stores_every_message_once(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 4)
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.on_startup
        async def publish() -> None:
            results = await app.publish_many("{topic}", [f"{{n}} ".ljust(20_000).encode() for n in range(500)])
            places = [(result.queue.queue_id, result.queue_offset) for result in results]
            mark("published", places=places, ids=[result.message_id for result in results])
        """
    )
    (published,) = app.wait_for_count(1, "published", within=30)
    stored = java.read(topic, least=500)
    assert sorted(int(message["body"]) for message in stored) == list(range(500))
    by_number = {int(message["body"]): message for message in stored}
    assert [(by_number[n]["queue"], by_number[n]["offset"]) for n in range(500)] == [
        tuple(p) for p in published["places"]
    ]
    assert [by_number[n]["id"] for n in range(500)] == published["ids"]
    app.stop()


def test_a_large_batch_of_java_s_is_stored_in_order(java: JavaClient, topic: str) -> None:
    java.create_topic(topic, 1)
    (result,) = java.send(topic, *(str(number) for number in range(3000)), as_batch=True)
    assert len(set(result["offset_id"].split(","))) == 3000
    stored = java.read(topic, least=3000)
    assert [(message["offset"], message["body"]) for message in stored] == [(n, b"%d" % n) for n in range(3000)]


@on_apache
def test_a_batch_handler_gets_lists(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 1)
    java.send(topic, *(str(n) for n in range(25)), as_batch=True)
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}", start="first", batch=10, batch_wait=0.3)
        async def take(messages: list[Message]) -> None:
            mark("batch", texts=[message.text() for message in messages])
        """
    )
    app.wait_for(
        lambda: sum(len(event["texts"]) for event in app.events("batch")) >= 25,
        within=20,
        what="25 messages in batches",
    )
    batches = [event["texts"] for event in app.events("batch")]
    assert [text for batch in batches for text in batch] == [str(n) for n in range(25)]
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert app.stop().handled == 25
