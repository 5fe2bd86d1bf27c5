"""The shop's database: its own tables, the marks of handled messages and the outbox are in one SQLite file.

So what a handler writes, the mark of its message and what it publishes are one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from example_app.books import Shelf, metadata
from example_app.parts import parts
from rocketapp_sqlalchemy import Database, Outbox

_BUSY = 30.0
"""Seconds to wait for another handler or process that writes: SQLite has one writer at a time."""


def engine_of(file: Callable[[], str]) -> Engine:
    """The file is asked for at each connection: the engine is made before the settings are read."""

    def connect() -> sqlite3.Connection:
        path = Path(file())
        path.parent.mkdir(parents=True, exist_ok=True)
        return sqlite3.connect(path, timeout=_BUSY)

    return create_engine("sqlite://", creator=connect, poolclass=NullPool)


engine = engine_of(parts.database_file)
database = Database(engine)
outbox = Outbox(database)


def open_books(shelf: Shelf) -> None:
    """Make the tables that are missing, and fill the shelf. A real shop has migrations for the one."""
    with Session(engine) as session, session.begin():
        # The workers of `--workers` come here together: the second one waits, and finds what the first one made.
        session.connection().exec_driver_sql("BEGIN IMMEDIATE")
        metadata.create_all(session.connection())
        shelf.fill(session, {"tea": 10, "coffee": 10, "cocoa": 10})
