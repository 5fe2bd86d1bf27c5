"""Requests get the answer of their handler, whichever side is Java's."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp import Client, NoReply
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.requests.send import SendRequest
from tests.conftest import RunApp, on_apache
from tests.peers.bare import Bare
from tests.peers.clusters import Cluster
from tests.peers.java_client import JavaClient, JavaError
from tests.peers.waiting import wait_until

WITHIN = 60
"""Seconds that an answer may take on a busy machine: a Java consumer that is asked may only just have begun."""


def answering(group: str, topic: str) -> str:
    return f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}", start="first")
        async def answer(message: Message) -> str | None:
            note("done", message)
            return None if message.text() == "silence" else "re: " + message.text()
    """


def test_java_gets_our_answer(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 4)
    app = run_app(answering(group, topic))
    app.wait_for(lambda: java.members(group)["ids"], within=20, what="the member")
    for text in ("one", "zwei", "三"):
        reply = java.request(topic, text)
        assert reply["body"].decode() == f"re: {text}"
        assert reply["properties"]["MSG_TYPE"] == "reply"
    assert app.stop().handled == 3


def test_we_get_javas_answer(cluster: Cluster, java: JavaClient, topic: str, group: str) -> None:
    java.create_topic(topic, 4)
    java.reply(topic, group, "java: ")

    async def ask() -> list[str]:
        async with Client(cluster.name_server) as client:
            texts = ("one", "x" * 10_000)
            return [(await client.request(topic, text, timeout=WITHIN)).text() for text in texts]

    assert asyncio.run(ask()) == ["java: one", "java: " + "x" * 10_000]


@on_apache
def test_a_sync_handler_asks_before_it_answers(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 4)
    java.create_topic(f"{topic}-next", 4)
    java.reply(f"{topic}-next", f"{group}-next", "java: ")
    app = run_app(f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}", start="first")
        def answer(message: Message) -> str:
            note("done", message)
            return "then " + app.request_sync("{topic}-next", message.text(), timeout={WITHIN}).text()
    """)
    app.wait_for(lambda: java.members(group)["ids"], within=20, what="the member")
    # Longer than the handler waits, whose error would be told otherwise.
    assert java.request(topic, "one", timeout=WITHIN + 5)["body"].decode() == "then java: one"


@on_apache
def test_many_of_ours_ask_ours_at_once(
    cluster: Cluster, java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 4)
    app = run_app(answering(group, topic))
    app.wait_for(lambda: java.members(group)["ids"], within=20, what="the member")

    async def ask() -> list[str]:
        async with Client(cluster.name_server) as one, Client(cluster.name_server) as other:
            asked = [(one, other)[number % 2].request(topic, str(number), timeout=WITHIN) for number in range(40)]
            return [reply.text() for reply in await asyncio.gather(*asked)]

    assert asyncio.run(ask()) == [f"re: {number}" for number in range(40)]


@on_apache
def test_who_is_not_answered_hears_it_in_time(
    cluster: Cluster, java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 4)
    app = run_app(answering(group, topic))
    app.wait_for(lambda: java.members(group)["ids"], within=20, what="the member")

    async def ask() -> str:
        async with Client(cluster.name_server) as client:
            with pytest.raises(NoReply):
                await client.request(topic, "silence", timeout=1)
            return (await client.request(topic, "now", timeout=WITHIN)).text()

    assert asyncio.run(ask()) == "re: now"
    with pytest.raises(JavaError, match="timeout"):
        java.request(topic, "silence", timeout=1)


def test_a_reply_to_a_client_that_is_away_is_refused_and_stored(cluster: Cluster) -> None:
    topic = "DefaultCluster_REPLY_TOPIC"
    with Bare(cluster.broker_address, timeout=20) as asking:

        def count() -> int:
            return int(asking.ask(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=0).fields["offset"])

        before = count()
        properties = "REPLY_TO_CLIENT\x01away\x02CORRELATION_ID\x01c1\x02MSG_TYPE\x01reply\x02"
        request = SendRequest("makers", topic, queue_id=0, properties=properties)
        assert asking.ask(RequestCode.SEND_REPLY_MESSAGE_V2, b"42", **request.to_fields()).code == 1
        wait_until(lambda: count() > before, within=10, what="the reply")
