"""The tutorial and the recipes, walked as a reader would: what they show is what happens."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import write_deltalake
from page_walk import Walk, blocks

from rocketapp.testing.broker import serving

DECLARED = "2. Declare the sink"
READERS = (
    "See that no row is lost or there twice",
    "Read with pandas and pyarrow",
    "Read with DuckDB",
)


def rows_of(table: str) -> list[dict[str, Any]]:
    if not list(Path(table).glob("*.parquet")):
        return []
    found: list[dict[str, Any]] = ds.dataset(table, format="parquet").to_table().to_pylist()
    return found


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what the app writes in its own time."""
    async with asyncio.timeout(200):
        while not condition():  # noqa: ASYNC110 - it waits for files
            await asyncio.sleep(0.05)


async def stored(table: str, count: int) -> list[dict[str, Any]]:
    """The rows of a table, when it has them all."""
    await until(lambda: len(rows_of(table)) >= count)
    rows = rows_of(table)
    assert len(rows) == count
    return rows


def in_stock() -> dict[str, int]:
    with closing(sqlite3.connect("shop.db")) as connection, suppress(sqlite3.OperationalError):
        return dict(connection.execute("SELECT item, count FROM stock").fetchall())
    return {}


def ids(rows: list[dict[str, Any]]) -> set[str]:
    return {row["id"] for row in rows}


@pytest.fixture
def name_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A broker without messages; the test is in a folder without files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROCKETAPP_CONSUMER__CRASH_DIR", "")
    monkeypatch.setenv("ROCKETAPP_CONSUMER__JOIN_TIMEOUT", "0")
    with serving() as address:
        monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", address)
        yield address


@pytest.mark.timeout(300)
async def test_the_tutorial(name_server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    walk = Walk("TUTORIAL.md", tmp_path, name_server)
    async with walk.runs(DECLARED).app:
        await walk.types("3. Run it, and send orders", "rocketapp send")
        await stored("lake/orders", 3)
        shown = await walk.types("3. Run it, and send orders", "rocketapp sink show")
        assert re.match(r"shop/orders: commit \d at .*, 3 rows\n", shown)
        walk.runs("4. Read the table")
        assert capsys.readouterr().out == blocks("TUTORIAL.md", "text")["4. Read the table", 0]
    async with walk.runs(DECLARED).app:
        await walk.types("5. Stop it, and go on", "rocketapp send")
        assert ids(await stored("lake/orders", 4)) == {"1", "2", "3", "4"}
    async with walk.runs("6. Change rows on their way").app:
        assert ids(await stored("lake/large", 2)) == {"2", "3"}
    assert walk.left == set()


@pytest.mark.timeout(300)
async def test_the_recipes(name_server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    walk = Walk("HOW-TO.md", tmp_path, name_server)
    orders = [{"id": str(number), "item": ("cocoa", "tea")[number % 2], "cents": number} for number in range(1000)]
    async with Walk("TUTORIAL.md", tmp_path, name_server).runs(DECLARED).app as app:
        await app.publish_many("orders", orders[:500])
        await stored("lake/orders", 500)
        await app.publish_many("orders", orders[500:])
        await stored("lake/orders", 1000)

    async with walk.runs("Add a column later").app as app:
        await app.publish("orders", {"id": "1000", "item": "tea", "cents": 0, "note": "a gift"})
        await stored("lake/orders", 1001)
        for heading in READERS:
            await asyncio.to_thread(walk.runs, heading)
        await asyncio.to_thread(walk.runs, "Read with pandas and pyarrow", 1)
        told = capsys.readouterr().out
        assert re.search(r"^499500$", told, re.MULTILINE)  # by pandas
        assert re.search(r"^1$\n.*tea +a gift", told, re.MULTILINE | re.DOTALL)  # by pyarrow
        assert (told.count("249500"), told.count("250000")) == (1, 1)  # by DuckDB
    assert "1001 rows" in await walk.types("Move a sink", "rocketapp sink show")

    write_deltalake("lake/delta_orders", pa.table({"cents": [7, 8]}))
    walk.runs("Read Delta and Iceberg tables")
    assert capsys.readouterr().out == "15\n"

    async with walk.runs("Fill a table with messages from the past").app:
        assert len(ids(await stored("lake/since_january", 1001))) == 1001
    async with walk.runs("Keep bad rows apart").app as app, walk.runs("Choose the columns").app as till:
        await app.publish("orders", '{"id": 7}')
        receipt = {"id": "1", "lines": [{"item": "tea"}], "total": "3.50", "paid_at": "2026-11-22T10:00:00Z"}
        await till.publish("receipts", receipt)
        (bad,) = await stored("lake/checked_bad", 1)
        assert len(ids(await stored("lake/checked", 1001))) == 1001
        (found,) = await stored("lake/receipts", 1)
    async with walk.runs("Keep the newest state in a database").app as app:
        for stock in ({"item": "tea", "count": 7}, {"item": "cocoa", "count": 1}, {"item": "tea", "count": 6}):
            await app.publish("stock", stock, order_key="all")
        await until(lambda: in_stock() == {"tea": 6, "cocoa": 1})
    walk.runs("Keep bad rows apart", 1)
    assert f"{bad['_rmq_queue']} {bad['_rmq_offset']} field id: " in capsys.readouterr().out
    assert found["lines"] == [{"item": "tea", "count": 1}]
    assert (found["total"], found["paid_at"]) == (Decimal("3.5"), datetime(2026, 11, 22, 10, tzinfo=UTC))

    assert all("SparkSession" in blocks("HOW-TO.md", "python")[left] for left in walk.left)


@pytest.mark.timeout(300)
async def test_the_recipes_with_spark(
    spark: object, name_server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    walk = Walk("HOW-TO.md", tmp_path, name_server)
    async with Walk("TUTORIAL.md", tmp_path, name_server).runs(DECLARED).app as app:
        orders = [{"id": str(number), "item": ("cocoa", "tea")[number % 2], "cents": 7} for number in range(240)]
        await app.publish_many("orders", orders)
        await stored("lake/orders", 240)
    await asyncio.to_thread(walk.runs, "Read with Spark")
    assert capsys.readouterr().out.count(" 840|") == 2
    await asyncio.to_thread(walk.runs, "Fill a table with messages from the past", 1)
    part = rows_of("lake/part")
    assert sorted(row["queue_offset"] for row in part if row["queue_id"] == 0) == list(range(10, 20))
    assert len({(row["queue_id"], row["queue_offset"]) for row in part}) == len(part) > 100
    await asyncio.to_thread(walk.runs, "Fill a table with messages from the past", 2)
    assert capsys.readouterr().out == "240\n"


@pytest.mark.timeout(300)
async def test_a_sink_moves_with_its_folder(name_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the app may be started in another folder than the one in which it declared its sink."""
    walk = Walk("TUTORIAL.md", tmp_path, name_server)
    async with walk.runs(DECLARED).app as app:
        await app.publish_many("orders", [{"id": str(number), "item": "tea", "cents": 1} for number in range(20)])
        await stored("lake/orders", 20)
    (tmp_path / "moved").mkdir()
    shutil.move("lake", "moved/lake")
    monkeypatch.chdir(tmp_path / "moved")
    after = walk.runs(DECLARED).app
    monkeypatch.chdir(tmp_path)
    async with after as app:
        await app.publish("orders", {"id": "20", "item": "tea", "cents": 1})
        assert ids(await stored("moved/lake/orders", 21)) == {str(number) for number in range(21)}
    assert rows_of("lake/orders") == []
