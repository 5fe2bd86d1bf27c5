"""What `format=` may say, and what makes the store of each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, Protocol

from rocketapp_pyspark.parquet import ParquetStore
from rocketapp_pyspark.session import Spark
from rocketapp_pyspark.store import Store
from rocketapp_pyspark.writing import by_spark

PartitionBy = Literal["day", "hour"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """What a sink says about its table."""

    table: str | os.PathLike[str]
    """Its place, as the user wrote it."""
    sink: str
    """The name of the sink: positions belong to it."""
    partition_by: PartitionBy | None = None
    """Rows are kept apart by the time at which brokers stored them, in UTC."""


class NewStore(Protocol):
    """Makes the store of one sink, as its app starts; nothing is read or written before the store is used."""

    def __call__(self, about: TableOptions, spark: Spark) -> Store:
        """`spark.session()` waits for the session."""
        ...


def parquet(about: TableOptions, spark: Spark) -> Store:
    return ParquetStore(about.table, about.sink, write=by_spark(spark, about.partition_by))


BUILT_IN: dict[str, NewStore] = {"parquet": parquet}
_registered: dict[str, NewStore] = {}


def register_format(name: str, new_store: NewStore) -> None:
    """Make `format=name` known to every sink of this process. Raises ValueError for a name that is taken."""
    if known().get(name, new_store) is not new_store:
        raise ValueError(f"format {name!r} is known already: give yours another name")
    _registered[name] = new_store


def known() -> dict[str, NewStore]:
    """By name, those of other packages included."""
    return {**BUILT_IN, **_registered}
