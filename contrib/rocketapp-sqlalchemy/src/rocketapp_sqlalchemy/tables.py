"""The tables, in a MetaData of their own: migrations may take it as one more target."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import JSON, BigInteger, Column, Double, Index, Integer, LargeBinary, MetaData, String, Table, Text
from sqlalchemy.dialects.mysql import LONGBLOB
from sqlalchemy.orm import registry

metadata: Final = MetaData()

marks: Final = Table(
    "rocketapp_marks",
    metadata,
    Column("key", String(32), primary_key=True),
    Column("done_at", Double, nullable=False, index=True, comment="seconds since 1970"),
)
"""A row for each handled message."""

outbox: Final = Table(
    "rocketapp_outbox",
    metadata,
    # SQLite gives numbers by itself only to a column of type INTEGER.
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    Column("slot", Integer, nullable=False),
    Column("topic", String(255), nullable=False),
    # A BLOB of MySQL holds 64 KiB.
    Column("body", LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb"), nullable=False),
    Column("options", JSON, nullable=False, comment="the keywords of publish"),
    Column("problem", Text, nullable=True, comment="why it can never be sent; it is left alone"),
    Index("rocketapp_outbox_slot", "slot", "id"),
    sqlite_autoincrement=True,  # a number is never given twice, also not after the last row was removed
)
"""A row for each message that is not sent yet."""

slots: Final = Table(
    "rocketapp_outbox_slots",
    metadata,
    Column("slot", Integer, primary_key=True, autoincrement=False),
    Column("holder", String(64), nullable=False),
    Column("until", Double, nullable=False, comment="seconds since 1970"),
)
"""Which relay sends the messages of a slot."""

offsets: Final = Table(
    "rocketapp_offsets",
    metadata,
    Column("key", String(32), primary_key=True, comment="a hash of the next four"),
    Column("consumer_group", String(255), nullable=False),
    Column("topic", String(255), nullable=False),
    Column("broker", String(255), nullable=False),
    Column("queue", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False, comment="which session has the queue"),
    Column("committed", BigInteger, nullable=True, comment="everything below is done"),
    Column("landmark", String(255), nullable=True, comment="by which the queue is known again"),
)
"""A row for each queue whose offset is kept here."""


class OutboxMessage:
    """One message that waits to be sent: a row of `outbox`, for sessions."""

    id: int
    slot: int
    topic: str
    body: bytes
    options: dict[str, Any]
    problem: str | None


registry(metadata=metadata).map_imperatively(OutboxMessage, outbox)
