"""Polled handlers: calls at intervals, each of which pulls messages of one queue and commits them by returning."""

from __future__ import annotations

from tests.conftest import RunApp, on_apache
from tests.peers.java_client import JavaClient

WORK = """
from rocketapp import Pull

app = RocketApp("{group}")

@app.poll("{topic}", every=0.5, start="first")
async def work(pull: Pull) -> None:
    messages = await pull(5)
    for message in messages:
        note("pulled", message)
    if any(message.text() == "bad" and message.attempt < 3 for message in messages):
        raise ValueError("not yet")
    for message in messages + await pull(5):
        note("done", message)
"""


def work(topic: str, group: str) -> str:
    return WORK.replace("{group}", group).replace("{topic}", topic)


@on_apache
def test_two_members_share_the_queues_and_each_message_is_done_once_in_its_order(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 4)
    java.send(topic, *({"text": str(n), "queue": n % 4} for n in range(120)))
    first = run_app(work(topic, group))
    first.wait_for_count(20)
    second = run_app(work(topic, group))
    second.wait_for(lambda: len(java.members(group)["ids"]) == 2, within=10, what="both are members")
    java.send(topic, *({"text": str(n), "queue": n % 4} for n in range(120, 240)))
    second.wait_for(lambda: java.lag(topic, group) == 0, within=60, what="everything is committed")
    first.stop()
    second.stop()
    done = [event for app in (first, second) for event in app.events("done")]
    assert sorted(int(event["text"]) for event in done) == list(range(240))
    by_queue: dict[int, list[tuple[float, int]]] = {}
    for event in done:
        by_queue.setdefault(event["queue"], []).append((event["at"], event["offset"]))
    assert {queue: [offset for _, offset in sorted(each)] for queue, each in by_queue.items()} == {
        queue: list(range(60)) for queue in range(4)
    }
    assert second.events("done")


@on_apache
def test_a_call_that_raised_is_repeated_and_a_restart_goes_on_at_the_commit(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 1)
    java.send(topic, "good", "bad", "late")
    app = run_app(work(topic, group))
    app.wait_for_count(3)
    app.stop()
    assert [event["attempt"] for event in app.events("pulled", text="bad")] == [1, 2, 3]
    assert app.texts("done") == ["good", "bad", "late"]
    assert java.lag(topic, group) == 0
    java.send(topic, "later")
    again = run_app(work(topic, group))
    again.wait_for_count(1)
    again.stop()
    assert again.texts("done") == ["later"]
    assert java.lag(topic, group) == 0
