"""Filters beside tags: SQL at the broker, and a plugin's predicate at the consumer."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random

from rocketapp.state.sql_filter import compile_sql
from tests.conftest import RunApp, on_apache
from tests.peers import toolchain
from tests.peers.java_client import JavaClient

SQL = "amount > 5 AND TAGS = 'paid'"


ATOMS = (
    *("a", "b", "c", "d", "zz", "TAGS", "-a", "TRUE", "FALSE", "null", "5", "5L", "0", "-7", "+5", "007"),
    *(
        "2147483648",
        "3000000000",
        "9223372036854775807",
        "9223372036854775808",
        "5.0",
        "1e3",
        ".5",
        "5.",
        "0.0",
        "1e400",
    ),
)
TEXTS = ("'5'", "'x'", "'5.0'", "'true'", "'it''s'", "''", "' '", "'TagA'")
PROPERTIES = (
    {"a": "5", "b": "x", "c": "true", "TAGS": "TagA"},
    {"a": "-7", "b": "it's x", "c": "TRUE", "d": "5.0"},
    {"a": "3000000000", "b": "NaN", "c": "1e3", "d": " 2.5 "},
    {"a": "0.0", "b": "+5", "c": "5d", "d": "-0.0", "TAGS": "5"},
    {},
)
_NOISE = (" ", "(", ")", "'", ";", "-", "--", "/*", "*/ ", "NOT ", "é", "=", "<", ".", "5", "\n", " more", " AND ")


def _expression(random: Random, depth: int) -> str:
    def operand() -> str:
        if depth and random.random() < 0.4:
            return f"({_expression(random, depth - 1)})"
        return random.choice(ATOMS + TEXTS)

    def listed() -> str:
        return ", ".join(random.choices(TEXTS, k=random.randrange(1, 7)))

    word, kind = random.choice(["", "NOT ", "not "]), random.randrange(9)
    if kind == 0:
        return f"{operand()} {word}BETWEEN {operand()} AND {operand()}"
    if kind == 1:
        return f"{operand()} {word}IN ({listed()})"
    if kind == 2:
        return f"{operand()} IS {word}NULL"
    if kind == 3:
        return f"{operand()} {word}{random.choice(['CONTAINS', 'startswith', 'ENDSWITH'])} {random.choice(TEXTS)}"
    if kind == 4:
        return f"{word}{operand()}"
    if kind == 5 and depth:
        return f" {random.choice(['AND', 'OR'])} ".join(_expression(random, depth - 1) for _ in range(3))
    if kind == 6 and depth:
        whole = _expression(random, depth - 1)
        at = random.randrange(len(whole) + 1)
        return whole[:at] + random.choice(_NOISE) + whole[at + random.randrange(2) :]
    return f"{operand()} {random.choice(['=', '=', '<>', '>', '>=', '<', '<='])} {operand()}"


def test_thousands_of_expressions_mean_what_they_mean_to_apaches_broker(java_classes: Path, tmp_path: Path) -> None:
    random = Random(20260131)
    expressions = sorted({_expression(random, depth) for depth in (0, 1, 1, 2, 2) for _ in range(2000)})
    asked, answered = tmp_path / "cases.json", tmp_path / "answers.json"
    asked.write_text(json.dumps({"properties": PROPERTIES, "expressions": expressions}), encoding="utf-8")
    command = toolchain.java_command("Filtering", str(asked), str(answered), home=tmp_path, properties=toolchain.BRIEF)
    subprocess.run(command, check=True, timeout=300)
    theirs = json.loads(answered.read_text(encoding="utf-8"))
    ours: list[object] = []
    for expression in expressions:
        try:
            accepts = compile_sql(expression)
        except ValueError:
            ours.append("illegal")
        else:
            ours.append([accepts(one) for one in PROPERTIES])
    java = [one if one == "illegal" else [value is True for value in one] for one in theirs]
    assert [both for both in zip(expressions, ours, java, strict=True) if both[1] != both[2]][:3] == []
    legal = [one for one in theirs if one != "illegal"]
    assert len(legal) > 1000
    assert {str(value) for one in legal for value in one} == {"True", "False", "None", "error"}


def _sql_app(topic: str, group: str, sql: str, options: str = "") -> str:
    return f"""
    app = RocketApp("{group}")

    @app.subscribe("{topic}", sql={sql!r}, start="first"{options})
    async def take(message: Message) -> None:
        note("done", message)
    """


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


def test_an_expression_that_is_wrong_is_refused_at_the_start(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.send(topic, "one")
    app = run_app(_sql_app(topic, group, "amount >"))
    assert app.ended(within=30) == 2
    assert f"sql='amount >' of topic '{topic}': broker " in app.stderr
    assert "correct it" in app.stderr


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
