"""`foreachBatch(delta_once(...))`, `iceberg_once`, `sql_once`: a stream's batches in a table, each once.

Spark may run a batch again after a crash. Rows and the number of their batch are one commit of the table, made on the
very state whose number was read, so a batch that the table has is left out, and of two writers one is refused and looks
again. Rows pass through the driver, so a batch has to fit there.

`name`: one for each checkpoint, because the numbers of batches begin anew with it. The table keeps the id of the query,
which its checkpoint has, and a batch of another one is refused: its number does not say whether its rows are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from pyspark_rocketmq.problems import WriteError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Store = Callable[["DataFrame", int], None]
_NONE = -1
"""The number of a query that has no batch in its table yet."""
_ATTEMPTS = 20
"""How often others may commit in a row before a batch is given up, and the query fails."""


def delta_once(table: str, name: str, *, storage_options: Mapping[str, str] | None = None) -> Store:
    """A function for `foreachBatch` that appends to this Delta table, which it creates when it is not there.

    `storage_options`: those of `deltalake`, for tables in object stores.
    """

    def attempt(rows: Callable[[], pa.Table], batch: int, query: str) -> bool:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError

        options = dict(storage_options or {})
        if not DeltaTable.is_deltatable(table, options):
            # Without rows: of two writers that find no table, both would put the first batch into it.
            write_deltalake(table, rows().slice(0, 0), mode="ignore", storage_options=options)
        target = DeltaTable(table, storage_options=options)
        done, own = target.transaction_version(name), f"{name}/{query}"
        if done is not None and _has(table, name, batch, done, target.transaction_version(own) is not None):
            return True
        numbers = [Transaction(identifier, batch) for identifier in (name, own)]
        commit = CommitProperties(app_transactions=numbers, max_commit_retries=0)
        try:
            write_deltalake(target, rows(), mode="append", commit_properties=commit)
        except CommitFailedError:
            return False
        return True

    return _store(table, name, attempt)


def iceberg_once(catalog: Mapping[str, str], table: str, name: str) -> Store:
    """A function for `foreachBatch` that appends to this Iceberg table. Needs `rocketapp-lake[iceberg]`.

    `catalog`: the properties of `pyiceberg`, such as `uri`. Number and query are the property `spark.batch.<name>`.
    """

    def attempt(rows: Callable[[], pa.Table], batch: int, query: str) -> bool:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table import TableProperties

        target, number = load_catalog("once", **catalog).load_table(table), f"spark.batch.{name}"
        if number in target.properties:
            done, _, by = target.properties[number].partition(" ")
            if _has(table, name, batch, int(done), by == query):
                return True
        # The library would go on behind commits of others, of this batch too. It asks this object, which is not stored.
        alone = {**target.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        target.metadata = target.metadata.model_copy(update={"properties": alone})
        try:
            with target.transaction() as transaction:
                transaction.set_properties({number: f"{batch} {query}"})
                transaction.append(rows())
        except CommitFailedException:
            return False
        return True

    return _store(table, name, attempt)


def sql_once(url: str, table: str, name: str) -> Store:
    """A function for `foreachBatch` that inserts into this table, which is there. Needs `rocketapp-lake[sql]`.

    `url`: SQLAlchemy's. `table`: with or without `schema.` in front; beside it `spark_batches` is made, which has the
    numbers. Rows and number are one transaction.
    """
    schema, _, own = table.rpartition(".")

    def attempt(rows: Callable[[], pa.Table], batch: int, query: str) -> bool:
        import sqlalchemy as sa

        engine = sa.create_engine(url, poolclass=sa.NullPool, hide_parameters=True)
        meta = sa.MetaData(schema=schema or None)
        log = sa.Table(
            "spark_batches",
            meta,
            sa.Column("table_name", sa.String(255), primary_key=True),
            sa.Column("query", sa.String(255), primary_key=True),
            sa.Column("batch", sa.BigInteger, nullable=False),
            sa.Column("query_id", sa.String(36), nullable=False),
        )
        mine = (log.c.table_name == own) & (log.c.query == name)
        try:
            # Of two writers that find no number, or no table of numbers, one is refused: it looks again.
            try:
                meta.create_all(engine)
            except sa.exc.DBAPIError:
                if not sa.inspect(engine).has_table(log.name, schema or None):
                    raise
            try:
                with engine.begin() as connection:
                    if connection.scalar(sa.select(log.c.batch).where(mine)) is None:
                        first = {"table_name": own, "query": name, "batch": _NONE, "query_id": query}
                        connection.execute(sa.insert(log).values(first))
            except sa.exc.IntegrityError:
                return False
            with engine.begin() as connection:
                # Of two writers the second one waits here until the first is done, and changes nothing then.
                older = (log.c.batch == _NONE) | (log.c.query_id == query) & (log.c.batch < batch)
                newer = sa.update(log).where(mine, older).values(batch=batch, query_id=query)
                if not connection.execute(newer).rowcount:
                    done, by = connection.execute(sa.select(log.c.batch, log.c.query_id).where(mine)).one()
                    return _has(table, name, batch, done, by == query)
                target = sa.Table(own, sa.MetaData(), schema=schema or None, autoload_with=connection)
                if values := rows().to_pylist():
                    connection.execute(sa.insert(target), values)
        finally:
            engine.dispose()
        return True

    return _store(table, name, attempt)


def _has(table: str, name: str, batch: int, done: int, is_own: bool) -> bool:
    """Whether the table has this batch; `done` is the last one that it has, `is_own` that the same query has made it.

    Raises WriteError for an older one, and for one of another query.
    """
    if not is_own:
        raise WriteError(
            f"{table} has batch {done} of {name}, and this is of another checkpoint: give each checkpoint its own name"
        )
    if batch < done:
        raise WriteError(f"{table} has batch {done} of {name}, this is {batch}: its checkpoint is older than the table")
    return done == batch


def _query_of(frame: DataFrame) -> str:
    """The id of the query whose batch this is. It stands in its checkpoint. Spark Connect does not tell it."""
    context = getattr(frame.sparkSession, "sparkContext", None)
    return (context and context.getLocalProperty("sql.streaming.queryId")) or ""


def _store(table: str, name: str, attempt: Callable[[Callable[[], pa.Table], int, str], bool]) -> Store:
    """`attempt` says whether the table has the batch now, and not that another one has committed before."""

    def store(frame: DataFrame, batch: int) -> None:
        rows, query = cache(frame.toArrow), _query_of(frame)
        if not any(attempt(rows, batch, query) for _ in range(_ATTEMPTS)):
            raise WriteError(
                f"{table}: others have committed {_ATTEMPTS} times in a row before batch {batch} of {name}"
            )

    return store
