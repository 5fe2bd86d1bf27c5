"""A queue of the same name that is not the one that was read: nothing of it is passed over in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from sink_shop import Shop, all_rows, by_arrow, lake_plugin, until
from sqlalchemy import create_engine, text

from rocketapp import RocketApp
from rocketapp.testing.broker import serving
from rocketapp_lake.options import FILES
from rocketapp_lake.parquet import ParquetStore

OLD, NEW = range(100), range(100, 400)


def of_catalog(path: Path) -> list[int]:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("lake")
    rows = catalog.load_table("shop.orders").scan().to_arrow() if catalog.table_exists("shop.orders") else pa.table({})
    return rows["id"].to_pylist() if rows.num_rows else []


def of_database(path: Path) -> list[int]:
    engine = create_engine(f"sqlite:///{path}/shop.db")
    with engine.connect() as connection:
        is_there = engine.dialect.has_table(connection, "orders")
        found = list(connection.scalars(text("SELECT id FROM orders"))) if is_there else []
    engine.dispose()
    return found


def of_delta(path: Path) -> list[int]:
    return DeltaTable(path / "t").to_pyarrow_table()["id"].to_pylist() if (path / "t").exists() else []


READERS: dict[str, Callable[[Path], list[int]]] = {
    "parquet": lambda path: [row["id"] for row in all_rows(path / "t")] if list(path.glob("t/*.parquet")) else [],
    "delta": of_delta,
    "iceberg": of_catalog,
    "sql": of_database,
}


@pytest.fixture
def landing(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    for name, value in {"URI": f"sqlite:///{tmp_path}/catalog.db", "WAREHOUSE": f"file://{tmp_path}"}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    tables = {"iceberg": "lake.shop.orders", "sql": "orders"}

    def app(format: str, **more: Any) -> Any:
        if format == "iceberg":
            from pyiceberg.utils.config import Config

            monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        own = {"url": f"sqlite:///{tmp_path}/shop.db"} if format == "sql" else {}
        return shop.app(format=format, table=tables.get(format, tmp_path / "t"), **own, **more)

    return app


async def send(shop: Shop, app: Any, numbers: range) -> None:
    for number in numbers:  # one after the other: every queue has some of them
        await shop.send(app, [number])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("format", [*FILES, "sql"])
async def test_of_a_fresh_broker_that_has_more_messages_than_the_old_one_none_is_lost(
    format: str, shop: Shop, landing: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ids() -> list[int]:
        return sorted(READERS[format](tmp_path))

    async with landing(format) as app:
        await send(shop, app, OLD)
        await until(lambda: ids() == list(OLD))
    with serving() as fresh:
        monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", fresh)
        async with RocketApp("shop", plugins=lake_plugin()) as app:
            await send(shop, app, NEW)
        async with landing(format) as app:
            await until(lambda: len(shop.watch.reasons()) >= 4)
            assert all("is another queue" in reason for reason in shop.watch.reasons()), shop.watch.reasons()
        assert ids() == list(OLD)
        async with landing(format, on_offset_reset="new_epoch"):
            await until(lambda: ids() == [*OLD, *NEW])


async def test_a_queue_is_known_again_by_the_last_message_that_was_read_also_if_it_has_no_row(
    shop: Shop, landing: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rocketapp_lake.writer.IDLE", 0.1)
    monkeypatch.setenv("ROCKETAPP_CONSUMER__LONG_POLL", "1")  # nothing that comes ends a pull
    async with landing("parquet", tags="wanted") as app:
        await send(shop, app, OLD)
        store = ParquetStore(tmp_path / "t", f"shop/{shop.topic}", write=by_arrow)
        await until(lambda: sum(store.load().vector.values()) == len(OLD))
    assert shop.rows() == []
    with serving() as fresh:
        monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", fresh)
        async with RocketApp("shop", plugins=lake_plugin()) as app:
            await send(shop, app, NEW)
        async with landing("parquet", tags="wanted"):
            await until(lambda: len(shop.watch.reasons()) >= 4)
            assert all("is another queue" in reason for reason in shop.watch.reasons()), shop.watch.reasons()
