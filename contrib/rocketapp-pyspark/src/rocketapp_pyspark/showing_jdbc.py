"""Where the sinks of a table of a database stand. It needs a JVM: as the sink itself, it goes by the JDBC driver."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from rocketapp_pyspark.database import Database, DatabaseError, JdbcOptions
from rocketapp_pyspark.errors import SinkError
from rocketapp_pyspark.jdbc import JdbcStore
from rocketapp_pyspark.session import Spark
from rocketapp_pyspark.showing import Shown

PASSWORD = "ROCKETAPP_SINK_PASSWORD"
"""The variable of the environment with the password: others see the arguments of a command."""


@contextmanager
def database_of(url: str, user: str | None, jars: str) -> Iterator[Database]:
    """Within: a database for a command. `jars`: its driver, several with commas.

    Raises ClickException when the database cannot be asked.
    """
    try:
        options = JdbcOptions(url=url, user=user, password=os.environ.get(PASSWORD))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    spark = Spark("local[1]", {"spark.jars": jars})
    try:
        yield Database(spark, options)
    except (DatabaseError, SinkError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        spark.stop()


def shown_in_database(table: str, database: Database) -> tuple[Sequence[Shown], int]:
    """The sinks of a table, and how many batches are staged."""
    any_sink = JdbcStore(table, "", database)
    return [_shown(JdbcStore(table, name, database)) for name in any_sink.sinks()], any_sink.left_over()


def _shown(store: JdbcStore) -> Shown:
    head = store.load()
    return Shown(store.sink, head.sequence, head.vector, store.log())
