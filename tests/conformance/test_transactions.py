"""Transactional messages: seen after the commit, never after a rollback; any member of the group answers for them."""

from __future__ import annotations

from tests.conftest import RunApp, on_apache
from tests.peers.java_client import JavaClient
from tests.peers.waiting import wait_until

CHECKED = 40.0
"""Seconds within which a broker has asked, several times, and was answered."""


def source(group: str, topic: str, bodies: str, check: str) -> str:
    """An app that begins a transaction for each of `bodies`. Only "commit" is committed; `check` answers for `body`."""
    return f"""
        app = RocketApp("{group}")
        asked = {{}}

        @app.transaction("{topic}")
        async def place(body: str) -> bool:
            mark("local", text=body)
            if body not in ("commit", "rollback"):
                raise LookupError(body)
            return body == "commit"

        @place.check
        async def known(message: Message) -> bool | None:
            body = message.text()
            asked[body] = asked.get(body, 0) + 1
            note("check", message)
            return {check}

        @app.on_startup
        async def begin() -> None:
            for body in {bodies}:
                try:
                    await place(body, tag="new", keys=[body])
                except LookupError:
                    mark("left", text=body)
    """


CONSUMER = """
        @app.subscribe("{topic}", start="first")
        async def take(message: Message) -> None:
            note("done", message)
"""


def test_what_is_committed_is_seen_and_nothing_else(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 4)
    bodies = ["rollback", "commit", "true", "false", "later"]
    check = '{"true": True, "false": False, "later": True if asked[body] > 1 else None}.get(body)'
    app = run_app(source(group, topic, repr(bodies), check) + CONSUMER.format(topic=topic))
    events = app.wait_for_count(3, within=CHECKED)
    # A slow start may let the broker ask about the others, too.
    for text, times in (("true", 1), ("false", 1), ("later", 2)):
        app.wait_for_count(times, "check", text=text, within=CHECKED)
    assert sorted(event["text"] for event in events) == ["commit", "later", "true"]
    assert app.texts("local") == bodies
    checks = app.texts("check")
    assert (checks.count("true"), checks.count("false"), checks.count("later")) == (1, 1, 2)
    for event in events:
        assert (event["topic"], event["tag"], event["keys"], event["attempt"]) == (topic, "new", [event["text"]], 1)
    assert app.stop().handled == 3


@on_apache
def test_another_process_answers_for_one_that_died(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 4)
    first = run_app(source(group, topic, '["true"]', "None"))
    first.wait_for_count(1, "left", within=CHECKED)
    first.kill()
    second = run_app(source(group, topic, "[]", "True") + CONSUMER.format(topic=topic))
    assert second.wait_for_count(1, within=CHECKED)[0]["text"] == "true"
    assert second.texts("check") == ["true"]
    assert second.texts("local") == []


@on_apache
def test_a_java_member_answers_for_ours(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 4)
    java.join_transactions(topic, group=group, check="commit")
    app = run_app(source(group, topic, '["true"]', "None"))
    app.wait_for_count(1, "left", within=CHECKED)
    app.kill()
    consumer = java.consume(topic, f"{group}-all", **{"from": "first"})
    wait_until(lambda: consumer.bodies() == ["true"], within=CHECKED, what=lambda: f"committed: {consumer.bodies()}")
    assert java.checked(group) == ["true"]


def test_ours_answers_for_a_java_member(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.create_topic(topic, 4)
    app = run_app(source(group, topic, "[]", "body == 'true'") + CONSUMER.format(topic=topic))
    assert java.transaction(topic, "true", group=group, local="unknown") == "UNKNOW"
    assert java.transaction(topic, "false", group=group, local="unknown") == "UNKNOW"
    assert app.wait_for_count(1, within=CHECKED)[0]["text"] == "true"
    app.wait_for_count(1, "check", text="false", within=CHECKED)
    assert app.texts() == ["true"]
