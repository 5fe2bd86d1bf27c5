"""What `app.sink` refuses where it is written, and what a sink is called."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sink_shop
from sink_shop import Order, Shop, all_rows, lake_plugin, until

from rocketapp import RocketApp, SetupError
from rocketapp.app.settings import Settings
from rocketapp.asyncapi.document import document_of
from rocketapp.testing.broker import serving
from rocketapp_lake import sink
from rocketapp_lake.parquet import LOG
from tests.cases import cases


@dataclass
class Tree:
    """A body without end."""

    above: Tree | None = None


@cases(
    "options, problem",
    [
        ({"format": "csv"}, "format='csv' is unknown: give 'parquet' or 'delta' or "),
        ({"flush_row": 5}, "flush_row= is unknown: flush_rows= is meant?"),
        ({"zone": 5}, "zone= is unknown"),
        ({"table": "s3://bucket/orders", "format": "parquet"}, "on a local or network file system"),
        ({"flush_rows": 0}, "flush_rows=0: Expected `int` >= 1"),
        ({"flush_seconds": 0}, "flush_seconds=0: Expected `float` > 0"),
        ({"bad_rows": "drop"}, "bad_rows='drop' is unknown"),
        (
            {"partition_by": "day", "format": "sql"},
            "partition_by= is for format='parquet' or format='delta' or format='iceberg'",
        ),
        ({"partition_by": "id", "format": "parquet"}, "partition_by='id': format='parquet' has 'day' or 'hour'"),
        ({"partition_by": "bucket(4, id)", "format": "delta"}, "format='delta' has columns, 'day' and 'hour'"),
        ({"partition_by": "no(id)", "format": "iceberg", "table": "a.b.c"}, "give a column, or a transform of one"),
        ({"partition_by": 5, "format": "delta"}, "partition_by=5: Expected `str | array | null`"),
        ({"schema": int}, "has no fields"),
        ({"on_offset_reset": "last"}, "on_offset_reset='last' is unknown: give 'fail' or 'new_epoch'"),
        ({"sort_by": "id", "format": "sql"}, "sort_by= is for format='parquet' or format='delta' or format="),
        ({"sort_by": [5], "format": "parquet"}, "sort_by=(5,): Expected `str`, got `int`"),
        (
            {"written_by": "duckdb", "format": "delta"},
            "written_by='duckdb' is unknown: give 'spark' or 'arrow'",
        ),
        ({"written_by": "arrow", "format": "sql"}, "written_by= is for format='parquet' or format='delta'"),
        ({"compact_every": 0}, "compact_every=0: Expected `float` > 0"),
        ({"target_file_size": 0}, "target_file_size=0: Expected `int` >= 1"),
        ({"name": 5}, "name=5: Expected `str"),
        ({"name": ""}, "name='': Expected `str` of length >= 1"),
        ({"name": "x" * 300}, "is too long"),
        ({"name": "a\0b"}, "has a sign that cannot be shown"),
        ({"table": "a\0b"}, "has a sign that no path has"),
        ({"url": "sqlite://", "format": "parquet"}, "url= is for format='sql'"),
        ({"sort_by": 5}, "sort_by=5: Expected `str | array | null`"),
        ({"flush_seconds": 10**400}, "Number out of range"),
        ({"target_file_size": 7}, "target_file_size=7 does nothing without compact_every="),
        ({"schema": Tree}, "holds itself"),
        ({"schema": "id STRING, ID STRING"}, "columns 'id' and 'ID' differ in case alone"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_written(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SetupError) as caught:
        Shop("orders", Path("table")).app(**options)
    assert problem in caught.value.problem
    assert caught.value.place.startswith(sink_shop.__file__)


@pytest.mark.parametrize(
    ("options", "problem"),
    [({}, "table= is missing"), ({"tabel": "orders"}, "tabel= is unknown: table= is meant?")],
)
def test_a_sink_without_a_table_says_so(options: dict[str, Any], problem: str) -> None:
    app: Any = RocketApp("shop", plugins=lake_plugin())
    with pytest.raises(SetupError, match=problem) as caught:
        app.sink("orders", **options)
    assert caught.value.place.startswith(__file__)


def test_sort_by_with_the_value_none_is_as_left_out(tmp_path: Path) -> None:
    app = RocketApp("shop", plugins=lake_plugin())
    sink(app, "orders", table=tmp_path, format="parquet", sort_by=None)
    with pytest.raises(SetupError, match="the same name and table"):
        sink(app, "orders", table=tmp_path, format="parquet")


def test_a_format_whose_library_is_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with pytest.raises(SetupError, match=r"needs pyiceberg: pip install 'rocketapp\[lake\]'"):
        Shop("orders", Path("table")).app(format="iceberg", table="lake.shop.orders")


def test_the_typed_function_declares_as_the_method_does() -> None:
    app = RocketApp("shop", plugins=lake_plugin())
    sink(app, "orders", table="orders", schema=Order)
    with pytest.raises(SetupError, match="flush_rows=0") as caught:
        sink(app, "payments", table="payments", flush_rows=0)
    assert caught.value.place.startswith(__file__)


def test_two_sinks_of_one_name_and_table_are_refused_with_both_places() -> None:
    app = RocketApp("shop", plugins=lake_plugin())
    sink(app, "orders", table="all", name="one")
    with pytest.raises(SetupError, match=f"the sink at {__file__}:\\d+ has the same name and table"):
        sink(app, "payments", table="./all/", name="one")


def test_of_several_topics_each_has_a_table_of_its_own_or_all_have_one(tmp_path: Path) -> None:
    app = RocketApp("shop", plugins=lake_plugin())
    sink(app, ["orders", "refunds"], table=tmp_path / "{topic}", group="each", name="each")
    sink(app, ["orders", "refunds"], table=tmp_path / "all", group="all")
    with pytest.raises(SetupError, match="has the same name and table"):
        sink(app, "orders", table=tmp_path / "orders", name="each", group="other")
    with pytest.raises(SetupError, match="has the same name and table"):
        sink(app, ["payments", "invoices"], table=tmp_path / "one", name="one")
    with pytest.raises(SetupError, match="no topic is named"):
        sink(app, [], table=tmp_path / "none")


def test_tags_are_those_of_subscribe_one_text_or_several(tmp_path: Path) -> None:
    app = RocketApp("shop", plugins=lake_plugin())
    sink(app, "orders", table=tmp_path / "one", tags="paid || refunded")
    sink(app, "payments", table=tmp_path / "several", tags=["paid", "refunded"])
    assert len(document_of(app, Settings())["operations"]) == 2


async def test_several_topics_land_in_one_table_by_one_function(shop: Shop) -> None:
    other, topic = f"{shop.topic}-other", shop.topic
    shop.topic = [topic, other]  # type: ignore[assignment]
    app = shop.app(format="parquet")
    shop.decorate(lambda batch: batch.select(["id", "_rmq_topic"]))
    async with app:
        await app.publish_many(topic, [Order(1, "here")])
        await app.publish_many(other, [Order(2, "there")])
        await shop.has(1, 2)
    assert {(row["id"], row["_rmq_topic"]) for row in shop.rows()} == {(1, topic), (2, other)}


def test_two_sinks_of_one_topic_and_group_are_refused_with_both_places_of_the_user() -> None:
    app = RocketApp("shop", plugins=lake_plugin())
    sink(app, "orders", table="one")
    with pytest.raises(SetupError, match=f"the sink at {__file__}:\\d+ has the same topic and group") as caught:
        sink(app, "orders", table="two", name="shop/two", tags="paid")
    assert caught.value.place.startswith(__file__)


async def test_the_sinks_of_two_clusters_do_not_take_each_others_messages(shop: Shop, tmp_path: Path) -> None:
    with serving() as west:
        app: Any = RocketApp("shop", plugins=lake_plugin(), clusters={"west": west})
        for place, cluster in (("here", None), ("west", "west")):
            table = tmp_path / place
            sink(app, shop.topic, table=table, format="parquet", schema=Order, flush_seconds=0.2, cluster=cluster)
        async with app:
            await app.publish_many(shop.topic, [Order(1, "here")])
            await app.publish_many(shop.topic, [Order(2, "west")], cluster="west")
            await until(lambda: all((tmp_path / place / LOG).exists() for place in ("here", "west")))
    assert {place: [row["item"] for row in all_rows(tmp_path / place)] for place in ("here", "west")} == {
        "here": ["here"],
        "west": ["west"],
    }


@pytest.mark.parametrize("problem", [ValueError("two\nlines"), SystemExit(3)])
async def test_a_function_that_fails_is_named_with_its_line_and_the_app_goes_on(
    shop: Shop, problem: BaseException
) -> None:
    app, left = shop.app(), [problem]

    @shop.decorate
    def failing(batch: pa.Table) -> pa.Table:
        if left:
            raise left.pop()
        return batch

    async with app:
        await shop.send(app, [1])
        await shop.has(1)
    line = failing.__code__.co_firstlineno + 3
    (reason,) = shop.watch.reasons()
    assert f"the function of the sink failed at test_declaring.py:{line}: {type(problem).__name__}" in reason


async def work_on(batch: pa.Table) -> pa.Table:
    return batch


@pytest.mark.parametrize(
    ("function", "problem"),
    [(work_on, "make it a plain `def`"), (lambda: None, "takes one argument"), (5, "5 is not a function")],
)
def test_a_function_that_cannot_work_is_refused(function: Any, problem: str) -> None:
    shop = Shop("orders", Path("table"))
    shop.app()
    with pytest.raises(SetupError, match=problem):
        shop.decorate(function)


@pytest.mark.parametrize(
    ("schema", "message"), [(Order, "orders.Order"), (None, "orders.Message"), ("id STRING", "orders.Message")]
)
def test_the_document_of_an_app_tells_what_a_sink_lands(schema: Any, message: str, tmp_path: Path) -> None:
    app = RocketApp("shop", plugins=lake_plugin())
    sink(app, "orders", table=tmp_path / "orders", schema=schema)
    document = document_of(app, Settings())
    assert list(document["components"]["messages"]) == [message]
    (operation,) = document["operations"].values()
    assert operation["summary"] == "Lands each message of the topic in a table, once."
