"""Which messages a tag expression takes, exactly: the broker filters by hash, the consumer by text."""

from __future__ import annotations

from typing import NamedTuple

from tests.conftest import RunApp, on_apache
from tests.peers.java_client import JavaClient


class Case(NamedTuple):
    """One subscription and the tags of what is sent; None is a message without a tag."""

    name: str
    expression: str
    sent: tuple[str | None, ...]
    taken: tuple[str | None, ...]


LONG = "t" * 10_240
CASES = (
    Case("one of two", "A||B", ("A", "A"), ("A", "A")),
    Case("two of two", "A||B", ("A", "B"), ("A", "B")),
    Case("two of three", "A || C", ("A", "B", "C", "B"), ("A", "C")),
    Case("star", "*", ("A", "B", None), ("A", "B", None)),
    Case("empty is star", "", ("A", None), ("A", None)),
    Case("other tag", "B", ("A", "A", None), ()),
    Case("very long tag", LONG, (LONG, "t"), (LONG,)),
    Case("spaces", "  A  ||   B ", ("A", "B", "C"), ("A", "B")),
    Case("empty alternatives", "A||||B", ("A", "B", "C"), ("A", "B")),
    Case("star sent as a tag", "*", ("*", "A"), ("*", "A")),
    Case("star is no wildcard among others", "*||A", ("*", "A", "B"), ("*", "A")),
    Case("equal hashes", "BB", ("Aa", "BB", "Aa"), ("BB",)),
    Case("upper and lower case", "BB", ("bb", "Bb"), ()),
    Case("not ascii", "标签 || été", ("标签", "été", "ete"), ("标签", "été")),
    Case("unknown alternative", "A|| noExist", ("A", "B"), ("A",)),
)


def test_every_expression_takes_exactly_its_messages(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    source = [f'app = RocketApp("{group}")']
    for number, case in enumerate(CASES):
        messages = [
            {"text": f"{case.name}|{index}", **({"tag": tag} if tag else {})} for index, tag in enumerate(case.sent)
        ]
        java.send(f"{topic}-{number}", *messages)
        source += [
            f'@app.subscribe("{topic}-{number}", tags={case.expression!r}, group="{group}-{number}", start="first")',
            f"async def take{number}(message: Message) -> None:",
            f'    note("done", message, case={case.name!r})',
        ]
    app = run_app("\n".join(source), "--exit-when-idle", "1")
    counts = app.wait(within=40)
    for case in CASES:
        taken = sorted(app.texts(case=case.name))
        wanted = sorted(f"{case.name}|{index}" for index, tag in enumerate(case.sent) if tag in case.taken)
        assert taken == wanted, case.name
        assert len(wanted) == len(case.taken)
    assert counts.handled == sum(len(case.taken) for case in CASES)


@on_apache
def test_handlers_of_one_topic_are_told_apart_by_tag(java: JavaClient, run_app: RunApp, topic: str, group: str) -> None:
    java.send(topic, *({"text": f"{tag}{n}", "tag": tag} for tag in ("paid", "shipped", "lost") for n in range(5)))
    java.send(topic, "untagged")
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}", tags="paid || refunded", start="first")
        async def settle(message: Message) -> None:
            note("settle", message)

        @app.subscribe("{topic}", tags="shipped", start="first")
        def ship(message: Message) -> None:
            note("ship", message)

        @app.subscribe("{topic}", start="first")
        async def rest(message: Message) -> None:
            note("rest", message)
        """,
        "--exit-when-idle",
        "1",
    )
    counts = app.wait(within=30)
    assert sorted(app.texts("settle")) == [f"paid{n}" for n in range(5)]
    assert sorted(app.texts("ship")) == [f"shipped{n}" for n in range(5)]
    assert sorted(app.texts("rest")) == [*(f"lost{n}" for n in range(5)), "untagged"]
    assert counts == (16, 0, 0, 0)


@on_apache
def test_filtered_messages_count_as_done_when_offsets_are_committed(
    java: JavaClient, run_app: RunApp, topic: str, group: str
) -> None:
    java.create_topic(topic, 1)
    java.send(topic, {"text": "wanted", "tag": "A"}, *({"text": str(n), "tag": "B"} for n in range(20)))
    app = run_app(
        f"""
        app = RocketApp("{group}")

        @app.subscribe("{topic}", tags="A", start="first")
        async def take(message: Message) -> None:
            note("done", message)
        """,
        "--exit-when-idle",
        "1",
    )
    assert app.wait(within=30).handled == 1
    assert java.lag(topic, group) == 0
