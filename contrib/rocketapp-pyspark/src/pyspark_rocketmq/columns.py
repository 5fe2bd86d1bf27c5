"""The columns that a read gives. Pure: names and Spark's types."""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """A column of the source."""

    name: str
    sql_type: str


PROPERTIES = "properties"
COLUMNS = (
    Column("topic", "string"),
    Column("broker", "string"),
    Column("queue_id", "int"),
    Column("queue_offset", "bigint"),
    Column("body", "binary"),
    Column("tags", "string"),
    Column("keys", "string"),
    Column("msg_id", "string"),
    Column("born_timestamp", "timestamp"),
    Column("store_timestamp", "timestamp"),
    Column("born_host", "string"),
    Column("flag", "int"),
    Column("sys_flag", "int"),
    Column("reconsume_times", "int"),
    Column(PROPERTIES, "map<string,string>"),
)
BY_NAME = {column.name: column for column in COLUMNS}
PLAIN = tuple(column.name for column in COLUMNS if column.name != PROPERTIES)
"""What a read gives when it does not say. Properties cost as much as all other columns, so they are asked for."""


def ddl(columns: tuple[str, ...]) -> str:
    """The schema as Spark reads it."""
    return ", ".join(f"{name} {BY_NAME[name].sql_type}" for name in columns)
