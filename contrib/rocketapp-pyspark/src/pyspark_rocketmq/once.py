"""`foreachBatch(delta_once(...))`: a stream's batches in a Delta table, each once.

Spark may run a batch again after a crash. Rows and the number of their batch are one commit of the table, written
through the very version whose number was read, so a batch that the table has is left out, and of two writers one fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark_rocketmq.problems import WriteError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger("pyspark_rocketmq")


def delta_once(
    table: str, name: str, *, storage_options: Mapping[str, str] | None = None
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that appends to this table, which it creates when it is not there.

    `name`: one for each checkpoint, because the numbers of batches begin anew with it. Rows pass through the driver, so
    a batch has to fit there. `storage_options`: those of `deltalake`, for tables in object stores.
    """

    def store(frame: DataFrame, batch: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

        options = dict(storage_options or {})
        target: DeltaTable | str = table
        if DeltaTable.is_deltatable(table, options):
            target = DeltaTable(table, storage_options=options)
            done = target.transaction_version(name)
            if done is not None and batch < done:
                raise WriteError(
                    f"{table} has batch {done} of {name}, this is {batch}: give each checkpoint its own name"
                )
            if done == batch:
                _log.info("%s has batch %d of %s already", table, batch, name)
                return
        commit = CommitProperties(app_transactions=[Transaction(name, batch)], max_commit_retries=0)
        write_deltalake(
            target,
            frame.toArrow(),
            mode="append",
            commit_properties=commit,
            storage_options=options if target is table else None,
        )

    return store
