"""The columns that a read gives. Pure: names and Spark's types."""

from __future__ import annotations

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
