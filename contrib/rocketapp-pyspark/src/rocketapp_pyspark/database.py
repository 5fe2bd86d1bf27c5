"""A database as the JVM of Spark reaches it: by java.sql and the JDBC driver that Spark loads rows with.

So a sink needs one driver, one url and one way to log in. The calls block.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from rocketapp import RocketAppError
from rocketapp_lake.errors import SinkError
from rocketapp_lake.formats import JdbcOptions
from rocketapp_pyspark.session import Spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONGEST_ANSWER = 300
"""Seconds that one statement may take. A database that is cut off would keep its sink waiting for ever otherwise."""
FROZEN = "30s"
"""How long PostgreSQL lets a transaction stand still: one of a process that is stopped keeps all others waiting."""


class DatabaseError(RocketAppError):
    """The database refuses, or cannot be reached."""

    def __init__(self, text: str, state: str) -> None:
        super().__init__(text, state)
        self.text, self.state = text, state

    def __str__(self) -> str:
        return f"{self.text} (SQLSTATE {self.state})" if self.state else self.text

    @property
    def is_taken(self) -> bool:
        """A key is there already."""
        return self.state.startswith("23")


class Database:
    """Makes connections."""

    def __init__(self, spark: Spark, options: JdbcOptions) -> None:
        self._spark, self.options = spark, options

    def __repr__(self) -> str:
        return f"<Database {self.options.place}>"

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """A connection of its own, whatever became of others. What it leaves open is rolled back."""
        session: Any = self._spark.session()
        jvm = session._jvm
        try:
            with _told():
                java = self._driver(jvm).connect(self.options.url, self._properties(jvm))
                connection = Connection(java, jvm)
        except DatabaseError as error:
            raise DatabaseError(self.options.masked(error.text), error.state) from None
        try:
            yield connection
        finally:
            connection.close()

    def spark_options(self) -> dict[str, str]:
        """For `format("jdbc")` of Spark."""
        session: Any = self._spark.session()
        driver = self._driver(session._jvm).getClass().getName()
        given = {"user": self.options.user, "password": self.options.password}
        texts = {name: value for name, value in given.items() if value is not None}
        return {"url": self.options.url, "driver": driver, "isolationLevel": "READ_COMMITTED", **texts}

    def session(self) -> SparkSession:
        return self._spark.session()

    def _driver(self, jvm: Any) -> Any:
        """Found as DriverManager would, which does not see the jars that Spark has been given."""
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        drivers = jvm.java.util.ServiceLoader.load(jvm.java.lang.Class.forName("java.sql.Driver"), loader).iterator()
        while drivers.hasNext():
            # A driver that cannot be loaded is not the one that is looked for.
            with suppress(Py4JJavaError):
                driver = drivers.next()
                if driver.acceptsURL(self.options.url):
                    return driver
        raise SinkError(
            f"Spark has no JDBC driver for {self.options.place}: name its jar in the settings, "
            f'as spark.conf = ["spark.jars=/path/driver.jar"]'
        )

    def _properties(self, jvm: Any) -> Any:
        # At DEBUG py4j writes every argument into the log.
        logger = logging.getLogger("py4j")
        if logger.getEffectiveLevel() < logging.INFO:
            logger.setLevel(logging.INFO)
        properties = jvm.java.util.Properties()
        for name, value in (("user", self.options.user), ("password", self.options.password)):
            if value is not None:
                properties.setProperty(name, value)
        return properties


class Connection:
    """One connection; each statement is a transaction of its own until `transaction`."""

    def __init__(self, java: Any, jvm: Any) -> None:
        self._java = java
        about = java.getMetaData()
        self._about, self._mark = about, about.getIdentifierQuoteString().strip()
        with suppress(Exception):  # not every driver can
            java.setNetworkTimeout(jvm.java.util.concurrent.ForkJoinPool.commonPool(), LONGEST_ANSWER * 1000)
        if about.getDatabaseProductName() == "PostgreSQL":
            self.run(f"SET idle_in_transaction_session_timeout = '{FROZEN}'")

    def quoted(self, *parts: str) -> str:
        """A name as it was written, whatever the database makes of names without quotes."""
        return ".".join(f"{self._mark}{part}{self._mark}" for part in parts if part)

    def run(self, sql: str, *values: str | int) -> int:
        """Execute; the number of rows that it changed."""
        with _told(), self._statement(sql, values) as statement:
            return int(statement.executeUpdate())

    def rows(self, sql: str, *values: str | int) -> list[tuple[Any, ...]]:
        """What a query gives."""
        with _told(), self._statement(sql, values) as statement:
            found = statement.executeQuery()
            width = range(1, found.getMetaData().getColumnCount() + 1)
            rows = []
            while found.next():
                rows.append(tuple(found.getObject(number) for number in width))
            return rows

    def columns(self, table: str) -> list[str]:
        """The names of the columns of a table, which is quoted."""
        with _told(), self._statement(f"SELECT * FROM {table} WHERE 1 = 0", ()) as statement:
            about = statement.executeQuery().getMetaData()
            return [about.getColumnName(number) for number in range(1, about.getColumnCount() + 1)]

    def has(self, schema: str, table: str) -> bool:
        """Whether there is such a table."""
        return table in self.tables(schema, table)

    def tables(self, schema: str, like: str) -> list[str]:
        """The names of the tables of a schema; an empty one is that which names without a schema mean.

        `like`: a pattern of SQL.
        """
        with _told():
            catalog = self._java.getCatalog()
            place = schema or self._java.getSchema() or catalog
            found = self._about.getTables(None, None, like, None)
            names = []
            while found.next():
                # What others call a schema is a catalog in MySQL.
                if place in (found.getString("TABLE_SCHEM"), found.getString("TABLE_CAT")):
                    names.append(found.getString("TABLE_NAME"))
            found.close()
            return names

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits at the end, and rolls back when the block raises."""
        with _told():
            self._java.setAutoCommit(False)
        try:
            yield
            with _told():
                self._java.commit()
        except BaseException:
            with suppress(Exception):
                self._java.rollback()
            raise
        with _told():
            # Not before: it commits what is open.
            self._java.setAutoCommit(True)

    def close(self) -> None:
        with suppress(Exception):
            self._java.close()

    @contextmanager
    def _statement(self, sql: str, values: Sequence[str | int]) -> Iterator[Any]:
        statement = self._java.prepareStatement(sql)
        try:
            for number, value in enumerate(values, 1):
                if isinstance(value, str):
                    statement.setString(number, value)
                else:
                    statement.setLong(number, value)
            yield statement
        finally:
            with suppress(Exception):
                statement.close()


@contextmanager
def _told() -> Iterator[None]:
    """Errors of Java as one line."""
    try:
        yield
    except Py4JJavaError as error:
        java: Any = error.java_exception
        text = str(java.getMessage() or java.getClass().getName()).splitlines()[0]
        state = java.getSQLState() if _is_sql(java) else None
        raise DatabaseError(text, state or "") from None


def _is_sql(java: Any) -> bool:
    kind: Any = java.getClass()
    while kind is not None:
        if kind.getName() == "java.sql.SQLException":
            return True
        kind = kind.getSuperclass()
    return False
