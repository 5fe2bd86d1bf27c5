"""An Iceberg table of any catalog, with its files on a local or network file system.

    <location>/metadata/                        Iceberg's own
    <location>/_rmq_staging/<batch>/            files that are written and not in the table
    <location>/data/<partitions>/<batch>-part-....parquet

Spark writes the files, and Iceberg's library for Python commits them. One commit of the catalog adds a snapshot, whose
summary says what it is, and sets a property of the table that says where the sink stands: snapshots expire, properties
do not. The commit holds for exactly the snapshot that was looked at before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyiceberg.catalog
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.transforms import DayTransform, HourTransform, Transform

from rocketapp_lake.columns import COORDINATES
from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.records import Commit, Head, decode, encode, to_json
from rocketapp_lake.staging import Staging, Write, place_of, sync
from rocketapp_lake.writing import STORED

if TYPE_CHECKING:
    from rocketapp_lake.formats import PartitionBy
    from rocketapp_lake.staging import Staged

MOST_CONFLICTS = 100
"""Commits of others that one publication gives way to."""
RECORD = "rocketapp"
"""In the summary of a snapshot: which commit of a sink it is, as JSON."""
PROPERTY = "rocketapp.sink."
"""In front of the name of a sink: the property with its newest commit."""
AT = "at"
"""In that property: the number that Iceberg gives the snapshot."""


class IcebergStore:
    """One sink in one Iceberg table (rocketapp_lake.store.Store)."""

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        name: str,
        sink: str,
        *,
        write: Write,
        partition_by: PartitionBy | None = None,
        is_set_back: bool = False,
    ) -> None:
        """`name`: namespace and table, with dots between them. `catalog`: opened at first use.

        `partition_by`: how a table that is created here is partitioned; each file of `write` is of one day or hour.
        `is_set_back`: a table that was rolled back is taken as it is, with the positions of its rows.
        """
        self.name, self.sink, self._write, self._partition_by = name, sink, write, partition_by
        self._is_set_back = is_set_back
        self._new_catalog, self._opened = catalog, list[Catalog]()

    def __repr__(self) -> str:
        return f"<IcebergStore {self.name} of {self.sink}>"

    def load(self) -> Head:
        table = self._open()
        newest = None if table is None else self._newest(table)
        if table is None or newest is None:
            return Head()
        commit = self._kept(table, newest) if self._is_set_back else newest
        batch = commit.batch if commit.sequence == newest.sequence else ""
        return Head(sequence=newest.sequence, batch=batch, vector=commit.vector, schema=commit.schema)

    def _stage_rows(self, batch: str, rows: pa.Table) -> Staged:
        return self._staging(self._open() or self._create(rows.schema)).stage(batch, rows)

    def check(self, rows: pa.Table) -> None:
        """The commit finds out."""

    def commit(self, commit: Commit, rows: pa.Table | None) -> None:
        table = self._open()
        if rows is not None and table is not None and {*table.schema().column_names} <= {*COORDINATES.names}:
            self.add_columns(rows.schema)  # it was made for a commit without rows
        self._publish(commit, None if rows is None else self._stage_rows(commit.batch, rows))

    def _publish(self, commit: Commit, staged: Staged | None) -> None:
        is_placed = False
        for _ in range(MOST_CONFLICTS):
            table = self._open() or self._create(COORDINATES)
            staging, data = self._staging(table), _directory(table) / "data"
            places = [(name, data / place_of(name, commit.batch)) for name in (staged.content if staged else ())]
            newest = self._newest(table)
            sequence = 0 if newest is None else newest.sequence
            if is_placed and self._batch_at(table, commit.sequence) == commit.batch:
                break  # a catalog may say that a commit failed which it has made
            if sequence != commit.sequence - 1:
                if is_placed:
                    staging.move_back(commit.batch, places)
                raise FencedError(f"{self.name}: sink {self.sink} is at commit {sequence}")
            staging.move(commit.batch, places)
            is_placed = True
            try:
                table = self._transaction(table, commit, [place for _, place in places]).commit_transaction()
            except CommitFailedException:
                continue
            break
        else:
            raise self._too_many()
        _sync(table)
        staging.forget(commit.batch)

    def who_committed(self, sequence: int) -> str | None:
        table = self._open()
        if table is None or self._newest(table) is None:
            return None
        return self._batch_at(table, sequence)

    def sweep(self, older_than: float) -> int:
        table = self._open()
        return 0 if table is None else self._staging(table).sweep(older_than)

    def add_columns(self, columns: pa.Schema) -> None:
        """Columns that are there already stay (rocketapp_lake.store.Growing)."""
        for _ in range(MOST_CONFLICTS):
            table = self._open()
            if table is None:
                return
            has = table.schema().as_arrow()
            for column in columns:
                if column.name in has.names and not _is_alike(has.field(column.name).type, column.type):
                    raise SinkError(
                        f"{self.name}: column {column.name} is {has.field(column.name).type}, "
                        f"and the rows have {column.type}"
                    )
            lacking = [column.with_nullable(True) for column in columns if column.name not in has.names]
            if not lacking:
                return
            try:
                with table.update_schema() as update:
                    update.union_by_name(pa.schema(lacking))
            except CommitFailedException:
                continue
            return
        raise self._too_many()

    # Inside.

    def _catalog(self) -> Catalog:
        if not self._opened:
            self._opened.append(self._new_catalog())
        return self._opened[0]

    def _open(self) -> Table | None:
        try:
            return self._catalog().load_table(self.name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _create(self, schema: pa.Schema) -> Table:
        """A new table, unless another owner is faster."""
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        columns = pa.schema([column.with_nullable(True).remove_metadata() for column in schema])
        made = catalog.create_table_transaction(self.name, columns)
        if self._partition_by is not None:
            # In the commit that creates it: a table without would stay so when its creator dies.
            transform: Transform[Any, Any] = DayTransform() if self._partition_by == "day" else HourTransform()
            with made.update_spec() as update:
                update.add_field(STORED, transform, f"rmq_{self._partition_by}")
        with suppress(CommitFailedException, TableAlreadyExistsError):
            made.commit_transaction()
        return catalog.load_table(self.name)

    def _staging(self, table: Table) -> Staging:
        return Staging(_directory(table), self._write)

    def _newest(self, table: Table) -> Commit | None:
        """The newest commit of the sink. Raises SinkError when its rows were taken back."""
        value = table.properties.get(PROPERTY + self.sink)
        if value is None:
            return None
        record = json.loads(value)
        commit = decode(record)
        has = None if self._is_set_back else self._contained(table, record[AT])
        if has is not None and has != commit.sequence:
            raise SinkError(
                f"{self.name} was rolled back to commit {has} of sink {self.sink}, which has made {commit.sequence}: "
                f"make the newer snapshot current again, or go on with `rocketapp sink rebase`, from where the rows in "
                f"the table end"
            )
        return commit

    def _kept(self, table: Table, newest: Commit) -> Commit:
        """The newest commit whose rows are in the table."""
        has = self._contained(table, json.loads(table.properties[PROPERTY + self.sink])[AT])
        if has is None or has == newest.sequence:
            return newest
        nothing = Commit(sink=self.sink, sequence=0, batch="", spans={}, vector={})
        return next((commit for commit in commits_of(table, self.sink) if commit.sequence == has), nothing)

    def _contained(self, table: Table, at: int) -> int | None:
        """The newest commit of the sink whose rows are in the table; None when its snapshot may have expired."""
        for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
            commit = _commit_of(snapshot)
            if commit is not None and commit.sink == self.sink:
                return commit.sequence
            if table.metadata.format_version > 1 and (snapshot.sequence_number or 0) < at:
                return 0
        return None

    def _batch_at(self, table: Table, sequence: int) -> str | None:
        newest = newest_of(table).get(self.sink)
        if newest is not None and newest.sequence == sequence:
            return newest.batch
        return next((one.batch for one in commits_of(table, self.sink) if one.sequence == sequence), None)

    def _transaction(self, table: Table, commit: Commit, places: Sequence[Path]) -> Transaction:
        """Raises SinkError for files that do not fit the table."""
        # The library would go on behind commits of others without a look at what they are. It asks this object whether.
        alone = {**table.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        at = table.metadata.next_sequence_number()
        table.metadata = table.metadata.model_copy(update={"properties": alone})
        record = encode(commit)
        transaction = table.transaction()
        transaction.set_properties({PROPERTY + self.sink: to_json({**record, AT: at}).decode()})
        summary = {RECORD: to_json(record).decode()}
        if not places:
            with transaction.update_snapshot(snapshot_properties=summary).fast_append():
                pass
            return transaction
        try:
            transaction.add_files([str(place) for place in places], summary, check_duplicate_files=False)
        except ValueError as error:
            raise SinkError(f"{self.name}: the rows do not fit the table: {error}") from error
        return transaction

    def _too_many(self) -> SinkError:
        return SinkError(f"{self.name}: others have committed {MOST_CONFLICTS} times in a row just before this sink")


def catalog_of(table: str) -> tuple[Callable[[], Catalog], str]:
    """`catalog.namespace.table`: the catalog by the settings of pyiceberg, and the name in it."""
    catalog, _, name = table.partition(".")
    return lambda: pyiceberg.catalog.load_catalog(catalog), name


def commits_of(table: Table, sink: str | None = None) -> Iterator[Commit]:
    """Of one sink, or of all; newest first, as far as snapshots have not expired."""
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        commit = _commit_of(snapshot)
        if commit is not None and sink in (None, commit.sink):
            yield commit


def newest_of(table: Table) -> dict[str, Commit]:
    """The newest commit of each sink."""
    found = {name: value for name, value in table.properties.items() if name.startswith(PROPERTY)}
    return {name.removeprefix(PROPERTY): decode(json.loads(value)) for name, value in sorted(found.items())}


def _commit_of(snapshot: Snapshot) -> Commit | None:
    record: Any = None if snapshot.summary is None else snapshot.summary.additional_properties.get(RECORD)
    return None if record is None else decode(json.loads(record))


def _directory(table: Table) -> Path:
    """Where its files are. Raises SinkError for another place than a file system."""
    found = _path(table.location())
    if found is None:
        raise SinkError(f"{table.location()}: the files of the table have to be on a local or network file system")
    if urlsplit(table.location()).netloc or not found.is_absolute():
        raise SinkError(
            f"{table.location()}: the location of the table depends on where a program runs: "
            f"give its catalog a warehouse with its full path, as file:///lake"
        )
    return found


def _path(location: str) -> Path | None:
    """None for another place than a file system."""
    place = urlsplit(location)
    if place.scheme not in ("", "file"):
        return None
    return Path(unquote(place.path) if place.scheme else location)


def _sync(table: Table) -> None:
    """What the newest commit is made of survives the machine: Iceberg's library leaves that to the system."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    own = [one.manifest_path for one in snapshot.manifests(table.io) if one.added_snapshot_id == snapshot.snapshot_id]
    for location in (*own, snapshot.manifest_list, table.metadata_location):
        place = _path(location)
        if place is not None and place.is_file():
            sync(place)
            sync(place.parent)


def _is_alike(has: pa.DataType, rows: pa.DataType) -> bool:
    """Iceberg's library reads texts as large ones."""
    plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return bool(plain.get(has, has) == plain.get(rows, rows))
