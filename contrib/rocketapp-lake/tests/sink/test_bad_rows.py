"""Poison on whole apps: good rows are exact, and bad ones are in their place once, with coordinates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from sink_shop import Landing, Order, Shop, all_rows, commits_fail, until

from rocketapp import Message, MessageQueue, SetupError
from rocketapp_lake.bad_rows import LEAST_ROWS
from rocketapp_lake.columns import TIMESTAMP
from rocketapp_lake.commands import command
from rocketapp_lake.errors import SinkError
from rocketapp_lake.options import FILES

Place = tuple[str, str, int, int]


def is_bad(number: int, every: int) -> bool:
    return number % every == every - 1


async def send(shop: Shop, app: Any, numbers: range, every: int, order_key: str | None = None) -> None:
    """One of `every` is poison."""
    bodies = [b"{%d" % number if is_bad(number, every) else Order(number, "x") for number in numbers]
    await app.publish_many(shop.topic, bodies, tag="t", order_key=order_key)


class Received:
    """What comes to the topic of bad rows."""

    def __init__(self, shop: Shop, app: Any, topic: str) -> None:
        self.messages: list[Message] = []

        @app.subscribe(topic, group=f"watch-{topic}", start="first")
        async def take(message: Message) -> None:
            self.messages.append(message)

    def places(self) -> list[Place]:
        found = [message.properties for message in self.messages]
        return [
            (
                one["rocketapp.topic"],
                one["rocketapp.broker"],
                int(one["rocketapp.queue"]),
                int(one["rocketapp.offset"]),
            )
            for one in found
        ]


def places_of(rows: list[dict[str, Any]]) -> list[Place]:
    return [(row["_rmq_topic"], row["_rmq_broker"], row["_rmq_queue"], row["_rmq_offset"]) for row in rows]


@pytest.mark.parametrize(("every", "ratio"), [(100, None), (1, 1.0)], ids=["1 %", "100 %"])
@pytest.mark.parametrize("bad_rows", ["table", "topic"])
async def test_good_rows_are_exact_and_bad_ones_are_there_once(
    shop: Shop, bad_rows: str, every: int, ratio: float | None
) -> None:
    count = 2_000
    bad = {number for number in range(count) if is_bad(number, every)}
    topic = f"{shop.topic}-bad"
    more = {"bad_rows_topic": topic} if bad_rows == "topic" else {}
    app = shop.app(bad_rows=bad_rows, bad_rows_max_ratio=ratio, **more)
    received = Received(shop, app, topic)
    beside = shop.table.with_name("table_bad")
    async with app:
        await send(shop, app, range(count), every)
        if bad_rows == "topic":
            await until(lambda: len(received.messages) >= len(bad))
        else:
            await until(lambda: beside.is_dir() and any(beside.glob("*.parquet")) and len(all_rows(beside)) == len(bad))
        await until(lambda: len(shop.rows()) == count - len(bad) and shop.watch.held(shop.topic) == 0)
    assert shop.ids() == [number for number in range(count) if number not in bad]
    if bad_rows == "topic":
        bodies, places = [message.body for message in received.messages], received.places()
        assert {message.properties["rocketapp.sink"] for message in received.messages} == {f"shop/{shop.topic}"}
        assert all(message.tag == "t" for message in received.messages)
        assert all("malformed" in message.properties["rocketapp.reason"] for message in received.messages)
    else:
        bodies, places = [row["_rmq_body"] for row in all_rows(beside)], places_of(all_rows(beside))
    assert Counter(bodies) == Counter(b"{%d" % number for number in bad)
    assert len(set(places) | set(places_of(shop.rows()))) == count


@pytest.mark.parametrize("bad_rows", ["table", "topic"])
async def test_a_queue_of_which_too_much_is_bad_stops_at_its_position_and_nothing_floods(
    shop: Shop, bad_rows: str
) -> None:
    app = shop.app(bad_rows=bad_rows, flush_rows=100_000, flush_seconds=2.0)
    count = 2 * LEAST_ROWS
    async with app:
        await send(shop, app, range(count), 10, order_key="one queue")
        await until(lambda: bool(shop.watch.reasons()))
        reasons = shop.watch.reasons()
    assert shop.rows() == []
    assert not shop.table.with_name("table_bad").exists()
    assert all("stops at #0: " in reason and "bad_rows_max_ratio=0.05" in reason for reason in reasons)
    # Nothing is lost: with a ratio that bears it the queues go on from there.
    async with shop.app(bad_rows="table", bad_rows_max_ratio=0.2):
        await until(lambda: len(shop.rows()) == count * 9 // 10)
    assert shop.ids() == [number for number in range(count) if not is_bad(number, 10)]


async def test_a_copy_carries_what_the_message_has_and_the_default_topic_is_named_after_the_table(shop: Shop) -> None:
    app = shop.app(bad_rows="topic", table=shop.table / shop.topic)
    received = Received(shop, app, f"{shop.topic}-bad")
    async with app:
        sent = await app.publish(
            shop.topic, b"poison", tag="paid", keys=["k1", "k2"], properties={"color": "red"}, order_key="one"
        )
        await until(lambda: bool(received.messages))
    (copy,) = received.messages
    assert (copy.body, copy.tag, copy.keys, copy.properties["color"]) == (b"poison", "paid", ["k1", "k2"], "red")
    assert received.places() == [(shop.topic, sent.queue.broker_name, sent.queue.queue_id, sent.queue_offset)]
    assert int(copy.properties["rocketapp.stored_ms"]) > 0


async def test_a_bad_row_is_published_before_its_batch_and_once_although_the_batch_fails(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, topic = shop.app(bad_rows="topic", bad_rows_topic=f"{shop.topic}-x"), f"{shop.topic}-x"
    received, problems = Received(shop, app, topic), commits_fail(monkeypatch, OSError("no space left"), 1)
    async with app:
        await app.publish_many(shop.topic, [b"{", Order(1, "x")], order_key="one")
        await shop.has(1)
        await until(lambda: bool(received.messages))
    assert not problems
    assert [message.body for message in received.messages] == [b"{"]


async def test_a_run_that_ends_between_the_two_publishes_again_and_repeats_have_the_same_place(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"{shop.topic}-x"
    first = shop.app(bad_rows="topic", bad_rows_topic=topic)
    with monkeypatch.context() as patch:
        commits_fail(patch, SinkError("no"), 100)
        async with first:
            await first.publish_many(shop.topic, [b"{", Order(1, "x")], order_key="one")
            await until(lambda: bool(shop.watch.reasons()))
    second = shop.app(bad_rows="topic", bad_rows_topic=topic)
    received = Received(shop, second, topic)
    async with second:
        await shop.has(1)
        await until(lambda: len(received.messages) == 2)
    assert len(set(received.places())) == 1


async def test_a_bad_row_that_comes_when_positions_were_set_back_waits_for_those_below(shop: Shop) -> None:
    bad = Shop(shop.topic, shop.table.with_name("table_bad"))
    async with shop.app(bad_rows="table", bad_rows_max_ratio=1.0) as app:
        await app.publish_many(shop.topic, [b"{0", Order(1, "x")], order_key="a")
        await shop.has(1)
        await until(lambda: bool(bad.rows()))
        (row,) = bad.rows()
        queue = MessageQueue(row["_rmq_topic"], row["_rmq_broker"], row["_rmq_queue"])
        done = CliRunner().invoke(command, ["rebase", str(shop.table), "--to", f"{queue}=0"])
        assert done.exit_code == 0, done.output
        await app.publish_many(shop.topic, [b"{2", Order(3, "x")], order_key="a")
        await shop.has(1, 1, 3)
    assert sorted(row["_rmq_body"] for row in bad.rows()) == [b"{0", b"{0", b"{2"]


@pytest.mark.parametrize("bad_rows", ["fail", "column", "table"])
async def test_a_value_that_its_column_cannot_hold_is_a_bad_row(shop: Shop, bad_rows: str) -> None:
    async with shop.app(bad_rows=bad_rows) as app:
        await app.publish_many(shop.topic, [b'{"id": 18446744073709551616, "item": "x"}', Order(1, "x")], order_key="a")
        if bad_rows == "fail":
            await until(lambda: bool(shop.watch.reasons()))
            assert "cannot be decoded: field id: " in next(iter(shop.watch.reasons()))
        elif bad_rows == "column":
            await until(lambda: len(shop.rows()) == 2)
            assert [row["_rmq_problem"][:9] for row in shop.rows() if row["_rmq_problem"]] == ["field id:"]
        else:
            await shop.has(1)
            bad = Shop(shop.topic, shop.table.with_name("table_bad"))
            await until(lambda: [row["_rmq_problem"][:9] for row in bad.rows()] == ["field id:"])


@pytest.mark.parametrize("format", FILES)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (TIMESTAMP, '"{}"'),
        (pa.list_(pa.struct({"item": pa.string(), "day": TIMESTAMP})), '[{{"item": "a", "day": "{}"}}]'),
        (pa.large_list(TIMESTAMP), '["{}"]'),
        (pa.map_(pa.string(), TIMESTAMP), '{{"begin": "{}"}}'),
    ],
    ids=["plain", "in a list", "in a large list", "in a map"],
)
async def test_a_time_that_has_no_year_in_utc_is_a_bad_row(
    landing: Landing, format: str, kind: pa.DataType, value: str
) -> None:
    """The least time of a producer where clocks are ahead of UTC, and the greatest one where they are behind."""
    times = ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-05:00", "2026-01-01T00:00:00Z"]
    bodies = [f'{{"id": {number}, "at": {value.format(time)}}}'.encode() for number, time in enumerate(times)]
    own = {"bad_rows": "table", "bad_rows_max_ratio": 1.0, "flush_seconds": 0.2}
    async with landing.app(format, schema=pa.schema({"id": pa.int64(), "at": kind}), **own) as app:
        await app.publish_many(landing.shop.topic, bodies, order_key="one")
        await until(lambda: len(landing.rows(format, "orders_bad")) == 2)
        await until(lambda: [row["id"] for row in landing.rows(format)] == [2])
    assert {row["_rmq_problem"][:9] for row in landing.rows(format, "orders_bad")} == {"field at:"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"bad_rows_topic": "x"}, "bad_rows_topic='x' needs bad_rows=\"topic\""),
        ({"bad_rows": "topic", "bad_rows_topic": "orders"}, "is the topic of the sink"),
        ({"bad_rows": "topic", "bad_rows_topic": "a b"}, "bad_rows_topic='a b': "),
        ({"bad_rows_max_ratio": 0.1}, "bad_rows_max_ratio=0.1 needs bad_rows="),
        ({"bad_rows": "table", "bad_rows_max_ratio": 5}, "bad_rows_max_ratio=5: Expected `float` <= 1"),
        ({"evolution": "rename"}, "evolution='rename' is unknown: give 'fail' or 'add'"),
    ],
)
def test_options_that_cannot_work_are_refused(shop: Shop, options: dict[str, Any], problem: str) -> None:
    shop.topic = "orders"
    with pytest.raises(SetupError) as caught:
        shop.app(**options)
    assert problem in caught.value.problem


@dataclass
class Renamed:
    """What a newer version of the app calls it."""

    id: int
    name: str


async def test_nothing_is_put_aside_by_a_type_that_the_table_does_not_take(shop: Shop) -> None:
    async with shop.app(bad_rows="table") as app:
        await shop.send(app, [0])
        await shop.has(0)
    async with shop.app(bad_rows="table", schema=Renamed, flush_rows=2, flush_seconds=3600.0) as app:
        await app.publish_many(shop.topic, [Order(1, "x"), Renamed(2, "y")])
        await until(lambda: any("and the table has (id int64, item string" in one for one in shop.watch.reasons()))
    async with shop.app(bad_rows="table") as app:
        await shop.send(app, [3])
        await shop.has(0, 1, 3)
    bad = Shop(shop.topic, shop.table.with_name("table_bad")).rows()
    assert [row["_rmq_body"] for row in bad] == [b'{"id":2,"name":"y"}']
