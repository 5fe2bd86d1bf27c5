"""An app with a sink beside a broker of the tests, and its table as any reader sees it."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from sqlalchemy import create_engine, text

from rocketapp import RocketApp
from rocketapp.plugin import Surface, events, hookimpl
from rocketapp_lake import LakePlugin
from rocketapp_lake.staging import Files


@dataclass
class Order:
    id: int
    item: str


def by_arrow(rows: pa.Table, files: Files) -> None:
    """The simplest writer."""
    pq.write_table(rows, files.new("part.parquet"))


def by_halves(rows: pa.Table, files: Files) -> None:
    """One file in each of two partitions, as Spark would."""
    for half in range(min(2, rows.num_rows)):
        pq.write_table(rows.take(list(range(half, rows.num_rows, 2))), files.new(f"half={half}/part.parquet"))


class Placed(Files):
    """Files that lie in their places of a directory from the beginning."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "writing")
        self._directory = directory

    def new(self, place: str) -> Path:
        file = self._directory / place
        file.parent.mkdir(parents=True, exist_ok=True)
        return file


def lake_plugin() -> list[LakePlugin]:
    """Nothing where the distribution is installed: then every app has the plugin."""
    return [] if entry_points(group="rocketapp", name="lake") else [LakePlugin()]


def all_rows(table: Path) -> list[dict[str, Any]]:
    """With the columns of all files: without a schema Arrow takes those of the first one."""
    dataset = ds.dataset(table, format="parquet")
    schema = pa.unify_schemas([dataset.schema, *(part.physical_schema for part in dataset.get_fragments())])
    found: list[dict[str, Any]] = dataset.replace_schema(schema).to_table().to_pylist()
    return found


class Watch:
    """Sees what the app does."""

    def __init__(self) -> None:
        self.surface: Surface | None = None
        self.events: list[events.Event] = []

    @hookimpl
    def observe_events(self, app: Surface) -> events.Observe:
        self.surface = app
        return self.events.append

    def held(self, topic: str) -> int:
        """Messages that were pulled and are not acknowledged."""
        assert self.surface is not None
        groups = self.surface.snapshot().groups
        return sum(one.unfinished for group in groups for one in group.queues if one.queue.topic == topic)

    def reasons(self) -> set[str]:
        return {event.reason for event in self.events if isinstance(event, events.QueueBlocked)}


class Shop:
    """A topic, a table, and apps one after the other."""

    def __init__(self, topic: str, table: Path) -> None:
        self.topic, self.table, self.watch = topic, table, Watch()
        self.options = {"table": table, "format": "parquet", "schema": Order, "flush_seconds": 0.2}

    def app(self, **options: Any) -> Any:
        """With a sink from the topic into the table."""
        self.watch = Watch()
        app: Any = RocketApp("shop", plugins=[*lake_plugin(), self.watch])
        self.decorate = app.sink(self.topic, **{**self.options, **options})
        return app

    async def send(self, app: Any, numbers: Sequence[int]) -> None:
        await app.publish_many(self.topic, [Order(number, f"item {number}") for number in numbers])

    def rows(self) -> list[dict[str, Any]]:
        """As any reader sees them."""
        if not list(self.table.glob("[!_]*")):
            return []
        return all_rows(self.table)

    def ids(self) -> list[int]:
        # A directory of a partition is there a moment before its first file.
        return sorted(row["id"] for row in self.rows() if "id" in row)

    def fails(self, *problems: Exception) -> list[Exception]:
        """Attempts to write a batch raise these, the first one first; returns those that are left."""
        left = list(problems)

        @self.decorate
        def failing(batch: pa.Table) -> pa.Table:
            if left:
                raise left.pop(0)
            return batch

        return left

    async def has(self, *numbers: int) -> None:
        await until(lambda: self.ids() == list(numbers))


async def until(holds: Callable[[], bool], *, every: float = 0.05) -> None:
    async with asyncio.timeout(200):
        while not holds():  # noqa: ASYNC110 - it waits for files and other threads
            await asyncio.sleep(every)


def commits_fail(patch: pytest.MonkeyPatch, problem: Exception, times: int) -> list[Exception]:
    """Commits of Parquet directories raise this so often; returns what is left of it."""
    left, link = [problem] * times, os.link

    def failing(source: Path, target: Path) -> None:
        if left:
            raise left.pop()
        link(source, target)

    patch.setattr(os, "link", failing)
    return left


_numbers = itertools.count()


@pytest.fixture
def shop(rocketapp_broker: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shop:
    """A topic and a table of its own, on the broker of the tests."""
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", rocketapp_broker)
    monkeypatch.setenv("ROCKETAPP_CONSUMER__CRASH_DIR", "")
    monkeypatch.setenv("ROCKETAPP_CONSUMER__JOIN_TIMEOUT", "0")
    # Broker and app share this process: on a busy machine a short timeout stores bad rows twice.
    monkeypatch.setenv("ROCKETAPP_PRODUCER__SEND_TIMEOUT", "60")
    return Shop(f"orders-{next(_numbers)}", tmp_path / "table")


class Landing:
    """Apps with a sink into a table of any format, and what a reader sees there."""

    def __init__(self, shop: Shop, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shop, self._path, self._patch = shop, path, monkeypatch
        self._url = f"sqlite:///{path}/shop.db"
        for name, value in {"URI": f"sqlite:///{path}/catalog.db", "WAREHOUSE": f"file://{path}"}.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)

    def app(self, format: str, **more: Any) -> Any:
        if format == "iceberg":
            from pyiceberg.catalog import load_catalog
            from pyiceberg.utils.config import Config

            self._patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
            load_catalog("lake")  # of two that open a new one at once, one fails
        own = {"url": self._url} if format == "sql" else {}
        tables = {"iceberg": "lake.shop.orders", "sql": "orders"}
        return self.shop.app(format=format, table=tables.get(format, self._path / "orders"), **own, **more)

    def rows(self, format: str, name: str = "orders") -> list[dict[str, Any]]:
        """Of this table; none while it is not there."""
        found: list[dict[str, Any]] = []
        place = self._path / name
        if format == "parquet":
            found = all_rows(place) if list(place.glob("*.parquet")) else []
        elif format == "delta":
            found = DeltaTable(place).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(str(place)) else []
        elif format == "iceberg":
            from pyiceberg.catalog import load_catalog

            catalog = load_catalog("lake")
            is_there = catalog.table_exists(f"shop.{name}")
            found = catalog.load_table(f"shop.{name}").scan().to_arrow().to_pylist() if is_there else []
        else:
            engine = create_engine(self._url)
            with engine.connect() as connection:
                is_there = engine.dialect.has_table(connection, name)
                asked = connection.execute(text(f"SELECT * FROM {name}")).mappings() if is_there else ()
                found = [dict(row) for row in asked]
            engine.dispose()
        return found


@pytest.fixture
def landing(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Landing:
    """Tables of all formats in one folder."""
    return Landing(shop, tmp_path, monkeypatch)
