"""Handlers with `order_by=`: per key one after the other, many keys of a queue at once."""

from __future__ import annotations

from tests.conftest import RunApp, on_apache
from tests.peers.java_client import JavaClient, texts

TAKE = """
app = RocketApp("{group}")

@app.subscribe("{topic}", start="first", order_by="KEYS")
async def take(message: Message) -> None:
    note("start", message)
    await asyncio.sleep(0.005)
    note("done", message)
"""


def take(topic: str, group: str) -> str:
    return TAKE.replace("{group}", group).replace("{topic}", topic)


@on_apache
def test_each_key_is_handled_in_its_order_and_many_keys_at_once(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 2)
    load = java.produce(topic, 320, order_keys=32)
    app = run_app(take(topic, group))
    load.wait(within=30)
    app.wait_for_count(320)
    app.stop()
    by_key: dict[str, list[tuple[str, int]]] = {}
    running = most = 0
    for event in app.events():
        by_key.setdefault(event["keys"][0], []).append((event["event"], int(event["text"])))
        running += 1 if event["event"] == "start" else -1
        most = max(most, running)
    for happened in by_key.values():
        numbers = [number for what, number in happened if what == "done"]
        assert numbers == sorted(numbers)
        assert happened == [(what, number) for number in numbers for what in ("start", "done")]
    assert sum(map(len, by_key.values())) == 640
    assert most > 2
    assert java.lag(topic, group) == 0


@on_apache
def test_a_failed_message_holds_only_its_key_and_ends_in_the_dead_letters(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 1)
    bodies = ["poison of a", "after of a", *(f"{n} of b" for n in range(5))]
    java.send(topic, *({"text": text, "keys": [text[-1]], "queue": 0} for text in bodies))
    app = run_app(
        f"""
        app = RocketApp("{group}", version="1.2.3")

        @app.subscribe("{topic}", start="first", order_by="KEYS", retries=2)
        def take(message: Message) -> None:
            note("start", message)
            if message.text().startswith("poison"):
                raise ValueError("always")
            note("done", message)
        """
    )
    app.wait_for_count(6)
    counts = app.stop()
    assert [event["attempt"] for event in app.events("start", text="poison of a")] == [1, 2, 3]
    assert app.texts("done") == [*(f"{n} of b" for n in range(5)), "after of a"]
    assert texts(java.dead_letters(group, least=1)) == ["poison of a"]
    assert (counts.handled, counts.retried, counts.dead_lettered) == (6, 2, 1)
    assert java.lag(topic, group) == 0
