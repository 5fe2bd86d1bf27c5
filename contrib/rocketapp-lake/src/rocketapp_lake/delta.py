"""A Delta table on a local or network file system.

    <table>/_delta_log/                         Delta's own; a commit adds files, and says where the sink stands
    <table>/_rmq_staging/<batch>/               files that are written and not in the table
    <table>/<partitions>/<batch>-part-....parquet

Spark writes the files, and Delta's library for Python commits them. Each commit carries transaction identifiers, which
Delta keeps for ever: one with the sequence of the sink, and one for each of its queues with the next offset. It is made
for exactly the version that was looked at before, so that no other commit goes unseen.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from rocketapp_lake import delta_log
from rocketapp_lake.columns import COORDINATES
from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.lanes import Vector
from rocketapp_lake.parquet_log import LOG
from rocketapp_lake.records import Commit, Head, encode, to_json
from rocketapp_lake.staging import Staging, Write, make, partition_of, place_of, sync
from rocketapp_lake.store import Compacted

if TYPE_CHECKING:
    from rocketapp_lake.store import Staged


MOST_CONFLICTS = 100
"""Commits of others that one publication gives way to."""
EXPIRY = "delta.setTransactionRetentionDuration"


class DeltaStore:
    """One sink in one Delta table (rocketapp_lake.store.Store)."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        sink: str,
        *,
        write: Write,
        partition_columns: Sequence[str] = (),
        is_set_back: bool = False,
    ) -> None:
        """`partition_columns`: those by which `write` makes directories.

        `is_set_back`: a table that was restored to an older version is taken as it is, with the positions of its rows.
        """
        # A program may go to another folder meanwhile.
        self.path, self.sink, self._is_set_back = Path(path).absolute(), sink, is_set_back
        self._staging, self._partition_columns = Staging(self.path, write), list(partition_columns)

    def __repr__(self) -> str:
        return f"<DeltaStore {self.path} of {self.sink}>"

    def load(self) -> Head:
        if (self.path / LOG).exists():
            raise SinkError(f"{self.path} is a Parquet directory of a sink: give format='parquet', or another table=")
        table = self._open()
        sequence = 0 if table is None else self._sequence(table)
        if table is None or not sequence:
            return Head()
        commit = self._newest(table, sequence)
        if commit is None:
            return Head(sequence=sequence, vector=self._vector(table))
        batch = commit.batch if commit.sequence == sequence else ""
        return Head(sequence=sequence, batch=batch, vector=commit.vector, schema=commit.schema)

    def stage(self, batch: str, rows: pa.Table) -> Staged:
        return self._staging.stage(batch, rows)

    def publish(self, commit: Commit, staged: Staged | None) -> None:
        files, is_placed = list(staged.content) if staged else [], False
        places = [(name, self.path / place_of(name, commit.batch)) for name in files]
        schema = self._schema(commit.batch, files)
        for _ in range(MOST_CONFLICTS):
            table = self._open() or self._create(schema)
            sequence = self._sequence(table)
            if is_placed and self._batch_at(table, commit.sequence) == commit.batch:
                break  # a file system may say that a commit failed which it has made
            if sequence != commit.sequence - 1:
                if is_placed:
                    self._staging.move_back(commit.batch, places)
                raise FencedError(f"{self.path}: sink {self.sink} is at commit {sequence}")
            if sequence:
                self._newest(table, sequence)
            if files:
                self._check(table, schema)
            self._staging.move(commit.batch, places)
            is_placed, version = True, table.version()
            try:
                self._commit(table, commit, [self._add(place) for _, place in places])
            except CommitFailedError:
                continue
            self._sync(version + 1)
            break
        else:
            raise self._too_many()
        self._staging.forget(commit.batch)

    def who_committed(self, sequence: int) -> str | None:
        table = self._open()
        newest = 0 if table is None else self._sequence(table)
        if table is None or newest < sequence:
            return None
        self._newest(table, newest)
        return self._batch_at(table, sequence)

    def compact(self, target_file_size: int) -> Compacted:
        """By Delta's own OPTIMIZE: small files of all writers of the table (rocketapp_lake.store.Compacts)."""
        table = self._open()
        if table is None:
            return Compacted()
        try:
            done = table.optimize.compact(target_size=target_file_size)
        except CommitFailedError:
            return Compacted()  # another owner was faster, or the table is another one now: the next time will do
        return Compacted(done["numFilesRemoved"], done["numFilesAdded"], json.loads(done["filesAdded"])["totalSize"])

    def add_columns(self, columns: pa.Schema) -> None:
        """Columns that are there already stay (rocketapp_lake.store.Growing)."""
        for _ in range(MOST_CONFLICTS):
            table = self._open()
            if table is None:
                return
            has = {field.name: field for field in table.schema().fields}
            wanted = Schema.from_arrow(pa.schema([column.with_nullable(True) for column in columns])).fields
            for field in wanted:
                if field.name in has and has[field.name].type != field.type:
                    raise self._differs(field.name, has[field.name].type, field.type)
            lacking = [field for field in wanted if field.name not in has]
            if not lacking:
                return
            try:
                table.alter.add_columns(lacking, commit_properties=CommitProperties(max_commit_retries=0))
            except CommitFailedError:
                continue
            return
        raise self._too_many()

    def sweep(self, older_than: float) -> int:
        return self._staging.sweep(older_than)

    # Inside.

    def _open(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.path)
        except TableNotFoundError:
            return None

    def _sequence(self, table: DeltaTable) -> int:
        if EXPIRY in table.metadata().configuration:
            raise SinkError(f"{self.path}: {EXPIRY} makes Delta forget where its sinks stand: unset it")
        return table.transaction_version(delta_log.sink_id(self.sink)) or 0

    def _batch_at(self, table: DeltaTable, sequence: int) -> str | None:
        for entry in delta_log.contained(self.path, table.version()):
            commit = entry.commit
            if commit is not None and commit.sink == self.sink and commit.sequence <= sequence:
                return commit.batch if commit.sequence == sequence else None
        return None

    def _newest(self, table: DeltaTable, sequence: int) -> Commit | None:
        """The commit of this number; None when the log goes back less far. Raises SinkError when it was taken back."""
        oldest = -1
        for entry in delta_log.contained(self.path, table.version()):
            oldest, commit = entry.version, entry.commit
            if commit is None or commit.sink != self.sink:
                continue
            if commit.sequence == sequence or self._is_set_back:
                return commit
            raise self._restored(commit.sequence, sequence)
        if oldest != 0:
            return None
        if self._is_set_back:
            return Commit(sink=self.sink, sequence=0, batch="", spans={}, vector={})
        raise self._restored(0, sequence)

    def _restored(self, has: int, sequence: int) -> SinkError:
        return SinkError(
            f"{self.path} was restored to commit {has} of sink {self.sink}, which has made {sequence}: "
            f"restore the newer version, or {delta_log.MEND}"
        )

    def _vector(self, table: DeltaTable) -> Vector:
        return delta_log.vector_of(delta_log.transactions(self.path, table.version()), self.sink)

    def _create(self, schema: pa.Schema) -> DeltaTable:
        """A new table, unless another owner is faster."""
        make(self.path)
        try:
            table = DeltaTable.create(
                self.path, Schema.from_arrow(schema), mode="ignore", partition_by=self._partition_columns
            )
        except DeltaError:
            found = self._open()
            if found is None:
                raise
            return found
        self._sync(table.version())
        sync(self.path)
        return table

    def _schema(self, batch: str, files: Sequence[str]) -> pa.Schema:
        """The columns of staged files; without a file those that every row has."""
        if not files:
            columns = [pa.field(column.name, column.type) for column in COORDINATES]
        else:
            found = (self._staging.path / batch / files[0], self.path / place_of(files[0], batch))
            file = next((file for file in found if file.exists()), None)
            if file is None:
                raise self._staging.lost(found[0])
            columns = list(pq.read_schema(file).remove_metadata())
        return pa.schema([*columns, *(pa.field(name, pa.string()) for name in self._partition_columns)])

    def _check(self, table: DeltaTable, schema: pa.Schema) -> None:
        """Raises SinkError for files that do not fit the table."""
        if table.metadata().partition_columns != self._partition_columns:
            raise SinkError(
                f"{self.path} is partitioned by {table.metadata().partition_columns}, and this sink writes "
                f"{self._partition_columns}: change partition_by=, or give it another table"
            )
        has = {field.name: field for field in table.schema().fields}
        for ours in Schema.from_arrow(schema).fields:
            theirs = has.pop(ours.name, None)
            if theirs is None:
                raise SinkError(f"{self.path} has no column {ours.name}: add it to the table")
            if theirs.type != ours.type:
                raise self._differs(ours.name, theirs.type, ours.type)
        for missing in has.values():
            if not missing.nullable:
                raise SinkError(f"{self.path}: column {missing.name} may not be null, and the rows do not have it")

    def _differs(self, name: str, has: object, rows: object) -> SinkError:
        return SinkError(f"{self.path}: column {name} is {has}, and the rows have {rows}")

    def _too_many(self) -> SinkError:
        return SinkError(f"{self.path}: others have committed {MOST_CONFLICTS} times in a row just before this sink")

    def _add(self, place: Path) -> AddAction:
        name = str(place.relative_to(self.path))
        about = place.stat()
        return AddAction(
            path=name,
            size=about.st_size,
            partition_values=dict[str, str | None](partition_of(f"out/{name}")),
            modification_time=about.st_mtime_ns // 1_000_000,
            data_change=True,
            stats=json.dumps(statistics_of(place)),
        )

    def _commit(self, table: DeltaTable, commit: Commit, adds: Sequence[AddAction]) -> None:
        transactions = [Transaction(delta_log.sink_id(self.sink), commit.sequence)]
        moved = {lane: commit.vector[lane] for lane in commit.spans}
        if commit.kind != "append":
            moved = {lane: commit.vector.get(lane, delta_log.NONE) for lane in {*self._vector(table), *commit.vector}}
        transactions += [Transaction(delta_log.lane_id(self.sink, lane), moved[lane]) for lane in moved]
        metadata: dict[str, Any] = {delta_log.RECORD: to_json(encode(commit)).decode()}
        table.create_write_transaction(
            [*adds],
            mode="append",
            schema=table.schema(),
            partition_by=self._partition_columns,
            # The library would go on behind commits of others without a look at what they are.
            commit_properties=CommitProperties(metadata, max_commit_retries=0, app_transactions=transactions),
        )

    def _sync(self, version: int) -> None:
        """This version survives the machine: Delta's library leaves that to the system."""
        log = self.path / delta_log.LOG
        for place in (log / f"{version:020d}.json", log):
            if place.exists():
                sync(place)


BOUNDED = (int, datetime.datetime, datetime.date)
"""Values whose bounds are exact and short."""


def statistics_of(file: Path) -> dict[str, Any]:
    """From the footer of a Parquet file, as Delta's protocol has it ("Per-file Statistics")."""
    footer = pq.read_metadata(file)
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for number in range(footer.num_columns):
        name = footer.schema.column(number).path
        if "." in name:
            continue
        found = [footer.row_group(group).column(number).statistics for group in range(footer.num_row_groups)]
        if any(one is None or not one.has_null_count for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        bounds = [value for one in found if one.has_min_max for value in (one.min, one.max)]
        if len(bounds) == 2 * len(found) and all(_is_bounded(value) for value in bounds):
            least[name], most[name] = _text(min(bounds)), _text(max(bounds))
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _is_bounded(value: object) -> bool:
    return isinstance(value, BOUNDED) and not isinstance(value, bool)


def _text(value: Any) -> Any:
    """As JSON has it. A time has its zone in the file, and Delta's are UTC."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"
    return value.isoformat() if isinstance(value, datetime.date) else value
