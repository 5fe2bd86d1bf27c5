"""Where a group begins, what it commits, and what a restart repeats: nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.conftest import RunApp, on_apache
from tests.peers.java_client import JavaClient
from tests.peers.waiting import wait_until

TAKE = """
app = RocketApp("{group}")

@app.subscribe("{topic}", start={start})
async def take(message: Message) -> None:
    note("done", message)

@app.on_startup
async def started() -> None:
    mark("started")
"""


def take(topic: str, group: str, start: str = '"first"') -> str:
    """An app with one handler that notes what it takes."""
    return TAKE.replace("{group}", group).replace("{topic}", topic).replace("{start}", start)


@on_apache
def test_first_takes_what_was_there_before(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.send(topic, *(f"old {n}" for n in range(50)))
    app = run_app(take(topic, group), "--exit-when-idle", "0.5")
    assert app.wait(within=20) == (50, 0, 0, 0)
    assert sorted(app.texts()) == sorted(f"old {n}" for n in range(50))


def test_last_on_a_young_topic_takes_everything(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    # A broker answers offset 0 for a group that it does not know while the first messages of the queue are still in
    # memory. Surprising, and the same for every client: nothing that was just published is lost.
    java.send(topic, *(f"old {n}" for n in range(20)))
    app = run_app(take(topic, group, '"last"'), "--exit-when-idle", "0.5")
    assert app.wait(within=20).handled == 20


@on_apache
def test_last_on_an_empty_topic_takes_what_comes_after_the_start(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 4)
    app = run_app(take(topic, group, '"last"'))
    app.wait_for_count(1, "started")
    java.send(topic, *(f"new {n}" for n in range(20)))
    app.wait_for_count(20)
    assert app.stop().handled == 20


def test_a_time_of_day_takes_what_was_stored_since(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 2)
    java.send(topic, *({"text": f"before {n}", "queue": n % 2} for n in range(10)))
    between = datetime.now(UTC) + timedelta(milliseconds=20)
    wait_until(lambda: datetime.now(UTC) > between + timedelta(milliseconds=20), within=2, what="time goes by")
    java.send(topic, *({"text": f"after {n}", "queue": n % 2} for n in range(10)))
    start = f'datetime.fromisoformat("{between.isoformat()}")'
    app = run_app(take(topic, group, start), "--exit-when-idle", "0.5")
    assert app.wait(within=20).handled == 10
    assert sorted(app.texts()) == sorted(f"after {n}" for n in range(10))


@on_apache
def test_a_topic_that_is_created_later_is_consumed_from_its_first_message(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    app = run_app(take(topic, group, '"last"'))
    app.wait_for_count(1, "started")
    java.send(topic, *(f"new {n}" for n in range(20)))
    app.wait_for_count(20, within=15)
    assert app.stop().handled == 20


@on_apache
def test_start_positions_are_committed_before_anything_is_published(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 4)
    app = run_app(take(topic, group, '"last"'))
    app.wait_for_count(1, "started")
    assert {line["committed"] for line in java.offsets(topic, group).values()} == {0}
    app.stop()


@on_apache
def test_offsets_committed_at_the_stop_equal_the_ends(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 8)
    for queue in range(8):
        java.send(topic, *({"text": f"{queue}:{n}", "queue": queue} for n in range(10)))
    app = run_app(take(topic, group))
    app.wait_for_count(80)
    assert app.stop().handled == 80
    offsets = java.offsets(topic, group)
    assert {queue: line["committed"] for queue, line in offsets.items()} == dict.fromkeys(range(8), 10)
    assert {line["max"] for line in offsets.values()} == {10}


@on_apache
def test_a_restart_repeats_nothing_and_skips_nothing(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 4)
    load = java.produce(topic, 10**9, rate=200)
    app = run_app(take(topic, group))
    for _ in range(2):
        app.wait_for_count(100, pid=app.process.pid)
        app.stop()
        app.start()
    load.stop()
    stored = sorted(load.wait(within=30)["stored"])
    app.wait_for_count(len(stored))
    app.stop()
    assert sorted(map(int, app.texts())) == stored
    assert java.lag(topic, group) == 0


@on_apache
def test_a_group_with_offsets_ignores_its_start(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 2)
    java.send(topic, *(f"a{n}" for n in range(10)))
    first = run_app(take(topic, group), "--exit-when-idle", "0.5")
    assert first.wait(within=20).handled == 10
    java.send(topic, *(f"b{n}" for n in range(10)))
    for start, wanted in (('"last"', 10), ('"first"', 0)):
        app = run_app(take(topic, group, start), "--exit-when-idle", "0.5")
        assert app.wait(within=20).handled == wanted


def test_the_java_consumer_continues_where_ours_stopped(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 4)
    java.send(topic, *(f"ours {n}" for n in range(20)))
    app = run_app(take(topic, group), "--exit-when-idle", "0.5")
    assert app.wait(within=20).handled == 20
    java.send(topic, *(f"java {n}" for n in range(20)))
    consumer = java.consume(topic, group)
    wait_until(
        lambda: len(consumer.bodies()) >= 20, within=40, what=lambda: f"Java takes 20: {consumer.bodies()}", every=0.1
    )
    assert sorted(consumer.bodies()) == sorted(f"java {n}" for n in range(20))


def test_a_search_by_time_finds_the_first_message_not_older(java: JavaClient, topic: str) -> None:
    java.create_topic(topic, 1)
    java.send(topic, *({"text": str(n), "queue": 0} for n in range(3)))
    wait_until(lambda: java.offsets(topic)[0]["max"] == 3, within=5, what="the messages are visible")
    hour = timedelta(hours=1)
    now = datetime.now(UTC)
    assert java.search_offset(topic, 0, int((now - hour).timestamp() * 1000)) == 0
    assert java.search_offset(topic, 0, int((now + hour).timestamp() * 1000)) == 3
