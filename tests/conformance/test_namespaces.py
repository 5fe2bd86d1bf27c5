"""An app in a namespace: handlers see bare names, and its members and Java's are one group."""

from __future__ import annotations

import asyncio

from rocketapp import Client
from tests.conftest import RunApp, on_apache
from tests.peers.clusters import Cluster
from tests.peers.java_client import JavaClient
from tests.peers.waiting import wait_until

NAMESPACE = "shop"


@on_apache
def test_handlers_see_bare_names_and_brokers_wrapped_ones(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(f"{NAMESPACE}%{topic}", 4)
    java.send(f"{NAMESPACE}%{topic}", *map(str, range(20)))
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}", start="first")
        async def take(message: Message) -> None:
            if message.text() == "3" and message.attempt == 1:
                raise Retry(after=1)
            if message.text() == "5":
                raise DeadLetter("not wanted")
            note("done", message)
            if message.text() == "7":
                await app.publish("{topic}-after", "7")

        @app.subscribe("{topic}-after", start="first", orderly=True, group="{group}-orderly")
        async def follow(message: Message) -> None:
            note("followed", message)
        """,
        environment={"ROCKETAPP_CLIENT__NAMESPACE": NAMESPACE},
    )
    app.wait_for_count(19)
    app.wait_for_count(1, "followed")
    counts = app.stop()
    assert (counts.retried, counts.dead_lettered, counts.unmatched) == (1, 1, 0)
    assert {event["topic"] for event in app.events("done")} == {topic}
    assert {event["topic"] for event in app.events("followed")} == {f"{topic}-after"}
    assert [one["body"] for one in java.dead_letters(f"{NAMESPACE}%{group}", least=1)] == [b"5"]
    assert java.lag(f"{NAMESPACE}%{topic}", f"{NAMESPACE}%{group}") == 0
    assert [one["body"] for one in java.read(f"{NAMESPACE}%{topic}-after", least=1)] == [b"7"]


@on_apache
def test_a_java_member_of_the_namespace_shares_the_queues(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    wrapped = f"{NAMESPACE}%{topic}"
    java.create_topic(wrapped, 4)
    member = java.consume(wrapped, f"{NAMESPACE}%{group}")
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}")
        async def take(message: Message) -> None:
            note("done", message)
        """,
        environment={"ROCKETAPP_CLIENT__NAMESPACE": NAMESPACE},
    )
    wait_until(lambda: len(java.members(f"{NAMESPACE}%{group}")["ids"]) == 2, within=20, what="both are members")

    def both_work() -> bool:
        java.send(wrapped, *({"text": f"{queue}", "queue": queue} for queue in range(4)))
        return bool(app.texts()) and bool(member.bodies())

    wait_until(both_work, within=40, what="both handle messages", every=0.5)
    app.stop()
    assert {event["topic"] for event in app.events()} == {topic}


@on_apache
def test_transactions_and_requests_stay_in_the_namespace(
    cluster: Cluster, java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    wrapped = f"{NAMESPACE}%{topic}"
    java.create_topic(wrapped, 4)
    java.create_topic(f"{wrapped}-asked", 4)
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.transaction("{topic}")
        async def place(body: str) -> bool:
            if body == "left":
                raise LookupError(body)
            return body == "commit"

        @place.check
        async def known(message: Message) -> bool | None:
            note("check", message)
            return True

        @app.on_startup
        async def begin() -> None:
            for body in ("commit", "rollback", "left"):
                try:
                    await place(body)
                except LookupError:
                    mark("left", text=body)

        @app.subscribe("{topic}", start="first")
        async def take(message: Message) -> None:
            note("done", message)

        @app.subscribe("{topic}-asked", start="first")
        async def answer(message: Message) -> str:
            return "re: " + message.text()
        """,
        environment={"ROCKETAPP_CLIENT__NAMESPACE": NAMESPACE},
    )
    assert sorted(event["text"] for event in app.wait_for_count(2, within=40)) == ["commit", "left"]
    assert {event["topic"] for event in app.events("check")} == {topic}

    async def ask() -> str:
        async with Client(cluster.name_server, settings={"client": {"namespace": NAMESPACE}}) as client:
            return (await client.request(f"{topic}-asked", "who", timeout=60)).text()

    assert asyncio.run(ask()) == "re: who"
    assert java.request(f"{wrapped}-asked", "java")["body"] == b"re: java"
    app.stop()
