"""Spark loads the rows of a batch into a table of a database, by the types that it knows for that database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from rocketapp_pyspark.database import Connection, Database, DatabaseError
from rocketapp_pyspark.errors import SinkError
from rocketapp_pyspark.session import cause_of

if TYPE_CHECKING:
    import pyarrow as pa

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
