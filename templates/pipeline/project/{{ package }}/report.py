"""The picture, and the proof of it: revenue as the stream counted it beside revenue as the table has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow.dataset as ds
from matplotlib.figure import Figure

from .model import WINDOW, Revenue, window_of


@dataclass(frozen=True, slots=True)
class Table:
    """What the table of orders holds."""

    rows: int
    orders: int
    """Different ones: as many as rows, unless an order is there twice."""
    revenue: Mapping[datetime, Revenue]


def rows_in(folder: Path) -> int:
    """Rows in the table; 0 before there is one. Readers need no lock: they see whole commits."""
    return int(ds.dataset(folder, format="parquet").count_rows()) if folder.is_dir() else 0


def read_table(folder: Path) -> Table:
    """The revenue of each window, added up from the rows of the table, without Spark."""
    rows = ds.dataset(folder, format="parquet").to_table(columns=["id", "cents", "placed_at"]).to_pylist()
    orders: Counter[datetime] = Counter()
    cents: Counter[datetime] = Counter()
    for row in rows:
        start = window_of(row["placed_at"])
        orders[start] += 1
        cents[start] += row["cents"]
    revenue = {start: Revenue(start, start + WINDOW, orders[start], cents[start]) for start in sorted(orders)}
    return Table(len(rows), len({row["id"] for row in rows}), revenue)


def differences(table: Table, stream: Mapping[datetime, Revenue]) -> list[str]:
    """What does not agree, a line each. The newest window of the table is open: the stream does not have it yet."""
    found = [] if table.rows == table.orders else [f"the table has {table.rows} rows of {table.orders} orders"]
    open_window = max(table.revenue, default=None)
    for start in sorted({*table.revenue, *stream} - {open_window}):
        there, here = table.revenue.get(start), stream.get(start)
        if there != here:
            found.append(f"window {start:%H:%M}: the table has {_shown(there)}, the stream {_shown(here)}")
    return found


def draw(table: Table, stream: Mapping[datetime, Revenue], file: Path) -> None:
    """Bars are what came back from the stream; dots are the same windows added up from the table."""
    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.add_subplot()
    starts = sorted(stream)
    places = range(len(starts))
    bars = [stream[start].cents / 100 for start in starts]
    dots = [table.revenue[start].cents / 100 if start in table.revenue else 0.0 for start in starts]
    axes.bar(places, bars, width=0.85, color="#8ab6d6", label="from the stream: topic, Spark, topic, handler")
    axes.plot(places, dots, "o", color="#1f3b57", label="from the table: topic, app.sink, Parquet")
    axes.set_xticks(list(places), [f"{start:%H:%M}" for start in starts], rotation=45)
    axes.set_xlabel("half hour of the order")
    axes.set_ylabel("revenue in euros")
    agree = "every window agrees" if not differences(table, stream) else "THEY DIFFER"
    orders, total = sum(one.orders for one in stream.values()), sum(bars)
    axes.set_title(f"{orders:,} orders in {len(starts)} windows that have ended, {total:,.2f} euros: {agree}")
    axes.set_ylim(top=1.2 * max([*bars, *dots, 1.0]))
    axes.legend(loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120)


def _shown(revenue: Revenue | None) -> str:
    return "nothing" if revenue is None else f"{revenue.orders} orders, {revenue.cents} cents"
