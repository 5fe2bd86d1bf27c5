"""What databases do differently: their sessions, the types of their columns, and the quickest way to load rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.pool import NullPool

from rocketapp_lake.errors import SinkError

MOST_REFUSED = 1_000
"""Rows of a batch that are looked for before the others are tried again without them."""
_SESSION: Mapping[str, Sequence[str]] = {
    # A transaction of a process that is stopped keeps all others waiting, and so would an answer that never comes.
    "postgresql": ("SET idle_in_transaction_session_timeout = '30s'", "SET statement_timeout = '300s'"),
    # Without the mode, texts that are too long would be cut without a word.
    "mysql": (
        "SET SESSION wait_timeout = 30, sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'), time_zone = '+00:00'",
    ),
}
_CONNECT: Mapping[str, Mapping[str, Any]] = {
    "psycopg": {"connect_timeout": 10, "tcp_user_timeout": 60_000},
    "pymysql": {"connect_timeout": 10, "read_timeout": 300, "write_timeout": 300},
    "pysqlite": {"timeout": 30},
}
_REFUSALS = {"IntegrityError", "DataError", "OverflowError"}
_CODES = {"P0001", "44000", "21000", 1364, 1644, 3819, 4025}
"""A trigger or view that says no, one row twice in a merge, a column without a default, a CHECK: by what each has."""
_MERGING: Mapping[str, Any] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
    "mysql": mysql.insert,
    "mariadb": mysql.insert,
}


class Database:
    """Makes connections: one of its own for each call, whatever became of others."""

    def __init__(self, url: str) -> None:
        """Raises SinkError, without the url, for one that cannot be used."""
        try:
            self._url = sa.make_url(url)
            driver = self._url.get_dialect()
            connect = _CONNECT.get(driver.driver, {})
            self._engine = sa.create_engine(
                self._url,
                poolclass=NullPool,
                hide_parameters=True,
                json_serializer=_as_json,
                connect_args=dict(connect),
            )
        except sa.exc.ArgumentError:
            raise SinkError(
                "the url of the database cannot be read: give it as postgresql+psycopg://user@host/name"
            ) from None
        except ImportError as error:
            raise SinkError(f"{self.place} needs {error.name}: install it") from None
        if self._engine.dialect.name not in _MERGING:
            known = ", ".join(_MERGING)
            raise SinkError(f"{self.place} is not one of the databases that format='sql' knows: {known}")
        if self._engine.dialect.is_async:
            raise SinkError(f"{self.place}: a sink writes in a thread: give a driver that is not asynchronous")
        self.errors: tuple[type[Exception], ...] = (sa.exc.SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error)
        event.listen(self._engine, "connect", self._prepare)

    def __repr__(self) -> str:
        return f"<Database {self.place}>"

    @property
    def place(self) -> str:
        """The url without what may be a secret: its password and its parameters."""
        return self._url.set(password=None, query={}).render_as_string()

    def said(self, error: BaseException) -> str:
        """An error of the database in one line."""
        original = getattr(error, "orig", None) or error
        text = str(original.args[-1] if original.args and isinstance(original.args[-1], str) else original)
        text = text.strip().partition("\n")[0]
        query = [value for values in self._url.normalized_query.values() for value in values]
        for secret in (str(self._url.password or ""), *query):
            text = text.replace(secret, "***") if secret else text
        return text.replace("\0", "\N{REPLACEMENT CHARACTER}")

    @property
    def dialect(self) -> sa.Dialect:
        return self._engine.dialect

    def connected(self) -> AbstractContextManager[sa.Connection]:
        return self._engine.connect()

    def transaction(self) -> AbstractContextManager[sa.Connection]:
        """Commits at the end, and rolls back when the block raises."""
        return self._engine.begin()

    def create(self, table: sa.Table) -> None:
        """Unless it is there."""
        try:
            with self._engine.begin() as connection:
                table.create(connection, checkfirst=True)
        except sa.exc.DBAPIError:
            with self._engine.connect() as connection:
                # Another owner may have been faster.
                if not sa.inspect(connection).has_table(table.name, table.schema):
                    raise

    def reflected(self, connection: sa.Connection, name: str, schema: str | None) -> sa.Table:
        """A table as it is. Raises SinkError for one whose rows are not part of transactions."""
        table = sa.Table(name, sa.MetaData(), autoload_with=connection, schema=schema, resolve_fks=False)
        engine = next(
            (table.kwargs[key] for key in ("mysql_engine", "mariadb_engine") if key in table.kwargs), "InnoDB"
        )
        if engine.lower() not in ("innodb", "rocksdb"):
            raise SinkError(f"{table} is kept by {engine}, which has no transactions: ALTER TABLE ... ENGINE=InnoDB")
        return table

    def _prepare(self, connection: Any, record: object) -> None:
        name = "mysql" if self._engine.dialect.name == "mariadb" else self._engine.dialect.name
        cursor = connection.cursor()
        for statement in _SESSION.get(name, ()):
            cursor.execute(statement)
        cursor.close()
        connection.commit()


def refusal(error: BaseException) -> bool:
    """Whether the database refuses a row, and not the statement or the connection."""
    original = getattr(error, "orig", None) or error
    codes = {getattr(original, "sqlstate", None), *original.args[:1]} if original.args else set()
    kinds = {kind.__name__ for kind in type(original).__mro__}
    return bool(kinds & _REFUSALS) or any(code in _CODES for code in codes if isinstance(code, str | int))


def halved(database: Database, connection: sa.Connection, loading: Loading) -> dict[int, str]:
    """Load all rows; the numbers of those that are refused, with the reasons. The others are loaded.

    Of many that are refused the first MOST_REFUSED are found, and what lies behind them is not loaded. Raises errors of
    other kinds.
    """
    refused: dict[int, str] = {}
    parts = [(0, len(loading))] if len(loading) else []
    while parts and len(refused) < MOST_REFUSED:
        start, end = parts.pop()
        try:
            with connection.begin_nested():
                loading.into(connection, start, end)
        except Exception as error:
            if not refusal(error):
                raise
            if end - start == 1:
                refused[loading.number(start)] = database.said(error)
            else:
                middle = (start + end) // 2
                parts += [(middle, end), (start, middle)]
    return refused


# Columns.


def column_of(field: pa.Field, dialect: sa.Dialect, *, is_key: bool) -> sa.Column[Any]:
    """A column for values of Arrow. Raises SinkError for a type that has none."""
    is_empty = field.nullable and not is_key
    return sa.Column(field.name, _type_of(field, dialect.name, is_key=is_key), nullable=is_empty, autoincrement=False)


def _type_of(field: pa.Field, dialect: str, *, is_key: bool) -> Any:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    own = _OWN.get("mysql" if dialect == "mariadb" else dialect, {})
    for name, is_it, make in _TYPES:
        if is_it(kind):
            return own.get(f"{name} key" if is_key else name, own.get(name, make))(kind)
    raise SinkError(f"column {field.name} is {kind}, for which databases have no type: make it a text in a function")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


_TYPES: Sequence[tuple[str, Callable[[pa.DataType], bool], Callable[[pa.DataType], Any]]] = (
    ("boolean", pa.types.is_boolean, lambda kind: sa.Boolean()),
    ("long", pa.types.is_int64, lambda kind: sa.BigInteger()),
    ("integer", pa.types.is_integer, lambda kind: sa.Integer()),
    ("float", pa.types.is_floating, lambda kind: sa.Double()),
    ("decimal", pa.types.is_decimal, lambda kind: sa.Numeric(kind.precision, kind.scale)),
    ("text", lambda kind: _is_text(kind) or pa.types.is_null(kind), lambda kind: sa.Text()),
    ("binary", _is_binary, lambda kind: sa.LargeBinary()),
    ("timestamp", pa.types.is_timestamp, lambda kind: sa.DateTime(timezone=kind.tz is not None)),
    ("date", pa.types.is_date, lambda kind: sa.Date()),
    ("time", pa.types.is_time, lambda kind: sa.Time()),
    ("nested", pa.types.is_nested, lambda kind: sa.JSON()),
)
"""What columns are made of values: the first that fits."""
_OWN: Mapping[str, Mapping[str, Callable[[pa.DataType], Any]]] = {
    "postgresql": {"nested": lambda kind: postgresql.JSONB()},
    # It would keep these as floats.
    "sqlite": {"decimal": lambda kind: sa.Text()},
    "mysql": {
        "text": lambda kind: mysql.LONGTEXT(),
        "text key": lambda kind: mysql.VARCHAR(255),
        "binary": lambda kind: mysql.LONGBLOB(),
        "binary key": lambda kind: mysql.VARBINARY(255),
        "timestamp": lambda kind: mysql.DATETIME(fsp=6),
        "time": lambda kind: mysql.TIME(fsp=6),
    },
}
"""Those of one database. A text that is a key has a length in MySQL."""


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    is_nested = pa.types.is_nested(column.type)
    return list(column.to_pylist(maps_as_pydicts="strict") if is_nested else column.to_pylist())


def _as_texts(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([None if value is None else _as_json(value) for value in _values(column)], pa.string())


def _plain(rows: pa.Table) -> pa.Table:
    """Without the forms of Arrow that no database has: dictionaries, and columns of nothing."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(number, field.name, rows[number].cast(field.type.value_type))
        elif pa.types.is_null(field.type):
            rows = rows.set_column(number, field.name, rows[number].cast(pa.string()))
    return rows


# Loading.


class Loading:
    """Rows on their way into a table, by statements with many values."""

    def __init__(self, table: sa.Table, rows: pa.Table, merge_on: Sequence[str], dialect: str) -> None:
        self.table, self._merge_on = table, merge_on
        self._numbers = _last_of(rows, merge_on) if merge_on else None
        self._rows = _plain(rows if self._numbers is None else rows.take(self._numbers))
        self._names = self._rows.column_names
        self._dialect = dialect

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def number(self, index: int) -> int:
        """The number of a row among those that were given."""
        return index if self._numbers is None else self._numbers[index]

    def into(self, connection: sa.Connection, start: int, end: int) -> None:
        """Rows from `start` up to `end`, without it. Raises what the driver raises."""
        part = self._rows.slice(start, end - start)
        target = sa.table(self.table.name, *map(self._bound, self._names), schema=self.table.schema)
        columns = [self._fitted(part[name], target.c[name].type) for name in self._names]
        values = [dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True)]
        connection.execute(self._statement(target), values)

    def _bound(self, name: str) -> Any:
        kind = self.table.c[name].type
        if isinstance(kind, sa.Numeric) and self._dialect == "sqlite" and pa.types.is_decimal(self._rows[name].type):
            kind = sa.Text()
        return sa.column(name, kind)

    def _fitted(self, column: pa.ChunkedArray, kind: Any) -> list[Any]:
        if pa.types.is_nested(column.type) and not isinstance(kind, sa.JSON | sa.ARRAY):
            return list(_as_texts(column).to_pylist())
        if isinstance(kind, sa.String) and not _is_text(column.type):
            return list(column.cast(pa.string()).to_pylist())
        return _values(column)

    def _statement(self, target: Any) -> Any:
        if not self._merge_on:
            return sa.insert(target)
        insert = _MERGING[self._dialect](target)
        if self._dialect in ("mysql", "mariadb"):
            others = {name: insert.inserted[name] for name in self._names}
            return insert.on_duplicate_key_update(others)
        others = {name: insert.excluded[name] for name in self._names if name not in self._merge_on}
        if not others:
            return insert.on_conflict_do_nothing(index_elements=list(self._merge_on))
        return insert.on_conflict_do_update(index_elements=list(self._merge_on), set_=others)


class Copying(Loading):
    """The same by PostgreSQL's COPY, from texts that Arrow makes; to merge, by way of a temporary table."""

    def into(self, connection: sa.Connection, start: int, end: int) -> None:
        preparer = connection.dialect.identifier_preparer
        table, columns = preparer.format_table(self.table), ", ".join(map(preparer.quote, self._names))
        target = table
        if self._merge_on:
            target = "rmq_rows"
            connection.exec_driver_sql(
                f"CREATE TEMP TABLE IF NOT EXISTS {target} ON COMMIT DROP AS SELECT {columns} FROM {table} WHERE false"
            )
            connection.exec_driver_sql(f"TRUNCATE {target}")
        text = _csv(self._rows.slice(start, end - start))
        driver: Any = connection.connection.driver_connection
        with driver.cursor() as cursor, cursor.copy(f"COPY {target} ({columns}) FROM STDIN (FORMAT csv)") as copy:
            for at in range(0, len(text), _CHUNK):
                copy.write(text[at : at + _CHUNK])
        if self._merge_on:
            keys = ", ".join(map(preparer.quote, self._merge_on))
            names = [preparer.quote(name) for name in self._names if name not in self._merge_on]
            what = f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names)}" if names else "NOTHING"
            connection.exec_driver_sql(
                f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {target} ON CONFLICT ({keys}) DO {what}"
            )


_CHUNK = 1024 * 1024


def _csv(rows: pa.Table) -> memoryview:
    for number, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            rows = rows.set_column(number, field.name, _as_texts(rows[number]))
        elif _is_binary(field.type):
            texts = [None if value is None else "\\x" + value.hex() for value in rows[number].to_pylist()]
            rows = rows.set_column(number, field.name, pa.array(texts, pa.string()))
    out = pa.BufferOutputStream()
    pyarrow.csv.write_csv(rows, out, pyarrow.csv.WriteOptions(include_header=False))
    return memoryview(out.getvalue())


def loading_of(database: Database, table: sa.Table, rows: pa.Table, merge_on: Sequence[str]) -> Loading:
    """What loads rows the quickest way. Raises SinkError where the database or the table cannot merge."""
    dialect = database.dialect
    if merge_on:
        _check_keys(table, rows, merge_on)
    has_arrays = any(isinstance(table.c[name].type, sa.ARRAY) for name in rows.column_names)
    kind = Copying if (dialect.name, dialect.driver) == ("postgresql", "psycopg") and not has_arrays else Loading
    return kind(table, rows, merge_on, dialect.name)


def _check_keys(table: sa.Table, rows: pa.Table, merge_on: Sequence[str]) -> None:
    said = f"merge_on={list(merge_on)}"
    lacking = [name for name in merge_on if name not in rows.column_names]
    if lacking:
        raise SinkError(f"{said}: the rows have no column {', '.join(lacking)}")
    unique = [constraint for constraint in table.constraints if isinstance(constraint, sa.UniqueConstraint)]
    keys: list[Any] = [table.primary_key, *unique, *(index for index in table.indexes if index.unique)]
    if not any({column.name for column in key.columns} == set(merge_on) for key in keys):
        raise SinkError(f"{said}: {table} has no unique key of just these columns")


def _last_of(rows: pa.Table, merge_on: Sequence[str]) -> list[int]:
    """The numbers of the rows that no later row of the batch replaces, in their order."""
    held = zip(*(rows[name].to_pylist() for name in merge_on), strict=True)
    last = {(number if None in key else key): number for number, key in enumerate(held)}
    return sorted(last.values())
