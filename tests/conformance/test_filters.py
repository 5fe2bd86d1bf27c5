"""Filters beside tags: SQL at the broker, and a plugin's predicate at the consumer.

The cases that filter by SQL run on Apache's broker alone: the embedded one evaluates no SQL, and refuses it.
"""

from __future__ import annotations

from tests.conftest import RunApp, on_apache, on_embedded
from tests.peers.java_client import JavaClient

SQL = "amount > 5 AND TAGS = 'paid'"


def _sql_app(topic: str, group: str, sql: str, options: str = "") -> str:
    return f"""
    app = RocketApp("{group}")

    @app.subscribe("{topic}", sql={sql!r}, start="first"{options})
    async def take(message: Message) -> None:
        note("done", message)
    """


@on_apache
def test_the_broker_hands_out_what_each_sql_filter_takes(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 2)
    messages = [
        {"tag": "paid", "properties": {"amount": "6", "region": "north"}},
        {"tag": "paid", "properties": {"amount": "5", "region": "south"}},
        {"tag": "open", "properties": {"amount": "90", "region": "été"}},
        {"tag": "paid"},
        {"properties": {"amount": "101"}},
    ]
    java.send(topic, *({"text": str(n), "queue": n % 2, **one} for n, one in enumerate(2 * messages)))
    cases = [
        (SQL, "", {0}),
        (SQL, ", broadcast=True", {0}),
        (SQL, ', mode="pop"', {0}),
        ("TRUE", "", {0, 1, 2, 3, 4}),
        ("amount > 6", "", {2, 4}),
        ("(amount BETWEEN 6 AND 100) AND region IS NOT NULL", "", {0, 2}),
        ("product = 'MQ'", "", set()),
        ("TAGS IS NOT NULL AND TAGS IN ('paid', 'lost')", "", {0, 1, 3}),
        ("TRUE", ", orderly=True", {0, 1, 2, 3, 4}),
        ("amount > 5", ", orderly=True", {0, 2, 4}),
    ]
    source = [f'app = RocketApp("{group}")']
    for number, (sql, options, _) in enumerate(cases):
        source += [
            f'@app.subscribe("{topic}", sql={sql!r}, group="{group}-{number}", start="first"{options})',
            f"async def take{number}(message: Message) -> None:",
            f'    note("done", message, case={number})',
        ]
    app = run_app("\n".join(source), "--exit-when-idle", "1")
    app.wait(within=60)
    for number, (sql, options, taken) in enumerate(cases):
        wanted = [str(n) for n in range(2 * len(messages)) if n % len(messages) in taken]
        assert sorted(app.texts(case=number)) == wanted, (sql, options)
        if "orderly" in options:
            for queue in (0, 1):
                assert app.texts(case=number, queue=queue) == [text for text in wanted if int(text) % 2 == queue]


@on_apache
def test_an_expression_that_is_wrong_is_refused_at_the_start(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.send(topic, "one")
    app = run_app(_sql_app(topic, group, "amount >"))
    assert app.ended(within=30) == 2
    assert f"sql='amount >' of topic '{topic}': broker " in app.stderr
    assert "correct it" in app.stderr


@on_embedded
def test_a_broker_that_filters_by_no_sql_is_one_line_and_exit_code_2(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.send(topic, "one")
    app = run_app(_sql_app(topic, group, SQL))
    assert app.ended(within=30) == 2
    (line,) = [line for line in app.stderr.splitlines() if "sql=" in line]
    assert "app.py:" in line
    assert "set enablePropertyFilter=true there, or filter by tags=" in line


@on_apache
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
