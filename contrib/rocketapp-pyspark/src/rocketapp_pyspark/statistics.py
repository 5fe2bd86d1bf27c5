"""What a Delta table says of a file, so that readers can pass over it: rows, and the bounds of its columns."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

BOUNDED = (int, datetime.datetime, datetime.date)
"""Values whose bounds are exact and short."""


def statistics_of(file: Path) -> dict[str, Any]:
    """From the footer of a Parquet file, as Delta's protocol has it ("Per-file Statistics")."""
    footer = pq.read_metadata(file)
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for number in range(footer.num_columns):
        name = footer.schema.column(number).path
        if "." in name:
            continue
        found = [footer.row_group(group).column(number).statistics for group in range(footer.num_row_groups)]
        if any(one is None or not one.has_null_count for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        bounds = [value for one in found if one.has_min_max for value in (one.min, one.max)]
        if len(bounds) == 2 * len(found) and all(_is_bounded(value) for value in bounds):
            least[name], most[name] = _text(min(bounds)), _text(max(bounds))
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _is_bounded(value: object) -> bool:
    return isinstance(value, BOUNDED) and not isinstance(value, bool)


def _text(value: Any) -> Any:
    """As JSON has it. A time has its zone in the file, and Delta's are UTC."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"
    return value.isoformat() if isinstance(value, datetime.date) else value
