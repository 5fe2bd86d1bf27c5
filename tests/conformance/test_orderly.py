"""Orderly handlers: per queue one after the other, across the whole group."""

from __future__ import annotations

import time
from itertools import groupby

import pytest

from tests.conformance.long_waits import LongWaits
from tests.conftest import RunApp, on_apache
from tests.peers.clusters import LOCK_EXPIRY
from tests.peers.java_client import JavaClient, texts
from tests.peers.waiting import wait_until

TAKE = """
app = RocketApp("{group}")

@app.subscribe("{topic}", start="first", orderly=True)
async def take(message: Message) -> None:
    note("start", message)
    await asyncio.sleep(0)
    note("done", message)
"""


def take(topic: str, group: str) -> str:
    return TAKE.replace("{group}", group).replace("{topic}", topic)


@on_apache
def test_each_queue_is_handled_in_its_order(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 8)
    load = java.produce(topic, 320, order_keys=32)
    app = run_app(take(topic, group))
    load.wait(within=30)
    app.wait_for_count(320)
    app.stop()
    by_queue: dict[int, list[tuple[str, int]]] = {}
    by_key: dict[str, list[int]] = {}
    for event in app.events():
        by_queue.setdefault(event["queue"], []).append((event["event"], event["offset"]))
        if event["event"] == "done":
            by_key.setdefault(event["keys"][0], []).append(int(event["text"]))
    assert len(by_queue) == 8
    for happened in by_queue.values():
        count = len(happened) // 2
        assert happened == [(what, offset) for offset in range(count) for what in ("start", "done")]
    assert {key: sorted(numbers) for key, numbers in by_key.items()} == by_key
    assert sum(map(len, by_key.values())) == 320


@on_apache
def test_the_first_message_waits_for_no_round_of_locks(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    # A queue is locked when it is acquired, not at the next round 20 s later.
    java.create_topic(topic, 4)
    java.send(topic, *({"text": str(n), "queue": n % 4} for n in range(8)))
    app = run_app(take(topic, group))
    app.wait_for_count(8)
    assert max(event["at"] for event in app.events("done")) - app.started_at < 18
    app.stop()


@on_apache
def test_a_failed_message_is_retried_in_place_after_a_second(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 1)
    java.send(topic, *(str(n) for n in range(5)))
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}", start="first", orderly=True)
        def take(message: Message) -> None:
            note("start", message)
            if message.text() == "1" and message.attempt < 3:
                raise ValueError("not yet")
            if message.text() == "3" and message.attempt < 2:
                raise Retry(after=1.6)
            note("done", message)
        """
    )
    app.wait_for_count(5)
    counts = app.stop()
    starts = [(event["text"], event["attempt"]) for event in app.events("start")]
    assert starts == [("0", 1), ("1", 1), ("1", 2), ("1", 3), ("2", 1), ("3", 1), ("3", 2), ("4", 1)]
    times = {(event["text"], event["attempt"]): event["at"] for event in app.events("start")}
    for earlier, later, pause in ((1, 2, 1.0), (2, 3, 1.0)):
        assert pause - 0.05 <= times["1", later] - times["1", earlier] <= pause + 5
    assert 1.55 <= times["3", 2] - times["3", 1] <= 1.6 + 5
    assert (counts.handled, counts.retried, counts.dead_lettered) == (5, 3, 0)


@on_apache
def test_a_dead_letter_frees_the_queue(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 1)
    java.send(topic, "poison", *(f"good {n}" for n in range(10)))
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}", start="first", orderly=True, retries=2)
        async def take(message: Message) -> None:
            note("start", message)
            if message.text() == "poison":
                raise ValueError("always")
            note("done", message)
        """
    )
    app.wait_for_count(10)
    counts = app.stop()
    assert [event["attempt"] for event in app.events("start", text="poison")] == [1, 2, 3]
    assert app.texts("done") == [f"good {n}" for n in range(10)]
    assert texts(java.dead_letters(group, least=1)) == ["poison"]
    assert (counts.handled, counts.retried, counts.dead_lettered) == (10, 2, 1)
    assert java.lag(topic, group) == 0


@on_apache
def test_a_clean_stop_hands_the_queues_over_before_the_next_rebalance(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 4)
    first = run_app(take(topic, group))
    java.send(topic, *({"text": f"a{n}", "queue": n % 4} for n in range(8)))
    first.wait_for_count(8)
    second = run_app(take(topic, group))
    second.wait_for(lambda: len(java.members(group)["ids"]) == 2, within=10, what="both are members")
    first.stop()
    stopped = time.monotonic()
    java.send(topic, *({"text": f"b{n}", "queue": n % 4} for n in range(8)))
    # The broker tells the members of a change; they look for themselves every 20 s.
    assert max(event["at"] for event in second.wait_for_count(8)) - stopped < 15
    taken = first.texts() + second.texts()
    assert sorted(taken) == sorted([f"a{n}" for n in range(8)] + [f"b{n}" for n in range(8)])
    second.stop()


def test_one_queue_is_handled_by_one_member_and_by_javas_or_ours_when_that_one_leaves(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    """Two groups, each with a member of both clients: in one Java's id comes first and holds the queue, in one ours."""
    java.create_topic(topic, 1)
    java_first, ours_first = f"{group}-java-first", f"{group}-ours-first"
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}", start="first", orderly=True, group="{java_first}")
        async def second(message: Message) -> None:
            note("start", message, group="{java_first}")
            await asyncio.sleep(0)
            note("done", message, group="{java_first}")

        @app.subscribe("{topic}", start="first", orderly=True, group="{ours_first}")
        async def first(message: Message) -> None:
            note("start", message, group="{ours_first}")
            await asyncio.sleep(0)
            note("done", message, group="{ours_first}")
        """
    )
    members = {
        java_first: java.consume(topic, java_first, orderly=True, ip="!"),
        ours_first: java.consume(topic, ours_first, orderly=True, ip="~"),
    }
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        java.send(topic, *(str(sent + n) for n in range(count)))
        sent += count

    def calls(name: str) -> list[tuple[float, str, str, int]]:
        """When, by whom, `start` or `done`, and the offset: Java notes the end alone."""
        ours = [(event["at"], "ours", event["event"], event["offset"]) for event in app.events(group=name)]
        return sorted(ours + [(one["at"], "java", "done", one["offset"]) for one in members[name].poll()])

    def done(name: str) -> set[int]:
        return {offset for _, _, what, offset in calls(name) if what == "done"}

    def holds(name: str, holder: str) -> bool:
        send(1)
        wait_until(lambda: sent - 1 in done(name), within=40, what=app.describe)
        return calls(name)[-1][1] == holder

    app.wait_for(lambda: all(len(java.members(name)["ids"]) == 2 for name in members), within=20, what="both are there")
    assert min(java.members(java_first)["ids"]) == members[java_first].client_id
    assert max(java.members(ours_first)["ids"]) == members[ours_first].client_id
    wait_until(lambda: holds(java_first, "java"), within=45, what="Java holds the queue", every=0.3)
    wait_until(lambda: holds(ours_first, "ours"), within=45, what="ours holds the queue", every=0.3)
    begin = sent
    send(60)
    members[java_first].stop()
    wait_until(lambda: holds(java_first, "ours"), within=45, what="ours takes over", every=0.3)
    send(60)
    app.stop()
    send(30)
    wait_until(lambda: done(ours_first) == set(range(sent)), within=45, what="Java takes over", every=0.3)
    for name, holders in ((java_first, ["java", "ours"]), (ours_first, ["ours", "java"])):
        found = [call for call in calls(name) if call[3] >= begin]
        assert [who for who, _ in groupby(who for _, who, _, _ in found)] == holders, "each queue changes hands once"
        offsets = [offset for _, _, what, offset in found if what == "done"]
        assert list(dict.fromkeys(offsets)) == list(range(begin, begin + len(set(offsets)))), "none is overtaken"
        repeated = len(offsets) - len(set(offsets))
        assert repeated <= (32 if holders[0] == "java" else 0), "Java unlocks a queue before it commits it"
    assert done(java_first) >= set(range(begin + 60))
    assert java.lag(topic, java_first) == sent - max(done(java_first)) - 1


@pytest.mark.parametrize(("group", "holder"), [("java-killed", "java"), ("ours-killed", "ours")])
def test_the_queue_of_a_killed_member_goes_on_at_a_member_of_the_other_client(
    waits: LongWaits, group: str, holder: str
) -> None:
    calls = waits.mixed.all_calls(group, within=90)
    last = max(index for index, call in enumerate(calls) if call.who == holder)
    assert all(call.who != holder for call in calls[last + 1 :])
    assert calls[last + 1].at - calls[last].at <= LOCK_EXPIRY + 15
    before, after = ([call.offset for call in part] for part in (calls[: last + 1], calls[last + 1 :]))
    assert list(dict.fromkeys(before)) == list(range(max(before) + 1)), "nothing is overtaken"
    assert after == list(range(after[0], max(after) + 1)), "the one that goes on repeats nothing"
    # Java commits every 5 s, ours every second or sooner: what came since is handled again.
    assert 0 <= max(before) + 1 - after[0] <= 20 * 6 + 32


BY_HAND = """
app = RocketApp("{group}")
rolled_back = []

@app.subscribe("{topic}", start="first", orderly=True, retries=6, commit="manual")
async def take(message: Message, context: Context) -> None:
    note("start", message)
    if message.text() == "6":
        raise Retry(after=0.2)
    if message.text() == "2" and not rolled_back and message.attempt == 1:
        rolled_back.append(message)
        context.rollback(after=0.1)
    elif message.text() in ("3", "7"):
        context.commit()
"""


@on_apache
def test_commits_by_hand_and_attempts_that_the_next_member_counts_on(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 1)
    java.send(topic, *(str(n) for n in range(8)))
    source = "from rocketapp import Context\n" + BY_HAND.replace("{group}", group).replace("{topic}", topic)
    first = run_app(source)
    first.wait_for(lambda: first.texts("start").count("6") >= 3, within=30, what="three attempts")
    first.stop()
    assert [text for text in first.texts("start") if text != "6"] == ["0", "1", "2", "0", "1", "2", "3", "4", "5"]
    offsets = java.offsets(topic, group)
    assert {queue: line["committed"] for queue, line in offsets.items()} == {0: 4}
    second = run_app(source)
    second.wait_for(lambda: "7" in second.texts("start"), within=30, what="the last message")
    counts = second.stop()
    attempts = [event["attempt"] for app in (first, second) for event in app.events("start", text="6")]
    assert attempts == list(range(1, 8))
    assert second.texts("start")[:2] == ["4", "5"]
    assert texts(java.dead_letters(group, least=1)) == ["6"]
    assert (counts.handled, counts.dead_lettered) == (3, 1)
    assert java.lag(topic, group) == 0
