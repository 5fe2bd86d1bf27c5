"""The columns that a read gives, and those that a written frame may have. Pure: names and Spark's types."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from pyspark_rocketmq.problems import OptionError

PROPERTIES = "properties"
"""They cost as much as all other columns."""
BAD_RECORD = "bad_record"
USUAL = ("topic", "broker", "queue_id", "queue_offset", "body", "keys", "store_timestamp")
"""What a read gives when it does not say: what Spark's connector of Kafka gives, and the broker."""
_ALL = (
    "topic string, broker string, queue_id int, queue_offset bigint, body binary, keys string, "
    "store_timestamp timestamp, tags string, msg_id string, born_timestamp timestamp, born_host string, flag int, "
    "sys_flag int, reconsume_times int, properties map<string,string>, bad_record string"
)
TYPES = dict(one.split(" ") for one in _ALL.split(", "))
"""Of all columns, by name, as Spark has them."""


def ddl(columns: tuple[str, ...]) -> str:
    """The schema as Spark reads it."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


# Writing.

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
    "queue_id": ("bigint", "int"),
    "deliver_at": ("timestamp",),
}
"""What a written frame may have, with Spark's types, the widest first. Only `body` is required."""


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
