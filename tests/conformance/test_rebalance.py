"""Queues are shared by the members of a group, ours and Java's, and change hands without loss or repetition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.conftest import RunApp
from tests.peers.java_client import JavaClient
from tests.peers.waiting import wait_until

TAKE = """
app = RocketApp("{group}")

@app.subscribe("{topic}", start="first")
async def take(message: Message) -> None:
    note("done", message)
"""


def take(topic: str, group: str) -> str:
    return TAKE.replace("{group}", group).replace("{topic}", topic)


def _at_least(count: Callable[[], int], wanted: int) -> bool:
    return count() >= wanted


def send_round(java: JavaClient, topic: str, name: str, queues: int) -> None:
    """One message to each queue, so that each queue's owner shows itself."""
    java.send(topic, *({"text": f"{name} {queue}", "queue": queue} for queue in range(queues)))


def test_two_members_share_and_the_one_that_stays_takes_over(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 8)
    first, second = run_app(take(topic, group)), run_app(take(topic, group))

    def shared() -> bool:
        send_round(java, topic, "probe", 8)
        owners = [{event["queue"] for event in app.events("done")[-4:]} for app in (first, second)]
        return len(owners[0]) == len(owners[1]) == 4 and not owners[0] & owners[1]

    wait_until(shared, within=15, what="each of the two members has four queues", every=0.3)
    first.stop()
    send_round(java, topic, "after", 8)
    second.wait_for(
        lambda: sum(text.startswith("after") for text in second.texts()) == 8,
        within=5,
        what="the second has all eight queues",
    )
    second.stop()
    places = [(event["queue"], event["offset"]) for app in (first, second) for event in app.events("done")]
    assert len(places) == len(set(places)), "a clean change of hands repeats nothing"
    assert len(places) == sum(line["max"] or 0 for line in java.offsets(topic).values())


def test_members_join_and_leave_under_load_without_loss_or_repetition(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 8)
    load = java.produce(topic, 10**9, rate=1000)
    apps = [run_app(take(topic, group))]

    def done() -> int:
        return sum(len(app.events("done")) for app in apps)

    for _ in range(2):
        enough = done() + 800
        apps[0].wait_for(partial(_at_least, done, enough), within=20, what=f"{enough} are handled")
        joined = run_app(take(topic, group))
        apps.append(joined)
        joined.wait_for_count(100, within=15)
        joined.stop()
    load.stop()
    stored = sorted(load.wait(within=30)["stored"])
    apps[0].wait_for(partial(_at_least, done, len(stored)), within=20, what=f"all {len(stored)} are handled")
    apps[0].stop()
    assert sorted(int(text) for app in apps for text in app.texts()) == stored


def test_a_java_member_shares_with_ours(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 8)
    app = run_app(take(topic, group))
    consumer = java.consume(topic, group)
    app.wait_for(lambda: len(java.members(group)["ids"]) == 2, within=10, what="both are members")

    def shared() -> bool:
        send_round(java, topic, "probe", 8)
        ours = {event["queue"] for event in app.events("done")[-4:]}
        theirs = {message["queue"] for message in consumer.poll()[-4:]}
        return len(ours) == len(theirs) == 4 and not ours & theirs

    wait_until(shared, within=45, what="ours and Java's member have four queues each", every=0.5)
    app.stop()
    before = len(consumer.poll())
    send_round(java, topic, "after", 8)
    wait_until(
        lambda: sum(body.startswith("after") for body in consumer.bodies()) >= 8,
        within=40,
        what=lambda: f"Java takes over: {consumer.poll()[before:]}",
        every=0.2,
    )
    stored = {(message["queue"], message["offset"]) for message in java.read(topic)}
    handled = {(event["queue"], event["offset"]) for event in app.events("done")}
    handled |= {(message["queue"], message["offset"]) for message in consumer.poll()}
    assert handled == stored


def test_workers_of_one_run_share_the_queues(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 8)
    for queue in range(8):
        java.send(topic, *({"text": f"{queue}:{n}", "queue": queue} for n in range(5)))
    app = run_app(take(topic, group), "--workers", "2", "--exit-when-idle", "1")
    counts = app.wait(within=40)
    assert counts == (40, 0, 0, 0)
    places = [(event["queue"], event["offset"]) for event in app.events("done")]
    assert sorted(places) == [(queue, n) for queue in range(8) for n in range(5)]
    queues_of: dict[int, set[int]] = {}
    for event in app.events("done"):
        queues_of.setdefault(event["pid"], set()).add(event["queue"])
    assert sorted(map(len, queues_of.values())) == [4, 4]


def test_a_group_without_members_is_an_error_not_an_empty_list(java: JavaClient, group: str) -> None:
    assert java.members(group) == {"ids": [], "code": 1, "remark": f"no consumer for this group, {group}"}
