"""Marks: the statements that take a key, once and for all, within a transaction.

A second transaction that inserts the same key waits in the database for the first one: it
finds the key taken when that commits, and free when that is rolled back. So it needs no lease,
and nothing is left behind by a process that dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Delete, Insert, delete, extract, func, insert, literal, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from rocketapp_sqlalchemy.tables import marks


def take(connection: Connection, keys: Sequence[str]) -> set[str]:
    """Mark these keys as done; returns those that were not marked before."""
    # In one order everywhere, so that two batches do not wait for each other.
    clock = clock_of(connection)
    rows: list[dict[str, Any]] = [{"key": key, "done_at": clock} for key in sorted(set(keys))]
    statement = _insert_missing(connection.dialect.name)
    if statement is not None:
        found = connection.execute(statement.returning(marks.c.key).values(rows))
        return {key for (key,) in found}
    return {row["key"] for row in rows if _inserted(connection, row)}


def leave(keys: Sequence[str]) -> Delete:
    """Take the marks away again, in the same transaction: these messages were not done."""
    return delete(marks).where(marks.c.key.in_(keys))


def remove_expired(connection: Connection, *, keep: float, most: int) -> int:
    """Remove at most this many marks that are older than `keep` seconds; returns how many."""
    # In a query of its own: MySQL takes no LIMIT behind IN.
    old = select(marks.c.key).where(marks.c.done_at < clock_of(connection) - keep).limit(most).subquery()
    return connection.execute(delete(marks).where(marks.c.key.in_(select(old.c.key)))).rowcount


def is_undone_by_rollback(connection: Connection) -> bool:
    """Whether this database keeps its word; leaves nothing behind when the connection commits."""
    key = uuid4().hex
    connection.execute(insert(marks).values(key=key, done_at=now()))
    connection.rollback()
    found = connection.execute(select(marks.c.key).where(marks.c.key == key)).first()
    if found is not None:
        connection.execute(leave([key]))
    return found is None


def clock_of(connection: Connection) -> ColumnElement[Any]:
    """Seconds since 1970 by the clock of the database, as far as it is known how to ask: those of hosts differ."""
    dialect = connection.dialect.name
    if dialect == "postgresql":
        return extract("epoch", func.clock_timestamp())
    if dialect == "sqlite":
        return (func.julianday("now") - 2440587.5) * 86400.0
    if dialect in ("mysql", "mariadb"):
        return func.unix_timestamp(func.now(6))
    return literal(now())


def now() -> float:
    """Seconds since 1970, by the clock of this host."""
    return datetime.now(UTC).timestamp()


def _insert_missing(dialect: str) -> Any:
    """An INSERT that leaves out what is there, where the database has one."""
    if dialect == "postgresql":
        return postgresql_insert(marks).on_conflict_do_nothing()
    if dialect == "sqlite":
        return sqlite_insert(marks).on_conflict_do_nothing()
    return None


def _inserted(connection: Connection, row: dict[str, Any]) -> bool:
    statement: Insert = insert(marks).values(row)
    try:
        with connection.begin_nested():
            connection.execute(statement)
    except IntegrityError:
        return False
    return True
