"""Which columns a written frame may have. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from pyspark_rocketmq.problems import OptionError

STAMP = "SPARK_ROW"
"""The property that names the row a message was written from: query, batch, partition and row."""
SHARDING_KEY = "__SHARDINGKEY"
"""The property that other producers put the sharding key into."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string",),
    "properties": ("map<string,string>",),
    "sharding_key": ("string",),
    "queue_id": ("int", "bigint"),
    "deliver_at": ("timestamp",),
}
"""What a written frame may have, with Spark's types. Only `body` is required."""


def check_schema(fields: Iterable[tuple[str, str]], *, has_topic: bool) -> None:
    """Refuse a frame that cannot be written. `fields`: names and types. `has_topic`: whether an option names one."""
    given = dict(fields)
    for name, sql_type in given.items():
        if name not in COLUMNS:
            nearest = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.0)[0]
            raise OptionError(f"column {name!r} cannot be written: the nearest is {nearest!r}; drop or rename it")
        if sql_type not in COLUMNS[name]:
            raise OptionError(f"column {name} is {sql_type}: cast it to {' or '.join(COLUMNS[name])}")
    if "body" not in given:
        raise OptionError("the frame has no column body: select what is to be sent as body")
    if not has_topic and "topic" not in given:
        raise OptionError("where to? give the option topic or a column topic")
