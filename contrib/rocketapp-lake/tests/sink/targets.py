"""The tables that `kills.py` writes: what an app is told of them, and what a reader sees in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import s3
from deltalake import DeltaTable

from rocketapp_lake.delta import transaction_of
from rocketapp_lake.parquet import LOG, ParquetStore

SINK = "shop/orders"
JARS = ":".join(map(str, (Path(__file__).parents[4] / ".cache" / "spark-jars").glob("delta-*.jar")))
"""What `make test` has fetched: that of Delta among them, for Spark 4.1."""
COLUMNS = ["_rmq_topic", "_rmq_broker", "_rmq_queue", "_rmq_offset", "body"]


class Target(Protocol):
    """One table."""

    points: tuple[str, ...]
    """Where a commit can be cut."""

    def options(self) -> dict[str, Any]:
        """The keywords of `app.sink`."""
        ...

    def commits(self) -> int:
        """How many of them there are."""
        ...

    def rows(self) -> list[dict[str, Any]]:
        """COLUMNS, as any reader sees them."""
        ...

    def end(self) -> None:
        """The last writer is dead: what it has left half done is completed."""
        ...


class Directory:
    """Of Parquet files."""

    points = ("buffering", "staging", "staged", "linked", "moved", "published")
    """Before a commit, while it writes, before and after its commit point, and before its acks."""

    def __init__(self, path: Path, is_naive: bool) -> None:
        self.path, self.is_naive = path, is_naive
        path.mkdir()

    def options(self) -> dict[str, Any]:
        return {"table": str(self.path)}

    def commits(self) -> int:
        return len(list(self.path.glob("*/part*.parquet" if self.is_naive else f"{LOG}/*/*.json")))

    def rows(self) -> list[dict[str, Any]]:
        place = self._place()
        if not self.commits() or not place:
            return []
        found: list[dict[str, Any]] = ds.dataset(place, format="parquet").to_table(columns=COLUMNS).to_pylist()
        return found

    def _place(self) -> Any:
        """A handler that is killed leaves torn files beside the others."""
        return list(filter(_is_whole, self.path.glob("*/part*.parquet"))) if self.is_naive else self.path

    def end(self) -> None:
        ParquetStore(self.path, SINK, write=lambda rows, files: None).load()


def _is_whole(file: Path) -> bool:
    try:
        pq.read_metadata(file)
    except (OSError, pa.ArrowException):
        return False
    return True


class Table:
    """Of a PostgreSQL."""

    points = ("fenced", "loaded", "committed")
    """In the transaction, before and behind the rows, and when it is over, before it is read back."""

    def __init__(self, url: str, connection: Any, is_naive: bool) -> None:
        self._url, self._connection = url, connection
        self._commits = "SELECT count(DISTINCT xmin::text) AS n FROM orders" if is_naive else _COMMITS

    def options(self) -> dict[str, Any]:
        return {"table": "orders", "url": self._url}

    def end(self) -> None:
        """A transaction is done or not."""

    def commits(self) -> int:
        return int(self._all(self._commits)[0]["n"]) if self._is_there() else 0

    def rows(self) -> list[dict[str, Any]]:
        return self._all(f"SELECT {', '.join(COLUMNS)} FROM orders") if self._is_there() else []

    def _is_there(self) -> bool:
        return bool(self._all("SELECT to_regclass('orders') IS NOT NULL AS n")[0]["n"])

    def _all(self, sql: str) -> list[dict[str, Any]]:
        return self._connection.execute(sql).fetchall()  # type: ignore[no-any-return]


class Delta:
    """In a directory, or in the bucket of an S3 server."""

    points = ("writing", "committed")
    """Before its files are written and committed, and behind that, before it is read back."""

    def __init__(self, place: str, is_compacted: bool, bucket: str = "") -> None:
        """`bucket`: the address of that server, which apps know by the settings."""
        self.place, self.is_compacted = place, is_compacted
        self._opened: DeltaTable | None = None
        self._storage = s3.storage(bucket) if bucket else None
        if self._storage is not None:
            os.environ["ROCKETAPP_LAKE__STORAGE"] = s3.as_setting(self._storage)

    def options(self) -> dict[str, Any]:
        return {"table": self.place, **({"compact_every": 0.4} if self.is_compacted else {})}

    def commits(self) -> int:
        return 0 if not self._is_there() else self._table().transaction_version(transaction_of(SINK)) or 0

    def rows(self) -> list[dict[str, Any]]:
        if not self._is_there():
            return []
        found: list[dict[str, Any]] = self._table().to_pyarrow_table(columns=COLUMNS).to_pylist()
        return found

    def end(self) -> None:
        """A commit of a log is there or not."""

    def _table(self) -> DeltaTable:
        """Opened once, as each file of its log is a question to a server."""
        if self._opened is None:
            self._opened = DeltaTable(self.place, storage_options=self._storage)
        self._opened.update_incremental()
        return self._opened

    def _is_there(self) -> bool:
        return self._opened is not None or DeltaTable.is_deltatable(self.place, self._storage)


class Iceberg:
    """In a catalog on SQLite, which apps know by the settings of pyiceberg."""

    points = ("written", "committed")
    """Before the commit of its catalog, and behind it, before it is read back."""

    def __init__(self, path: Path, bucket: str = "", *, is_naive: bool = False) -> None:
        """`bucket`: the address of an S3 server that the files are on."""
        where = {"uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}"}
        if bucket:
            where |= {"warehouse": f"s3://{s3.BUCKET}", "s3.endpoint": bucket, "s3.region": s3.REGION}
            where |= {"s3.access-key-id": s3.KEY, "s3.secret-access-key": s3.SECRET}
        for name, value in where.items():
            os.environ[f"PYICEBERG_CATALOG__LAKE__{name.upper().replace('.', '__').replace('-', '_')}"] = value
        # It reads them when it is imported.
        from pyiceberg.catalog.sql import SqlCatalog

        from rocketapp_lake.iceberg import newest_of

        self._newest_of, self._is_naive = newest_of, is_naive
        self._catalog = SqlCatalog("lake", **where)

    def options(self) -> dict[str, Any]:
        return {"table": "lake.shop.orders"}

    def commits(self) -> int:
        if not self._catalog.table_exists("shop.orders"):
            return 0
        if self._is_naive:
            return len(self._table().metadata.snapshots)
        newest = self._newest_of(self._table()).get(SINK)
        return 0 if newest is None else newest.sequence

    def rows(self) -> list[dict[str, Any]]:
        if not self.commits():
            return []
        found: list[dict[str, Any]] = self._table().scan(selected_fields=tuple(COLUMNS)).to_arrow().to_pylist()
        return found

    def end(self) -> None:
        """A commit of a catalog is done or not."""

    def close(self) -> None:
        self._catalog.engine.dispose()

    def _table(self) -> Any:
        return self._catalog.load_table("shop.orders")


_COMMITS = "SELECT coalesce(max(sequence), 0) AS n FROM rmq_commits"


@contextmanager
def target(directory: Path, format: str, is_naive: bool, is_compacted: bool = False) -> Iterator[Target]:
    if format == "delta" and not is_naive:
        yield Delta(str(directory / "table"), is_compacted)
    elif format == "s3-delta":
        with s3.serving() as bucket:
            yield Delta(f"s3://{s3.BUCKET}/table", is_compacted, bucket)
    elif format == "s3-iceberg":
        with s3.serving() as bucket, closing(Iceberg(directory, bucket)) as table:
            yield table
    elif format == "iceberg":
        with closing(Iceberg(directory, is_naive=is_naive)) as table:
            yield table
    elif format != "sql":
        yield Directory(directory / "table", is_naive)
    else:
        import postgres  # where Spark's versions are tested there is none

        with postgres.serving() as server:
            url = server.create("shop")
            with closing(server.connect("shop")) as connection:
                yield Table(url, connection, is_naive)
