"""The app: orders land in a table, and the revenue that the Spark job counts is collected.

`rocketapp run` takes it as it is; `python -m` this package runs it together with a broker, the job and a day of orders.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path

import msgspec
from dependency_injector import containers, providers
from rocketapp import RocketApp
from rocketapp_lake import sink

from .model import ORDERS, REVENUE, Order, Revenue

RUN = Path("run")
"""The folder of everything that a run makes."""
TABLE = RUN / "orders"


class Results:
    """Revenue by window, in SQLite. A window that comes again replaces itself: at least once is enough here."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def put(self, revenue: Revenue) -> None:
        with closing(self._open()) as connection, connection:
            row = (revenue.start.isoformat(), msgspec.json.encode(revenue))
            connection.execute("INSERT OR REPLACE INTO revenue VALUES (?, ?)", row)

    def all(self) -> Mapping[datetime, Revenue]:
        """By the beginning of the window, oldest first."""
        with closing(self._open()) as connection:
            rows = connection.execute("SELECT revenue FROM revenue ORDER BY start").fetchall()
        found = [msgspec.json.decode(row, type=Revenue) for (row,) in rows]
        return {one.start: one for one in found}

    def _open(self) -> sqlite3.Connection:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._file, timeout=10)
        connection.execute("CREATE TABLE IF NOT EXISTS revenue (start TEXT PRIMARY KEY, revenue BLOB NOT NULL)")
        return connection


class Parts(containers.DeclarativeContainer):
    """What handlers need beside their message. A test puts another one in its place."""

    results = providers.Singleton(Results, RUN / "results.db")


parts = Parts()
app = RocketApp("shop", version="1.0", container=parts)

# A batch is written every three seconds, so that there is something to see. 30 s, the default, costs a tenth of it.
sink(app, ORDERS.name, table=TABLE, format="parquet", written_by="spark", schema=Order, flush_seconds=3)


@app.subscribe(REVENUE, start="first")
def collect(revenue: Revenue, results: Results) -> None:
    """A sync handler runs in a thread, so it may wait for the database."""
    results.put(revenue)
