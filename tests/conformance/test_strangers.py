"""Java clients and Apache's admin tool, unchanged, against both brokers: what holds there must hold on ours.

What only Java's consumer and a broker do between them is asked of ours alone: of Apache's broker it would test Apache
against Apache, and its consumer may take half a minute there to find its feet.
"""

from __future__ import annotations

from functools import partial

from tests.conftest import RunApp, on_embedded
from tests.peers.java_client import JavaClient
from tests.peers.waiting import wait_until


def wait_until_committed(java: JavaClient, topic: str, group: str) -> None:
    """A Java member that ends tells its offsets, and does not wait for an answer."""
    wait_until(lambda: java.lag(topic, group) == 0, within=10, what="all is committed")


@on_embedded
def test_a_java_push_consumer_takes_everything_once(java: JavaClient, topic: str, group: str) -> None:
    java.create_topic(topic, 4)
    consumer = java.consume(topic, group)
    java.produce(topic, 500, size=1024, threads=4).wait(within=30)
    wait_until(
        lambda: len(consumer.bodies()) >= 500, within=40, what=lambda: f"500, have {len(consumer.seen)}", every=0.1
    )
    assert sorted(int(body) for body in consumer.bodies()) == list(range(500))
    consumer.stop()
    wait_until_committed(java, topic, group)


@on_embedded
def test_a_java_orderly_consumer_keeps_the_order_of_each_queue(java: JavaClient, topic: str, group: str) -> None:
    java.create_topic(topic, 8)
    java.produce(topic, 200, order_keys=20).wait(within=30)
    consumer = java.consume(topic, group, orderly=True)
    wait_until(
        lambda: len(consumer.bodies()) >= 200, within=40, what=lambda: f"200, have {len(consumer.seen)}", every=0.1
    )
    by_queue: dict[int, list[int]] = {}
    for message in consumer.seen:
        by_queue.setdefault(message["queue"], []).append(message["offset"])
    assert {queue: list(range(len(offsets))) for queue, offsets in by_queue.items()} == by_queue


@on_embedded
def test_a_java_orderly_consumer_retries_in_place(java: JavaClient, topic: str, group: str) -> None:
    java.create_topic(topic, 1)
    java.send(topic, *(str(n) for n in range(3)))
    consumer = java.consume(topic, group, orderly=True, fail_first=2, suspend_ms=200)
    wait_until(lambda: len(consumer.bodies()) >= 3, within=40, what=lambda: f"3, have {consumer.seen}", every=0.1)
    attempts = [(message["body"].decode(), message["attempt"]) for message in consumer.seen]
    assert attempts == [(str(n), attempt) for n in range(3) for attempt in (1, 2, 3)]


def test_a_java_consumer_filters_by_tag(java: JavaClient, topic: str, group: str) -> None:
    java.create_topic(topic, 4)
    consumer = java.consume(topic, group, tags="A || BB")
    java.send(topic, *({"text": f"{tag}{n}", "tag": tag} for tag in ("A", "Aa", "BB", "C") for n in range(5)))
    wanted = sorted(f"{tag}{n}" for tag in ("A", "BB") for n in range(5))
    wait_until(lambda: len(consumer.bodies()) >= len(wanted), within=40, what=lambda: f"{consumer.bodies()}", every=0.1)
    assert sorted(consumer.bodies()) == wanted


def test_a_message_is_found_by_its_offset_id(java: JavaClient, topic: str) -> None:
    sent = java.send(topic, *({"text": f"m{n}", "keys": [f"k{n}"]} for n in range(5)))
    assert [java.view(topic, one["offset_id"])["keys"] for one in sent] == [f"k{n}" for n in range(5)]


def test_the_admin_tool_lists_cluster_topics_and_routes(java: JavaClient, topic: str) -> None:
    java.create_topic(topic, 3)
    clusters = java.admin("clusterList")
    assert any(row.split()[:3] == ["DefaultCluster", "broker-a", "0"] for row in clusters.splitlines())
    assert topic in java.admin("topicList").splitlines()
    route = java.admin("topicRoute", "-t", topic)
    assert '"brokerName":"broker-a"' in route
    assert '"readQueueNums":3' in route


def _route_has(java: JavaClient, topic: str, text: str) -> bool:
    return text in java.admin("topicRoute", "-t", topic)


def test_the_admin_tool_creates_and_changes_a_topic(java: JavaClient, topic: str) -> None:
    for queues in ("2", "5"):
        answer = java.admin("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", queues, "-w", queues)
        assert "success" in answer
        route = f'"readQueueNums":{queues}'
        wait_until(partial(_route_has, java, topic, route), within=10, what=route)
    rows = [
        line.split()[1] for line in java.admin("topicStatus", "-t", topic).splitlines() if line.startswith("broker-a")
    ]
    assert sorted(map(int, rows)) == [0, 1, 2, 3, 4]


def test_the_admin_tool_shows_messages_and_progress(java: JavaClient, topic: str, group: str) -> None:
    java.create_topic(topic, 2)
    java.send(topic, *({"text": f"hello {n}", "queue": n % 2} for n in range(6)))
    status = [
        line.split() for line in java.admin("topicStatus", "-t", topic).splitlines() if line.startswith("broker-a")
    ]
    assert sorted((row[1], row[2], row[3]) for row in status) == [("0", "0", "3"), ("1", "0", "3")]
    printed = java.admin("printMsg", "-t", topic, "-d", "true")
    assert all(f"hello {n}" in printed for n in range(6))
    consumer = java.consume(topic, group)
    wait_until(lambda: len(consumer.bodies()) >= 6, within=40, what="six are consumed", every=0.1)
    consumer.stop()
    wait_until_committed(java, topic, group)
    rows = [line.split() for line in java.admin("consumerProgress", "-g", group).splitlines() if line.startswith(topic)]
    assert sorted((row[2], row[3], row[4], row[5]) for row in rows) == [("0", "3", "3", "0"), ("1", "3", "3", "0")]


def test_the_admin_tool_sees_our_members(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.send(topic, *(str(n) for n in range(10)))
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}", start="first", tags="*")
        async def take(message: Message) -> None:
            note("done", message)
        """
    )
    app.wait_for_count(10)
    (member,) = java.members(group)["ids"]
    shown = java.admin("consumerConnection", "-g", group)
    assert member in shown
    assert "PYTHON" in shown
    assert "CONSUME_PASSIVELY" in shown
    assert topic in shown
    app.stop()
    assert java.members(group)["code"] == 1
