"""The columns that a read gives. Pure: names and Spark's types."""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """A column of the source."""

    name: str
    sql_type: str


PROPERTIES = "properties"
"""They cost as much as all other columns."""
BAD_RECORD = "bad_record"
USUAL = ("topic", "broker", "queue_id", "queue_offset", "body", "keys", "store_timestamp")
"""What a read gives when it does not say: what Spark's connector of Kafka gives, and the broker."""
COLUMNS = (
    *(Column("topic", "string"), Column("broker", "string"), Column("queue_id", "int")),
    *(Column("queue_offset", "bigint"), Column("body", "binary"), Column("keys", "string")),
    *(Column("store_timestamp", "timestamp"), Column("tags", "string"), Column("msg_id", "string")),
    *(Column("born_timestamp", "timestamp"), Column("born_host", "string"), Column("flag", "int")),
    *(Column("sys_flag", "int"), Column("reconsume_times", "int"), Column(PROPERTIES, "map<string,string>")),
    Column(BAD_RECORD, "string"),
)
BY_NAME = {column.name: column for column in COLUMNS}


def ddl(columns: tuple[str, ...]) -> str:
    """The schema as Spark reads it."""
    return ", ".join(f"{name} {BY_NAME[name].sql_type}" for name in columns)
