"""Filters beside tags: SQL at the broker, and a plugin's predicate at the consumer.

The cases that filter by SQL run on Apache's broker alone: the embedded one evaluates no SQL, and refuses it.
"""

from __future__ import annotations

import pytest

from tests.conftest import RunApp
from tests.peers.java_client import JavaClient

SQL = "amount > 5 AND TAGS = 'paid'"

on_apache = pytest.mark.parametrize("cluster", ["apache"], indirect=True)


def _sql_app(topic: str, group: str, sql: str, options: str = "") -> str:
    return f"""
    app = RocketApp("{group}")

    @app.subscribe("{topic}", sql={sql!r}, start="first"{options})
    async def take(message: Message) -> None:
        note("done", message)
    """


@on_apache
@pytest.mark.parametrize("options", ["", ", broadcast=True", ', mode="pop"'], ids=["shared", "broadcast", "popped"])
def test_the_broker_hands_out_what_the_sql_filter_takes(
    java: JavaClient, run_app: RunApp, topic: str, group: str, options: str
) -> None:
    java.send(
        topic,
        {"text": "taken", "tag": "paid", "properties": {"amount": "6"}},
        {"text": "too little", "tag": "paid", "properties": {"amount": "5"}},
        {"text": "other tag", "tag": "open", "properties": {"amount": "9"}},
        {"text": "no amount", "tag": "paid"},
    )
    app = run_app(_sql_app(topic, group, SQL, options), "--exit-when-idle", "1")
    assert app.wait(within=30) == (1, 0, 0, 0)
    assert app.texts() == ["taken"]


@on_apache
def test_an_expression_that_is_wrong_is_refused_at_the_start(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.send(topic, "one")
    app = run_app(_sql_app(topic, group, "amount >"))
    assert app.process.wait(30) == 2
    assert f"sql='amount >' of topic '{topic}': broker " in app.stderr
    assert "correct it" in app.stderr


@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
def test_a_broker_that_filters_by_no_sql_is_one_line_and_exit_code_2(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.send(topic, "one")
    app = run_app(_sql_app(topic, group, SQL))
    assert app.process.wait(30) == 2
    (line,) = [line for line in app.stderr.splitlines() if "sql=" in line]
    assert "app.py:" in line
    assert "set enablePropertyFilter=true there, or filter by tags=" in line


def test_a_predicate_of_a_plugin_decides_at_the_consumer(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.send(topic, *({"text": str(number), "properties": {"amount": str(number)}} for number in range(10)))
    app = run_app(
        f"""
        from rocketapp.plugin import hookimpl

        class Large:
            @hookimpl
            def message_filter(self, subscription):
                return lambda message: int(message.properties["amount"]) > 5

        app = RocketApp("{group}", plugins=[Large()])

        @app.subscribe("{topic}", start="first")
        async def take(message: Message) -> None:
            note("done", message)
        """,
        "--exit-when-idle",
        "1",
    )
    assert app.wait(within=30) == (10, 0, 0, 0)
    assert sorted(app.texts()) == ["6", "7", "8", "9"]
    assert java.lag(topic, group) == 0
