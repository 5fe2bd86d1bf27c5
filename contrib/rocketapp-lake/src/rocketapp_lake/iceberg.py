"""An Iceberg table of any catalog, wherever pyiceberg can write: rows, and where a sink stands, in one commit.

pyiceberg writes the files and commits them. A snapshot's summary says which commit of a sink it is, and a property of
the table says where the sink stands: snapshots expire, properties do not, and a rollback takes back only the former.
One without rows adds an empty snapshot: a commit holds for exactly the snapshot that was looked at before.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyiceberg.catalog
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, _check_pyarrow_schema_compatible
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.transforms import UnknownTransform, parse_transform

from rocketapp_lake.columns import nullable
from rocketapp_lake.errors import SinkError
from rocketapp_lake.records import Commit, decode, encode, to_json
from rocketapp_lake.staging import sync
from rocketapp_lake.versions import RECORD, Versions
from rocketapp_lake.writing import STORED, arranged

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema

log = logging.getLogger("rocketapp.lake")

PROPERTY = "rocketapp.sink."
"""In front of the name of a sink: the property with its newest commit."""
AT = "at"
"""In that property: the number that Iceberg gives the snapshot."""
KEEP = "rocketapp.keep-snapshots"
"""How many snapshots a table keeps: set for those that are created here, and for others if their owners set it."""
NEW = {
    KEEP: "50",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.MANIFEST_MIN_MERGE_COUNT: "25",
    TableProperties.MANIFEST_TARGET_SIZE_BYTES: str(64 * 1024),
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "50",
}
"""Properties of a table that is created here: what a commit writes does not grow with the number of commits."""


class IcebergStore(Versions[Table]):
    """One sink in one Iceberg table."""

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        name: str,
        sink: str,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        *,
        is_set_back: bool = False,
    ) -> None:
        """`name`: namespace and table, with dots between them. `catalog`: opened at first use.

        `partition_by`: of a table that is created here, as `partition_of` takes it.
        `is_set_back`: a table that was rolled back is taken as it is, with the positions of its rows.
        """
        super().__init__(name, sink, is_set_back=is_set_back)
        self._partitions, self._sort_by = [partition_of(text) for text in partition_by], sort_by
        self._new_catalog = catalog
        self._files: tuple[tuple[Any, ...] | None, list[DataFile]] = None, []
        """What an attempt has written that came too late, and of which batch for a table of which shape."""

    def check(self, rows: pa.Table) -> None:
        if (table := self._open()) is not None and not _is_ours_and_empty(table):
            self._fitting(table.schema(), rows)

    def commit(self, commit: Commit, rows: pa.Table | None) -> None:
        self._files = None, []
        super().commit(commit, rows)

    def add_columns(self, columns: pa.Schema) -> None:
        table = self._open()
        if table is None:
            return
        names = table.schema().column_names
        has = [column for column in columns if column.name in names]
        self._check_types(table.schema().select(*(column.name for column in has)), nullable(has))
        with self._told(), table.update_schema() as update:
            update.union_by_name(nullable(column for column in columns if column.name not in names))
        self._last.clear()
        self._sync(table)

    # Inside.

    @cached_property
    def _catalog(self) -> Catalog:
        return self._new_catalog()

    def _open(self) -> Table | None:
        try:
            return self._catalog.load_table(self.place)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _is_newest(self, table: Table) -> bool:
        return True  # as far as it knows: a commit holds for exactly what was read

    def _create(self, schema: pa.Schema) -> Table:
        """With its partitions in the commit that creates it."""
        with suppress(Exception):  # each catalog has its own word for "another owner was faster"; else the table fails
            self._catalog.create_namespace_if_not_exists(self.place.rpartition(".")[0])
        with self._told():
            made = self._catalog.create_table_transaction(self.place, nullable(schema), properties=NEW)
        self._partition(made, schema.names)
        with suppress(CommitFailedException, TableAlreadyExistsError):
            made.commit_transaction()
        return self._catalog.load_table(self.place)

    def _partition(self, transaction: Transaction, columns: Sequence[str]) -> None:
        """By those columns that the table has."""
        has = {field.name for field in transaction.table_metadata.spec().fields}
        with transaction.update_spec() as update:
            for column, transform, name in self._partitions:
                if column in columns and name not in has:
                    update.add_field(column, parse_transform(transform), name)

    def _stands(self, table: Table) -> tuple[int, Commit]:
        newest = newest_of(table).get(self.sink)
        return (0, Commit(sink=self.sink)) if newest is None else (newest.sequence, self._living(table, newest))

    def _living(self, table: Table, newest: Commit) -> Commit:
        """The newest commit whose rows are in the table."""
        at = json.loads(table.properties[PROPERTY + self.sink])[AT]
        for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
            commit = _commit_of(snapshot)
            if commit is not None and commit.sink == self.sink:
                return newest if commit.sequence == newest.sequence else replace(commit, schema=newest.schema)
            if (snapshot.sequence_number or 0) < at:
                break
        else:
            if table.current_snapshot() is not None:
                return newest  # its snapshot has expired
        return Commit(sink=self.sink, schema=newest.schema)

    def _history(self, table: Table) -> Iterator[Commit]:
        snapshots = map(_commit_of, ancestors_of(table.current_snapshot(), table.metadata))
        kept = [commit for commit in snapshots if commit is not None]
        there = {(one.sink, one.sequence) for one in kept}
        yield from (one for one in newest_of(table).values() if (one.sink, one.sequence) not in there)
        yield from kept

    def _write_version(self, table: Table, commit: Commit, rows: pa.Table | None) -> bool:
        mine = commit.batch, table.metadata.current_schema_id, table.metadata.default_spec_id
        written, files = self._files
        transaction = self._begun(table, commit)
        summary = {RECORD: to_json({**encode(commit), "schema": "", "aside": {}}).decode()}
        if rows is None or written == mine:
            with transaction.update_snapshot(snapshot_properties=summary).merge_append() as append:
                for file in files if written == mine else ():
                    append.append_data_file(file)
        else:
            self._append(transaction, rows, summary, is_growing=_is_ours_and_empty(table))
        files = [file for producer in transaction._snapshot_producers for file in producer._added_data_files]
        self._files = mine, files
        _force(file.file_path for file in files)
        try:
            transaction.commit_transaction()
        except CommitFailedException:
            return False
        self._expire(table)
        return True

    def _lost(self, table: Table, commit: Commit) -> None:
        written, files = self._files
        for file in files if written is not None and written[0] == commit.batch else ():
            table.io.delete(file.file_path)

    def _sync(self, table: Table) -> None:
        if _local(table.metadata_location) is None:
            return
        places, snapshot = [table.metadata_location], table.current_snapshot()
        if snapshot is not None:
            own = [one for one in snapshot.manifests(table.io) if one.added_snapshot_id == snapshot.snapshot_id]
            places += [*(one.manifest_path for one in own), snapshot.manifest_list]
        _force(places)

    def _begun(self, table: Table, commit: Commit) -> Transaction:
        """A transaction with the positions of this commit, which holds for this very snapshot."""
        at = table.metadata.next_sequence_number()
        # The library would go on behind commits of others without a look at what they are: it asks this object whether,
        # which nobody stores, and copies it a dozen times, so that it gets no more of the history than it needs.
        alone = {**table.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        head = [snapshot for snapshot in (table.current_snapshot(),) if snapshot is not None]
        table.metadata = table.metadata.model_copy(
            update={"properties": alone, "snapshots": head, "snapshot_log": [], "statistics": []}
        )
        return table.transaction().set_properties({PROPERTY + self.sink: to_json({**encode(commit), AT: at}).decode()})

    def _append(self, transaction: Transaction, rows: pa.Table, summary: dict[str, str], *, is_growing: bool) -> None:
        """`is_growing`: the table has no columns of these rows yet. Raises SinkError for rows that it refuses."""
        if is_growing:
            with self._told(), transaction.update_schema() as update:
                update.union_by_name(nullable(rows.schema))
            self._partition(transaction, rows.column_names)
        metadata = transaction.table_metadata
        _local(metadata.location)
        if metadata.format_version < 2:
            raise SinkError(f"{self.place} has format version 1, which cannot tell a rollback: upgrade the table to 2")
        rows = self._fitting(metadata.schema(), rows)
        try:
            transaction.append(rows, summary)
        except (ValueError, RuntimeError) as error:  # the second: a partition that it has no code for
            raise SinkError(f"{self.place}: pyiceberg cannot write the rows: {' '.join(str(error).split())}") from None

    def _fitting(self, schema: Schema, rows: pa.Table) -> pa.Table:
        """The rows as the table has them. Raises SinkError for those that it would refuse."""
        required = {field.name for field in schema.fields if field.required}
        for name in sorted(required):
            if lacking := rows[name].null_count if name in rows.column_names else rows.num_rows:
                raise SinkError(f"{self.place}: column {name} is required: {lacking} of {rows.num_rows} rows lack it")
        columns = [column.remove_metadata().with_nullable(column.name not in required) for column in rows.schema]
        self._check_types(schema, pa.schema(columns))
        rows = arranged(rows, (), self._sort_by)
        return pa.Table.from_arrays(rows.columns, schema=pa.schema(columns))

    def _check_types(self, schema: Schema, rows: pa.Schema) -> None:
        try:
            with self._told():
                _check_pyarrow_schema_compatible(schema, rows)
        except ValueError as error:
            wrong = [" ".join(line.strip("│ ").split()) for line in str(error).splitlines() if "❌" in line]
            raise SinkError(f"{self.place}: the rows do not fit the table: {'; '.join(wrong) or error}") from None

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raises SinkError for a type that Iceberg does not have."""
        try:
            yield
        except UnsupportedPyArrowTypeException as error:
            raise SinkError(f"{self.place}: {error}: cast it in the query, or in a function of the sink") from None

    def _expire(self, table: Table) -> None:
        """Now and then: the newest snapshots stay, and what only the others are made of goes. No row is removed."""
        try:
            keep = int(table.properties.get(KEEP, 0))
            if keep <= 0 or len(table.metadata.snapshots) <= 2 * keep or len(table.metadata.refs) > 1:
                return
            snapshots = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
            old, kept = snapshots[:-keep], snapshots[-keep:]
            gone = set(_files(table, old)) - set(_files(table, kept))
            table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in old]).commit()
            self._sync(table)
            for place in gone:
                table.io.delete(place)
        except Exception as error:
            log.warning("sink %s: old snapshots of %s stay for now: %s", self.sink, self.place, error)


def catalog_of(table: str) -> tuple[Callable[[], Catalog], str]:
    """`catalog.namespace.table`: the catalog by the settings of pyiceberg, and the name in it."""
    catalog, _, name = table.partition(".")
    return lambda: pyiceberg.catalog.load_catalog(catalog), name


def partition_of(text: str) -> tuple[str, str, str]:
    """A column, its transform, and the name of the partition: of `region`, `bucket(16, id)` or `month(made)`.

    `day` and `hour` alone are of the time at which brokers stored a message: clocks of producers may be wrong. Raises
    ValueError for anything else.
    """
    if text in ("day", "hour"):
        return STORED, text, f"rmq_{text}"
    call = re.fullmatch(r"(\w+)\((?:(\d+), *)?([^(),]+)\)", text)
    kind, number, column = call.groups() if call else ("identity", None, text)
    with suppress(ValidationError):
        transform = f"{kind}[{number}]" if number else kind
        if not isinstance(parse_transform(transform), UnknownTransform) and not set("(),") & set(column) and column:
            return column, transform, f"{column}_{kind}" if call else column
    raise ValueError(f"partition_by={text!r}: give a column, or a transform of one, as bucket(16, id)")


def newest_of(table: Table) -> dict[str, Commit]:
    """The newest commit of each sink."""
    found = {name: value for name, value in table.properties.items() if name.startswith(PROPERTY)}
    return {name.removeprefix(PROPERTY): decode(json.loads(value)) for name, value in sorted(found.items())}


def _commit_of(snapshot: Snapshot) -> Commit | None:
    record: Any = None if snapshot.summary is None else snapshot.summary.additional_properties.get(RECORD)
    return None if record is None else decode(json.loads(record))


def _is_ours_and_empty(table: Table) -> bool:
    """A first commit without rows does not know the columns: they come with the first rows."""
    snapshot = table.current_snapshot()
    summary = None if snapshot is None else snapshot.summary
    return KEEP in table.properties and (summary is None or summary["total-records"] == "0")


def _files(table: Table, snapshots: Iterable[Snapshot]) -> Iterator[str]:
    """What these snapshots are made of, without the rows."""
    for snapshot in snapshots:
        yield snapshot.manifest_list
        yield from (manifest.manifest_path for manifest in snapshot.manifests(table.io))


def _local(location: str) -> Path | None:
    """None for another place than a file system. Raises SinkError for one that is not the same everywhere."""
    place = urlsplit(location)
    if place.scheme not in ("", "file"):
        return None
    found = Path(unquote(place.path) if place.scheme else location)
    if place.netloc or not found.is_absolute():
        raise SinkError(f"{location} depends on where a program runs: give the catalog a warehouse as file:///lake")
    return found


def _force(places: Iterable[str]) -> None:
    """These files survive the machine, where they are on it."""
    for place in places:
        if (found := _local(place)) is not None:
            sync(found)
            sync(found.parent)
