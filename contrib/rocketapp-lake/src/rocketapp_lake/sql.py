"""A table of a database: rows and positions in one of its transactions.

    <schema>.rmq_commits     one row per commit: the sink's number for it, its batch, and where the sink stands with it

A transaction begins with the fence: the commit before is marked as followed, if it is the newest one, and the new one
is added behind it. Of two owners the second one waits there, and then changes no row. Only an owner that has passed the
fence loads rows, so that a row which the database refuses is a bad row, and not one that another owner has stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from rocketapp import MessageQueue, RocketAppError
from rocketapp_lake.columns import COORDINATES, PLACE, nullable
from rocketapp_lake.declared import LONGEST_NAME
from rocketapp_lake.errors import FencedError, RefusedRowsError, SinkError
from rocketapp_lake.records import Commit, Head, decode, encode, to_json
from rocketapp_lake.sql_loading import Database, column_of, halved, loading_of
from rocketapp_lake.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

COMMITS = "rmq_commits"
KEPT = 1_000
"""Commits of a sink that the table keeps."""


class DatabaseError(RocketAppError):
    """The database cannot be reached, or has broken off: it may be asked again."""


class SqlStore(Store):
    """One sink in one table."""

    def __init__(self, table: str, sink: str, database: Database, *, merge_on: Sequence[str] = ()) -> None:
        """`table`: its name, with or without `schema.` in front. `merge_on`: columns by which rows replace others."""
        self.sink, self._database, self._merge_on = sink, database, tuple(merge_on)
        self._schema, _, self._name = table.rpartition(".")
        self._log = _log_in(self._schema or None)
        self._ours = (self._log.c.table_name == self._name) & (self._log.c.sink == sink)
        self._has_log = False
        self._table: sa.Table | None = None
        """As it was found."""

    def __repr__(self) -> str:
        return f"<SqlStore {self._database.place} {self._name} of {self.sink}>"

    def load(self) -> Head:
        newest = self._commits(1)
        return Head.of(newest[0]) if newest else Head()

    def check(self, rows: pa.Table) -> None:
        """Whether the table has their columns. What it says to each row is known when they are loaded."""
        with self._told(), self._database.connected() as connection:
            table = self._found(connection)
            if table is not None:
                self._loaded(table, rows)

    def commit(self, commit: Commit, rows: pa.Table | None) -> None:
        """Raises RefusedRowsError for rows that the database refuses; then nothing of the batch is there."""
        with self._told():
            self._make_log()
            load = None if rows is None else self._made(rows)
            with self._database.transaction() as connection:
                self._fence(connection, commit)
                found = {} if load is None else halved(self._database, connection, load)
                if rows is not None and found:
                    raise _refused(rows, found)

    def who_committed(self, sequence: int) -> str | None:
        found = self._commits(1, self._log.c.sequence == sequence)
        return found[0].batch if found else None

    def add_columns(self, columns: pa.Schema) -> None:
        with self._told(), self._database.connected() as connection:
            table = self._found(connection)
            if table is None:
                return
            for field in nullable(columns):
                wanted = column_of(field, connection.dialect, is_key=False)
                if field.name not in table.c:
                    self._add_column(connection, table, wanted)
                elif not _are_alike(table.c[field.name].type, wanted.type):
                    has = table.c[field.name].type
                    raise SinkError(f"{table}: column {field.name} is {has!r} there, and {field.type} in the rows")
            self._table = None

    def commits(self) -> Iterator[Commit]:
        return iter(self._commits(None, of_all=True))

    # Inside.

    def _add_column(self, connection: sa.Connection, table: sa.Table, column: sa.Column[Any]) -> None:
        preparer, dialect = connection.dialect.identifier_preparer, connection.dialect
        kind = column.type.compile(dialect=dialect)
        sql = f"ALTER TABLE {preparer.format_table(table)} ADD COLUMN {preparer.quote(column.name)} {kind}"
        try:
            connection.exec_driver_sql(sql)
            connection.commit()
        except sa.exc.DBAPIError:
            connection.rollback()
            # Another owner may have been faster.
            if column.name not in {one["name"] for one in sa.inspect(connection).get_columns(table.name, table.schema)}:
                raise

    def _fence(self, connection: sa.Connection, commit: Commit) -> None:
        log = self._log
        if commit.sequence > 1:
            before = self._ours & (log.c.sequence == commit.sequence - 1) & log.c.followed_by.is_(None)
            if connection.execute(sa.update(log).where(before).values(followed_by=commit.batch)).rowcount != 1:
                raise FencedError(f"{self!r}: commit {commit.sequence - 1} is not the newest one")
        values = {"table_name": self._name, "sink": self.sink, "sequence": commit.sequence, "batch_id": commit.batch}
        try:
            connection.execute(sa.insert(log).values(**values, entry=to_json(encode(commit)).decode()))
        except sa.exc.IntegrityError:
            raise FencedError(f"{self!r}: another owner has made commit {commit.sequence}") from None
        connection.execute(sa.delete(log).where(self._ours & (log.c.sequence <= commit.sequence - KEPT)))

    def _make_log(self) -> None:
        if not self._has_log:
            self._database.create(self._log)
            self._has_log = True

    def _commits(self, most: int | None, *which: sa.ColumnElement[bool], of_all: bool = False) -> list[Commit]:
        """The newest ones of this sink, or of all sinks of the table, the newest first."""
        with self._told(), self._database.connected() as connection:
            self._has_log = self._has_log or sa.inspect(connection).has_table(COMMITS, self._schema or None)
            if not self._has_log:
                return []
            whose = self._log.c.table_name == self._name if of_all else self._ours
            asked = sa.select(self._log.c.entry).where(whose, *which).order_by(self._log.c.sequence.desc())
            return [decode(json.loads(text)) for (text,) in connection.execute(asked.limit(most))]

    def _found(self, connection: sa.Connection) -> sa.Table | None:
        if self._table is None and sa.inspect(connection).has_table(self._name, self._schema or None):
            self._table = self._database.reflected(connection, self._name, self._schema or None)
        return self._table

    def _made(self, rows: pa.Table) -> Any:
        """What loads rows into the table, which is created if it is not there."""
        with self._database.connected() as connection:
            table = self._found(connection)
        if table is not None:
            return self._loaded(table, rows)
        dialect, key = self._database.dialect, self._merge_on
        columns = [column_of(field, dialect, is_key=field.name in key) for field in rows.schema]
        keys = [sa.PrimaryKeyConstraint(*key)] if key else []
        self._database.create(sa.Table(self._name, sa.MetaData(), *columns, *keys, schema=self._schema or None))
        return self._made(rows)

    def _loaded(self, table: sa.Table, rows: pa.Table) -> Any:
        """What loads these rows. Raises SinkError for columns and keys that the table lacks."""
        lacking = [name for name in rows.column_names if name not in table.c]
        rows = rows.drop_columns([name for name in lacking if name in COORDINATES.names])
        missing = [name for name in lacking if name not in COORDINATES.names]
        if missing:
            self._table = None  # they may be added while the app runs
            raise SinkError(f"{table} has no column {', '.join(missing)}: it has {', '.join(table.c.keys())}")
        return loading_of(self._database, table, rows, self._merge_on)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the database as one line, without what the url keeps secret and without values of rows."""
        try:
            yield
        except (FencedError, SinkError):
            raise
        except self._database.errors as error:
            self._table = None  # the table may have changed
            raise DatabaseError(f"{self._database.place}: {self._database.said(error)}") from None


def _log_in(schema: str | None) -> sa.Table:
    def text(length: int) -> sa.types.TypeEngine[str]:
        return sa.String(length).with_variant(
            mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
        )

    return sa.Table(
        COMMITS,
        sa.MetaData(),
        sa.Column("table_name", text(128), primary_key=True),
        sa.Column("sink", text(LONGEST_NAME), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("batch_id", text(64), nullable=False),
        sa.Column("followed_by", text(64)),
        sa.Column("entry", sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"), nullable=False),
        schema=schema,
    )


def _refused(rows: pa.Table, found: dict[int, str]) -> SinkError:
    """The error that names the messages of these rows."""
    if not set(PLACE) <= set(rows.column_names):
        kept = "the rows do not say where this one comes from, which a function of a sink has to keep"
        return SinkError(f"{next(iter(found.values()))}; {kept}")
    held = rows.select(PLACE).take(list(found)).to_pylist()
    places = [
        ((MessageQueue(*queue), offset), found[number])
        for number, (*queue, offset) in zip(found, map(dict.values, held), strict=True)
    ]
    return RefusedRowsError(dict(places))


def _are_alike(has: Any, wanted: Any) -> bool:
    """Whether values of a column can be stored in another: by what Python makes of them."""
    try:
        kinds = {kind.python_type for kind in (has, wanted)}
    except RuntimeError:  # a type of that database alone, for which Python has none: it decides itself
        return True
    return len(kinds) == 1 or kinds <= {int, bool}
