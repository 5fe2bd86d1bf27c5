"""A table of a database: rows and positions in one of its transactions.

    <schema>.rmq_commits     one per commit, a number of the sink each: its key is the fence
    <schema>.rmq_positions   where each sink stands in its queues
    <schema>.rmq_stg_<seconds>_<batch>   rows that Spark has loaded and that are not visible

Tasks of Spark write by transactions of their own, so rows go into a stage first. One transaction then adds the commit,
moves the positions and copies the rows. A process that dies in it leaves nothing: the database rolls it back. Of two
owners the second one waits at the key of the commit, and gets it only when the first one has been rolled back.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from time import time_ns
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from py4j.protocol import Py4JError

from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.lanes import Lane
from rocketapp_lake.records import Commit, Head, decode, encode, to_json
from rocketapp_lake.staging import Staged
from rocketapp_pyspark.database import Connection, Database, DatabaseError
from rocketapp_pyspark.session import cause_of

if TYPE_CHECKING:
    import pyarrow as pa


log = logging.getLogger("rocketapp.lake")

COMMITS, POSITIONS = "rmq_commits", "rmq_positions"
PART = 4000
"""Characters of a commit in one row: the longest text that every database takes."""
_OWNER = "table_name VARCHAR(128) NOT NULL, sink VARCHAR(200) NOT NULL"
_TABLES = {
    COMMITS: f"{_OWNER}, commit_number BIGINT NOT NULL, part INTEGER NOT NULL, batch_id VARCHAR(64) NOT NULL,"
    f" entry VARCHAR({PART}) NOT NULL, PRIMARY KEY (table_name, sink, commit_number, part)",
    POSITIONS: f"{_OWNER}, topic VARCHAR(127) NOT NULL, broker VARCHAR(127) NOT NULL, queue_id INTEGER NOT NULL,"
    f" next_offset BIGINT NOT NULL, PRIMARY KEY (table_name, sink, topic, broker, queue_id)",
}
_OURS = "table_name = ? AND sink = ?"
_LANE = f"{_OURS} AND topic = ? AND broker = ? AND queue_id = ?"
_STAGE = re.compile(r"rmq_stg_(\d+)_(.+)")


class JdbcStore:
    """One sink in one table (rocketapp_lake.store.Store)."""

    def __init__(self, table: str, sink: str, database: Database) -> None:
        """`table`: its name, with or without `schema.` in front."""
        self.sink, self._database = sink, database
        self._name = table
        self._schema, _, self._table = table.rpartition(".")
        self._ours = self._table, sink
        self._has_log = False
        self._made: set[str] = set()
        """Tables that are there."""
        self._taken: pa.Schema | None = None
        """Columns that the table is known to take."""

    def __repr__(self) -> str:
        return f"<JdbcStore {self._database.options.place} {self._name} of {self.sink}>"

    def load(self) -> Head:
        with self._database.connected() as connection:
            # The commit first. Later positions beside it are harmless: its successor is taken, and the owner is fenced.
            newest = self._newest(connection)
            if newest is None:
                return Head()
            vector = self._positions(connection)
            return Head(sequence=newest.sequence, batch=newest.batch, vector=vector, schema=newest.schema)

    def _stage_rows(self, batch: str, rows: pa.Table) -> Staged:
        loading = Loading(self._database, rows)
        with self._database.connected() as connection:
            columns = ", ".join(loading.columns(connection))
            self._make(connection, {**_TABLES, self._table: columns})
            for _, name in self._stages(connection, batch):
                self._drop(connection, name)
            stage = self._new_stage(connection, batch, columns)
            try:
                self._fill(connection, self._place(connection, stage), rows, loading)
            except Exception:
                # The next attempt has another name: the tables of many would gather.
                self._drop(connection, stage)
                raise
        return Staged(batch, rows.num_rows, rows.nbytes, (stage, rows.column_names))

    def _fill(self, connection: Connection, stage: str, rows: pa.Table, loading: Loading) -> None:
        if self._taken != rows.schema:
            self._check(connection, stage, rows.column_names)
            self._taken = rows.schema
        loading.into(stage)
        ((there,),) = connection.rows(f"SELECT COUNT(*) FROM {stage}")
        if there != rows.num_rows:
            # A task ran twice, and Spark did not learn that it had committed.
            raise DatabaseError(f"{there} rows of {rows.num_rows} are in {stage}: they are loaded again", "")

    def add_columns(self, columns: pa.Schema) -> None:
        """For `evolution="add"` (rocketapp_lake.store.Growing)."""
        loading = Loading(self._database, columns.empty_table())
        with self._database.connected() as connection:
            if not connection.has(self._schema, self._table):
                return
            place = self._place(connection, self._table)
            has = connection.columns(place)
            wanted = dict(zip(columns.names, loading.columns(connection), strict=True))
            self._check_there(connection, {name: column for name, column in wanted.items() if name in has})
            for name, column in wanted.items():
                if name not in has:
                    self._add_column(connection, place, name, column)

    def _add_column(self, connection: Connection, place: str, name: str, column: str) -> None:
        try:
            connection.run(f"ALTER TABLE {place} ADD COLUMN {column}")
        except DatabaseError:
            # Another owner may have been faster.
            if name not in connection.columns(place):
                raise

    def check(self, rows: pa.Table) -> None:
        """The commit finds out."""

    def commit(self, commit: Commit, rows: pa.Table | None) -> None:
        self._publish(commit, None if rows is None else self._stage_rows(commit.batch, rows))

    def _publish(self, commit: Commit, staged: Staged | None) -> None:
        with self._database.connected() as connection:
            self._make(connection, _TABLES)
            with connection.transaction():
                self._add(connection, commit)
                self._move(connection, commit)
                if staged is not None:
                    self._copy(connection, staged)
            if staged is not None:
                self._drop(connection, staged.content[0])

    def who_committed(self, sequence: int) -> str | None:
        with self._database.connected() as connection:
            found = self._commits(connection, " AND commit_number = ?", sequence)
            return found[0].batch if found else None

    def sweep(self, older_than: float) -> int:
        limit = time_ns() / 1e9 - older_than
        with self._database.connected() as connection:
            old = [name for made_at, name in self._stages(connection) if made_at <= limit]
            return sum(self._drop(connection, name) for name in old)

    # Inside the transaction of a commit.

    def _add(self, connection: Connection, commit: Commit) -> None:
        """The fence: the number before is there, and this one is free."""
        before, place = commit.sequence - 1, self._place(connection, COMMITS)
        if before and not connection.rows(
            f"SELECT batch_id FROM {place} WHERE {_OURS} AND commit_number = ? AND part = 0", *self._ours, before
        ):
            raise FencedError(f"{self!r}: the table is not at commit {before}")
        text = to_json(encode(commit)).decode()
        for part, start in enumerate(range(0, len(text), PART)):
            values = (*self._ours, commit.sequence, part, commit.batch, text[start : start + PART])
            self._insert(connection, f"{place} (table_name, sink, commit_number, part, batch_id, entry)", values)

    def _move(self, connection: Connection, commit: Commit) -> None:
        """Every position from what it is to what the commit says; none may lie above the rows that come."""
        place, has = self._place(connection, POSITIONS), self._positions(connection)
        for lane, span in commit.spans.items():
            if has.get(lane, span.start) > span.start:
                raise FencedError(f"{self!r}: {lane} is at #{has[lane]} already")
        for lane, position in sorted(commit.vector.items()):
            if lane not in has:
                names = "table_name, sink, topic, broker, queue_id, next_offset"
                self._insert(connection, f"{place} ({names})", (*self._ours, *lane, position))
            elif has[lane] != position:
                sql = f"UPDATE {place} SET next_offset = ? WHERE {_LANE} AND next_offset = ?"
                if connection.run(sql, position, *self._ours, *lane, has[lane]) != 1:
                    raise FencedError(f"{self!r}: another owner has moved {lane}")
        for lane in has.keys() - commit.vector.keys():
            connection.run(f"DELETE FROM {place} WHERE {_LANE}", *self._ours, *lane)

    def _insert(self, connection: Connection, where: str, values: tuple[str | int, ...]) -> None:
        try:
            connection.run(f"INSERT INTO {where} VALUES ({', '.join('?' * len(values))})", *values)
        except DatabaseError as error:
            if error.is_taken:
                raise FencedError(f"{self!r}: another owner has committed: {error}") from None
            raise

    def _copy(self, connection: Connection, staged: Staged) -> None:
        stage, names = staged.content
        if not connection.has(self._schema, stage):
            raise SinkError(f"{stage} has vanished: it was staged too long ago")
        copied = connection.run(self._copying(connection, self._place(connection, stage), names))
        if copied != staged.rows:
            raise SinkError(f"{stage} has {copied} rows of {staged.rows}: another program has changed it")

    # Tables.

    def _place(self, connection: Connection, table: str) -> str:
        return connection.quoted(self._schema, table)

    def _make(self, connection: Connection, tables: Mapping[str, str]) -> None:
        """Create what is missing: names and columns."""
        for name, columns in tables.items():
            if name in self._made or connection.has(self._schema, name):
                continue
            try:
                connection.run(f"CREATE TABLE {self._place(connection, name)} ({columns})")
            except DatabaseError:
                # Another owner may have been faster.
                if not connection.has(self._schema, name):
                    raise
        self._made |= tables.keys()

    def _check(self, connection: Connection, stage: str, names: Sequence[str]) -> None:
        """Raises SinkError unless the table takes what these columns of a stage, which is quoted, may hold."""
        place = self._place(connection, self._table)
        has = connection.columns(place)
        missing = [name for name in names if name not in has]
        if missing:
            raise SinkError(f"{place} has no column {', '.join(missing)}: it has {', '.join(has)}; add what is missing")
        try:
            connection.run(f"{self._copying(connection, stage, names)} WHERE 1 = 0")
        except DatabaseError as error:
            raise SinkError(f"{place} has other columns than the rows of the sink: {error}") from None

    def _check_there(self, connection: Connection, columns: Mapping[str, str]) -> None:
        """The same for some columns of the table. `columns`: as CREATE TABLE takes them, by their names."""
        if not columns:
            return
        stage = self._new_stage(connection, uuid4().hex, ", ".join(columns.values()))
        try:
            self._check(connection, self._place(connection, stage), list(columns))
        finally:
            self._drop(connection, stage)

    def _new_stage(self, connection: Connection, batch: str, columns: str) -> str:
        """Its name."""
        stage = f"rmq_stg_{time_ns() // 1_000_000_000}_{batch}"
        connection.run(f"CREATE TABLE {self._place(connection, stage)} ({columns})")
        return stage

    def _copying(self, connection: Connection, stage: str, names: Sequence[str]) -> str:
        columns = ", ".join(map(connection.quoted, names))
        return f"INSERT INTO {self._place(connection, self._table)} ({columns}) SELECT {columns} FROM {stage}"

    def _stages(self, connection: Connection, batch: str | None = None) -> list[tuple[int, str]]:
        """When they were made, in seconds since 1970, and their names."""
        found = map(_STAGE.fullmatch, connection.tables(self._schema, "rmq_stg_%"))
        return [(int(match[1]), match[0]) for match in found if match and batch in (None, match[2])]

    def _drop(self, connection: Connection, stage: str) -> bool:
        """Whether it was there. What is left over is swept later."""
        try:
            connection.run(f"DROP TABLE {self._place(connection, stage)}")
        except DatabaseError as error:
            log.debug("%r: %s stays: %s", self, stage, error)
            return False
        return True

    # What they hold.

    def sinks(self) -> list[str]:
        """The names of all sinks of this table."""
        with self._database.connected() as connection:
            if not self._is_there(connection):
                return []
            sql = f"SELECT DISTINCT sink FROM {self._place(connection, COMMITS)} WHERE table_name = ? ORDER BY sink"
            return [name for (name,) in connection.rows(sql, self._table)]

    def log(self) -> list[Commit]:
        """Every commit of this sink, oldest first."""
        with self._database.connected() as connection:
            return self._commits(connection)

    def left_over(self) -> int:
        """Batches that are staged in the schema of this table."""
        with self._database.connected() as connection:
            return len(self._stages(connection))

    def _newest(self, connection: Connection) -> Commit | None:
        if not self._is_there(connection):
            return None
        sql = f"SELECT MAX(commit_number) FROM {self._place(connection, COMMITS)} WHERE {_OURS}"
        ((number,),) = connection.rows(sql, *self._ours)
        return None if number is None else self._commits(connection, " AND commit_number = ?", number)[0]

    def _commits(self, connection: Connection, which: str = "", *values: int) -> list[Commit]:
        """In their order."""
        if not self._is_there(connection):
            return []
        place = self._place(connection, COMMITS)
        sql = f"SELECT commit_number, entry FROM {place} WHERE {_OURS}{which} ORDER BY commit_number, part"
        rows = connection.rows(sql, *self._ours, *values)
        texts = ["".join(text for _, text in parts) for _, parts in groupby(rows, key=itemgetter(0))]
        return [decode(json.loads(text)) for text in texts]

    def _is_there(self, connection: Connection) -> bool:
        """Whether a sink has committed in this schema."""
        self._has_log = self._has_log or connection.has(self._schema, POSITIONS)
        return self._has_log

    def _positions(self, connection: Connection) -> dict[Lane, int]:
        place = self._place(connection, POSITIONS)
        sql = f"SELECT topic, broker, queue_id, next_offset FROM {place} WHERE {_OURS}"
        return {
            Lane(topic, broker, queue): position for topic, broker, queue, position in connection.rows(sql, *self._ours)
        }


TASK_BYTES = 32 * 1024 * 1024
"""Bytes of rows in memory that make another task, each with a connection of its own."""
INSERT_ROWS = 10_000
"""Rows that a task sends at once."""


class Loading:
    """The rows of one batch, given to Spark."""

    def __init__(self, database: Database, rows: pa.Table) -> None:
        self._database = database
        session: Any = database.session()
        self._jvm = session._jvm
        tasks = max(1, min(session.sparkContext.defaultParallelism, rows.nbytes // TASK_BYTES))
        self._frame = session.createDataFrame(rows).coalesce(tasks)

    def columns(self, connection: Connection) -> list[str]:
        """Each as CREATE TABLE takes it. Raises SinkError for one that the database has no type for."""
        return [
            f"{connection.quoted(field.name())} {self._type(field)}{'' if field.nullable() else ' NOT NULL'}"
            for field in self._frame._jdf.schema().fields()
        ]

    def into(self, place: str) -> None:
        """Append to a table, which is quoted. When it raises some of the rows may be there."""
        from pyspark.errors import PySparkException

        options = {"dbtable": place, "batchsize": str(INSERT_ROWS), **self._database.spark_options()}
        try:
            self._frame.write.format("jdbc").options(**options).mode("append").save()
        except (Py4JError, PySparkException) as error:
            raise DatabaseError(self._database.options.masked(cause_of(error)), "") from None

    def _type(self, field: Any) -> str:
        dialect = self._jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self._database.options.url)
        found = dialect.getJDBCType(field.dataType())
        if found.isEmpty():
            common = self._jvm.org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils
            found = common.getCommonJDBCType(field.dataType())
        if found.isEmpty():
            raise SinkError(
                f"column {field.name()} is {field.dataType().simpleString()}, for which the database has no type: "
                f"make it a text in a function of the sink, or leave it out"
            )
        return str(found.get().databaseTypeDefinition())
