"""Batches that run again are once in the table. The frame is one that has no session behind it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from pyspark_rocketmq.once import delta_once, iceberg_once, sql_once
from pyspark_rocketmq.problems import WriteError

EPOCH, ANY_ZONE = datetime(1970, 1, 1, tzinfo=UTC), pa.timestamp("us", tz="Europe/Berlin")


class Frame:
    """Five rows of a batch of a query; before they are handed over, others may do something."""

    def __init__(
        self, count: int = 5, meanwhile: Callable[[], object] = lambda: None, checkpoint: str | None = "one"
    ) -> None:
        self.count, self.meanwhile, self.asked = count, meanwhile, 0
        context = SimpleNamespace(getLocalProperty={"sql.streaming.queryId": checkpoint}.get)
        self.sparkSession = SimpleNamespace(sparkContext=context)

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        self.asked += 1
        self.meanwhile()
        return pa.table({"id": pa.array(range(self.count), pa.int64())})


class Table:
    """One in each format: how it is written, how many rows it has, and what others append."""

    def __init__(self, kind: str, home: Path) -> None:
        self.kind, self.place = kind, str(home / "table")
        self.url = f"sqlite:///{home / 'rows.db'}"
        self.catalog = {"type": "sql", "uri": f"sqlite:///{home / 'catalog.db'}", "warehouse": f"file://{home}"}
        schema = pa.schema([("id", pa.int64())])
        if kind == "sql":
            self.execute("CREATE TABLE orders (id BIGINT)")
        elif kind == "iceberg":
            with load_catalog("once", **self.catalog) as catalog:
                catalog.create_namespace("lake")
                catalog.create_table("lake.orders", schema)

    def execute(self, sql: str) -> Any:
        engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            found = connection.exec_driver_sql(sql)
            return found.scalar() if found.returns_rows else None

    def store(self, name: str) -> Any:
        if self.kind == "delta":
            return delta_once(self.place, name)
        return (
            sql_once(self.url, "orders", name)
            if self.kind == "sql"
            else iceberg_once(self.catalog, "lake.orders", name)
        )

    def rows(self) -> int:
        if self.kind == "delta":
            return DeltaTable(self.place).to_pyarrow_table().num_rows
        if self.kind == "sql":
            return int(self.execute("SELECT count(*) FROM orders"))
        with load_catalog("once", **self.catalog) as catalog:
            return catalog.load_table("lake.orders").scan().to_arrow().num_rows

    def append_one(self) -> None:
        rows = pa.table({"id": pa.array([-1], pa.int64())})
        if self.kind == "delta":
            write_deltalake(self.place, rows, mode="append")
        else:
            with load_catalog("once", **self.catalog) as catalog:
                catalog.load_table("lake.orders").append(rows)


@pytest.fixture(params=["delta", "iceberg", "sql"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return Table(request.param, tmp_path)


def test_a_batch_that_runs_again_is_once_in_the_table(table: Table) -> None:
    store = table.store("query")
    for batch in (0, 0, 1, 1):
        store(Frame(), batch)
    assert table.rows() == 10
    table.store("another")(Frame(), 0)
    assert table.rows() == 15
    with pytest.raises(WriteError, match="has batch 1 of query, this is 0: its checkpoint is older than the table"):
        store(Frame(), 0)
    again = Frame()
    store(again, 1)
    assert (again.asked, table.rows()) == (0, 15)


@pytest.mark.parametrize("batch", [0, 1])
def test_a_new_checkpoint_under_an_old_name_is_refused_and_not_left_out(table: Table, batch: int) -> None:
    store, new = table.store("query"), Frame(checkpoint="another")
    store(Frame(), 0)
    for _ in range(2):
        with pytest.raises(WriteError, match="this is of another checkpoint: give each checkpoint its own name"):
            store(new, batch)
    assert (new.asked, table.rows()) == (0, 5)
    table.store("new")(new, 0)
    store(Frame(), 1)
    assert table.rows() == 15


def test_where_spark_does_not_tell_the_query_a_batch_counts_by_its_name(table: Table) -> None:
    store = table.store("query")
    remote = Frame()
    del remote.sparkSession.sparkContext  # as a session through Connect
    for frame in (Frame(checkpoint=None), remote):
        store(frame, 0)
    assert table.rows() == 5


@pytest.mark.parametrize("table", ["iceberg"], indirect=True)
def test_of_the_properties_of_an_iceberg_table_only_the_number_changes(table: Table) -> None:
    table.store("query")(Frame(), 3)
    with load_catalog("once", **table.catalog) as catalog:
        changed = {name for name in catalog.load_table("lake.orders").properties if not name.startswith("write.")}
    assert changed == {"rocketapp.sink.query"}


def test_a_batch_without_rows_is_kept_in_mind(table: Table) -> None:
    store = table.store("query")
    store(Frame(), 0)
    store(Frame(0), 1)
    store(Frame(), 1)
    assert table.rows() == 5


def test_a_batch_that_breaks_off_leaves_nothing(table: Table) -> None:
    def broken() -> None:
        raise RuntimeError("broken")

    store = table.store("query")
    with pytest.raises(RuntimeError, match="broken"):
        store(Frame(meanwhile=broken, checkpoint="deleted since"), 0)
    store(Frame(), 0)
    with pytest.raises(RuntimeError, match="broken"):
        store(Frame(meanwhile=broken), 1)
    assert table.rows() == 5
    store(Frame(), 1)
    assert table.rows() == 10


@pytest.mark.parametrize("table", ["delta", "iceberg"], indirect=True)
def test_of_two_writers_of_a_batch_one_is_refused_and_leaves_it_out(table: Table) -> None:
    for batch in (0, 1):
        table.store("query")(Frame(meanwhile=lambda number=batch: table.store("query")(Frame(), number)), batch)
    assert table.rows() == 10


@pytest.mark.parametrize("table", ["sql"], indirect=True)
def test_of_two_writers_of_the_first_batch_one_is_refused_and_leaves_it_out(table: Table) -> None:
    others = [table.store("query")]

    def before(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "INTO rmq_commits" in statement and others:
            others.pop()(Frame(), 0)

    sa.event.listen(sa.Engine, "before_cursor_execute", before)
    try:
        table.store("query")(Frame(), 0)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", before)
    assert (table.rows(), others) == (5, [])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ANY_ZONE, EPOCH),
        (pa.list_(ANY_ZONE), [EPOCH]),
        (pa.struct([("first", ANY_ZONE), ("all", pa.list_(ANY_ZONE))]), {"first": EPOCH, "all": [EPOCH]}),
        (pa.map_(pa.string(), ANY_ZONE), [("first", EPOCH)]),
    ],
    ids=["time", "list", "struct", "map"],
)
def test_a_delta_table_is_made_of_rows_with_times_of_any_zone(tmp_path: Path, kind: pa.DataType, value: object) -> None:
    class Timed(Frame):
        def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
            return pa.table({"at": pa.array([value, None], kind)})

    table = str(tmp_path / "table")
    delta_once(table, "query")(Timed(), 0)  # type: ignore[arg-type]
    assert DeltaTable(table).to_pyarrow_table().column("at").to_pylist() == [value, None]


@pytest.mark.parametrize("table", ["delta", "iceberg"], indirect=True)
def test_a_foreign_commit_meanwhile_does_not_fail_the_query(table: Table) -> None:
    table.store("query")(Frame(), 0)
    slow = Frame(meanwhile=table.append_one)
    table.store("query")(slow, 1)
    assert (slow.asked, table.rows()) == (1, 11)
