"""A Delta table, wherever the library reaches it: on a disk, S3, Azure, Google.

Delta's library writes and commits. A commit of a sink carries its number as a transaction identifier, which Delta keeps
for ever, and the whole commit, with all positions, as user metadata. Its number is the fence: the library refuses a
commit beside another one with the same identifier, and one whose table is not the same any more. A table that is given
by its path would be looked up anew, with its number. Another writer, as Spark, has one identifier in a commit, and
passes over a number that is there without a word: its commits are read back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    PostCommitHookProperties,
    QueryBuilder,
    Schema,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, PyFileSystem

from rocketapp import MessageQueue
from rocketapp_lake.columns import COORDINATES, PLACE, nullable
from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.records import Commit, decode, encode, to_json
from rocketapp_lake.staging import sync
from rocketapp_lake.store import Compacted
from rocketapp_lake.versions import MEND, MOST_CONFLICTS, RECORD, Versions
from rocketapp_lake.writing import AppendToDelta, arranged, partition_column

RETRIES = 15
"""Commits of others that the library goes behind by itself, without writing the files again."""
EXPIRY = "delta.setTransactionRetentionDuration"
NONE = -1
"""The version of a queue that the sink does not have any more."""
CLEANED_EVERY = 100
"""Commits behind which the library looks for entries of the log that have expired: it reads the names of all."""
_NEWEST = 50
"""Entries of the history that are looked at before all of them are."""


class DeltaStore(Versions[DeltaTable]):
    """One sink in one Delta table."""

    def __init__(
        self,
        place: str | os.PathLike[str],
        sink: str,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        *,
        storage: Mapping[str, str] | None = None,
        declared: pa.Schema | None = None,
        append: AppendToDelta | None = None,
        is_set_back: bool = False,
    ) -> None:
        """`place`: a directory or a URL. `storage`: the library's options for what is behind it, secrets among them.

        `declared`: columns that are known before there are rows: the first commit of a table may have none.

        `append`: what writes rows in the place of the library. Commits without rows are the library's.

        `is_set_back`: a table that was restored to an older version is taken as it is, with the positions of its rows.
        """
        text = os.fspath(place)
        # A program may go to another folder meanwhile.
        super().__init__(text if "://" in text else str(Path(text).absolute()), sink, is_set_back=is_set_back)
        self._partition_by, self._sort_by, self._storage = partition_by, sort_by, dict(storage or {})
        self._partition_columns, self._declared = [partition_column(one) for one in partition_by], declared
        self._append = append
        self._seen: tuple[Any, int, Commit | None] | None = None
        """Table, version, and the newest commit of the sink in its living history then."""
        self._forced: int | None = None
        """The version up to which this store has forced the log to the disk."""

    def check(self, rows: pa.Table) -> None:
        table = self._open()
        if table is not None:
            self._check(table, arranged(rows, self._partition_by, self._sort_by))

    def commit(self, commit: Commit, rows: pa.Table | None) -> None:
        super().commit(commit, None if rows is None else arranged(rows, self._partition_by, self._sort_by))

    def compact(self, target_file_size: int) -> Compacted:
        """By Delta's own OPTIMIZE: small files of all writers of the table."""
        table = self._open()
        if table is None:
            return Compacted()
        try:
            done = table.optimize.compact(target_size=target_file_size)
        except CommitFailedError:
            return Compacted()  # another owner was faster, or the table is another one now: the next time will do
        self._sync(table)
        return Compacted(done["numFilesRemoved"], done["numFilesAdded"], json.loads(done["filesAdded"])["totalSize"])

    def add_columns(self, columns: pa.Schema) -> None:
        for _ in range(MOST_CONFLICTS):
            table = self._open()
            if table is None:
                return
            if not (lacking := self._lacking(table, columns)):
                return
            try:
                table.alter.add_columns(lacking, commit_properties=CommitProperties(max_commit_retries=0))
            except CommitFailedError:
                continue
            self._sync(table)
            return
        raise self._too_many()

    # Inside.

    def _open(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.place, storage_options=self._storage or None)
        except TableNotFoundError:
            if "://" not in self.place and Path(self.place, "_rmq_log").exists():
                problem = f"{self.place} is a Parquet directory of a sink: give format='parquet', or another table="
                raise SinkError(problem) from None
            return None

    def _create(self, schema: pa.Schema) -> DeltaTable:
        known = {field.name: field for field in self._declared or ()}
        missing = [name for name in self._partition_columns if name not in schema.names]
        partitions = [known.get(name, pa.field(name, pa.string())) for name in missing]
        try:
            table = DeltaTable.create(
                self.place,
                self._schema([*schema, *partitions]),
                mode="ignore",
                partition_by=self._partition_columns,
                storage_options=self._storage or None,
            )
        except DeltaError:
            if (found := self._open()) is None:
                raise
            return found
        self._sync(table)
        return table

    def _is_newest(self, table: DeltaTable) -> bool:
        version = table.version()
        with suppress(DeltaError):  # another table is in this place
            table.update_incremental()
            return bool(table.version() == version)
        return False

    # Where the sink stands.

    def _stands(self, table: DeltaTable) -> tuple[int, Commit]:
        if EXPIRY in table.metadata().configuration:
            raise SinkError(f"{self.place}: {EXPIRY} makes Delta forget where its sinks stand: unset it")
        sequence, none = table.transaction_version(transaction_of(self.sink)) or 0, Commit(sink=self.sink)
        try:
            return sequence, (self._newest(table) if sequence else None) or none
        except LookupError:
            return sequence, replace(none, sequence=sequence, vector=self._kept(table, sequence))

    def _history(self, table: DeltaTable) -> Iterator[Commit]:
        return (commit for commit in map(commit_of, table.history()) if commit is not None)

    def _newest(self, table: DeltaTable) -> Commit | None:
        """The newest commit of the sink whose rows are in the table.

        Raises LookupError when the history does not go back to one, SinkError when it was restored to who knows what.
        """
        name, version, seen = table.metadata().id, table.version(), self._seen
        if seen is not None and seen[0] == name and seen[1] <= version:
            since = version - seen[1]  # of more, the first ones lie behind the table's version
            entries = table.history(since)[-since:] if since else []
            if len(entries) == since and not any(entry.get("operation") == "RESTORE" for entry in entries):
                own = next(self._own(entries), None)
                found = seen[2] if own is None else own
                self._seen = name, version, found
                return found
        found = None
        for limit in (_NEWEST, None):
            with suppress(LookupError):
                found = self._unbroken(self._own(self._living(self._entries(table, limit), version)))
                break
        else:
            raise LookupError
        self._seen = name, version, found
        return found

    def _entries(self, table: DeltaTable, limit: int | None) -> list[dict[str, Any]]:
        """Of the history, newest first, also those behind the table's version, from which the library counts down."""
        newest = -1
        while newest != (newest := table._table.get_latest_version()):
            entries = table.history(limit)
        ahead = newest - table.version()
        return [{**entry, "version": entry["version"] + ahead} for entry in entries]

    def _unbroken(self, commits: Iterator[Commit]) -> Commit | None:
        """The newest one, unless the one before it was taken back, and it came behind that: then that one's forerunner.

        A commit that was made when nobody knew of the restore is no reason to pass over what was taken back.
        """
        newest = next(commits, None)
        if newest is None or newest.kind != "append" or newest.sequence == 1:
            return newest
        with suppress(LookupError):
            before = next(commits, None)
            if before is None or before.sequence != newest.sequence - 1:
                return before
        return newest

    def _living(self, entries: Sequence[dict[str, Any]], version: int) -> Iterator[dict[str, Any]]:
        """Newest first, without what a restore took back. Raises LookupError where they end too early."""
        by_version = {entry["version"]: entry for entry in entries}
        while version >= 0:
            entry = by_version[version]
            if entry.get("operation") != "RESTORE":
                yield entry
                version -= 1
                continue
            target = entry.get("operationParameters", {}).get("version")
            if target is None:
                raise SinkError(
                    f"{self.place}: version {version} restored the table by time, to a version it does not name: {MEND}"
                )
            version = int(target)

    def _own(self, entries: Sequence[dict[str, Any]] | Iterator[dict[str, Any]]) -> Iterator[Commit]:
        found = (commit_of(entry) for entry in entries)
        return (commit for commit in found if commit is not None and commit.sink == self.sink)

    def _kept(self, table: DeltaTable, sequence: int) -> dict[MessageQueue, int]:
        """Where the sink stands when its newest commit is older than the log: by the identifiers of its queues."""
        if table.transaction_version(_queues_of(self.sink)) != sequence:
            return self._ends(table)  # not every writer of Delta can write several identifiers
        found = {}
        for name in self._identifiers(table):
            queue, position = queue_of(self.sink, name), table.transaction_version(name)
            if queue is not None and position not in (None, NONE):
                found[queue] = position
        return found

    def _identifiers(self, table: DeltaTable) -> list[str]:
        """Their names, which the library does not tell, in the newest checkpoint: all commits behind it are known."""
        files = PyFileSystem(DeltaStorageHandler.from_table(table._table))
        found = files.get_file_info(FileSelector("_delta_log"))
        newest = max((one.base_name[:20] for one in found if ".checkpoint." in one.base_name), default="none")
        parts = [one.path for one in found if one.base_name.startswith(f"{newest}.checkpoint.")]
        try:
            tables = [pq.read_table(part, columns=["txn"], filesystem=files) for part in parts]
        except pa.ArrowException:
            tables = []
        if not tables:
            raise SinkError(
                f"{self.place}: its log is younger than the sink, and has no checkpoint that can be read here: "
                f"write one as Parquet files (delta.checkpointPolicy=classic)"
            )
        return [row["appId"] for one in tables for row in one["txn"].drop_null().to_pylist()]

    def _ends(self, table: DeltaTable) -> dict[MessageQueue, int]:
        """Where the rows of the table end. What lies behind them had no rows, and is read again."""
        if not {*PLACE} <= {field.name for field in table.schema().fields}:
            raise SinkError(
                f"{self.place}: its log is younger than the sink, and its rows do not say where they come from: {MEND}"
            )
        queues = ", ".join(PLACE[:3])
        sql = f"SELECT {queues}, max(_rmq_offset) FROM t WHERE _rmq_offset IS NOT NULL GROUP BY {queues}"
        found = pa.table(QueryBuilder().register("t", table).execute(sql).read_all())
        columns = (column.to_pylist() for column in found.columns)
        return {
            MessageQueue(topic, broker, queue): last + 1 for topic, broker, queue, last in zip(*columns, strict=True)
        }

    # Rows.

    def _takes(self, table: DeltaTable, rows: pa.Table) -> bool:
        """Whether the table, which may have been made for a commit without rows, has the columns of its first rows."""
        has = {field.name for field in table.schema().fields}
        if not has <= {*COORDINATES.names, *self._partition_columns} or {*rows.column_names} <= has:
            return True
        self.add_columns(rows.schema)
        return False

    def _check(self, table: DeltaTable, rows: pa.Table) -> None:
        """Raises SinkError for rows that do not fit the table."""
        partitions = table.metadata().partition_columns
        own, computed = self._partition_columns, _computed(table)
        if partitions != own and (own or not {*partitions} <= computed.union(rows.column_names)):
            raise SinkError(
                f"{self.place} is partitioned by {partitions}, and this sink writes "
                f"{own}: change partition_by=, or give it another table"
            )
        for one in self._lacking(table, rows.schema):
            raise SinkError(f"{self.place} has no column {one.name}: add it to the table")
        for field in table.schema().fields:
            of_others = 0 if field.name in computed else rows.num_rows
            lacking = rows[field.name].null_count if field.name in rows.column_names else of_others
            if lacking and not field.nullable:
                what = f"column {field.name} may not be null: {lacking} of {rows.num_rows} rows lack it"
                raise SinkError(f"{self.place}: {what}")

    def _fitted(self, table: DeltaTable, rows: pa.Table) -> pa.Table:
        """The rows with all columns of the table that are not computed, in their order.

        Raises SinkError for rows that do not fit it.
        """
        self._check(table, rows)
        columns, computed = {}, _computed(table)
        for field in pa.schema(table.schema().to_arrow()):
            if field.name in rows.column_names:
                columns[field.name] = rows[field.name]
            elif field.name not in computed:
                columns[field.name] = pa.nulls(rows.num_rows, field.type)
        return pa.table(columns)

    def _write_version(self, table: DeltaTable, commit: Commit, rows: pa.Table | None) -> bool:
        if self._forced is None:
            self._forced = table.version()
        if rows is not None:
            if not self._takes(table, rows):
                return False
            rows = self._fitted(table, rows)
        try:
            self._write(table, commit, rows)
        except CommitFailedError:
            return False
        except (SchemaMismatchError, DeltaError) as error:
            raise SinkError(f"{self.place}: {_refusal(error)}") from error
        return True

    def _write(self, table: DeltaTable, commit: Commit, rows: pa.Table | None) -> None:
        metadata = to_json({RECORD: encode(commit)}).decode()
        if self._append is not None and rows is not None:
            said = {"txnAppId": transaction_of(self.sink), "txnVersion": str(commit.sequence), "userMetadata": metadata}
            self._append(self.place, rows, said)
            table.update_incremental()
            if self._batch_at(table, commit.sequence) != commit.batch:
                raise FencedError(f"{self.place}: another owner of sink {self.sink} has made commit {commit.sequence}")
            return
        before = table.version()
        write_deltalake(
            table,
            pa.schema(table.schema().to_arrow()).empty_table() if rows is None else rows,
            mode="append",
            commit_properties=CommitProperties(
                {"userMetadata": metadata},
                max_commit_retries=RETRIES,
                app_transactions=self._transactions(table, commit),
            ),
            post_commithook_properties=PostCommitHookProperties(
                cleanup_expired_logs=False if commit.sequence % CLEANED_EVERY else None
            ),
        )
        if table.version() == before + 1:  # nothing of others, as a restore, is between
            self._seen = table.metadata().id, before + 1, commit

    def _transactions(self, table: DeltaTable, commit: Commit) -> list[Transaction]:
        positions = dict(commit.vector)
        if commit.kind != "append":
            gone = {queue for one in self._own(table.history()) for queue in one.vector} - positions.keys()
            positions |= dict.fromkeys(gone, NONE)
        return [
            Transaction(transaction_of(self.sink), commit.sequence),
            Transaction(_queues_of(self.sink), commit.sequence),
            *(Transaction(transaction_of(self.sink, queue), offset) for queue, offset in positions.items()),
        ]

    def _schema(self, columns: Sequence[pa.Field] | pa.Schema) -> Schema:
        """As columns that may be empty. Raises SinkError for a type that Delta does not have."""
        plain = nullable(columns)
        for column in plain:
            try:
                Schema.from_arrow(pa.schema([column]))
            except Exception:  # the library has no kind of its own for it
                kind = f"{self.place}: column {column.name} is {column.type}, which Delta does not have"
                raise SinkError(f"{kind}: cast it in the query, or in a function of the sink") from None
        return Schema.from_arrow(plain)

    def _lacking(self, table: DeltaTable, columns: pa.Schema) -> list[Field]:
        """Those that the table does not have. Raises SinkError for one that it has with another type."""
        has, wanted = {field.name: field for field in table.schema().fields}, self._schema(columns).fields
        for field in wanted:
            if field.name in has and has[field.name].type != field.type:
                what = f"column {field.name} is {has[field.name].type}, and the rows have {field.type}"
                raise SinkError(f"{self.place}: {what}: cast them")
        return [field for field in wanted if field.name not in has]

    def _sync(self, table: DeltaTable) -> None:
        """With the versions of others since the last call: a log that is torn hides what lies behind."""
        if "://" in self.place:
            return
        folder, version = Path(self.place), table.version()
        before = version - 1 if self._forced is None else min(self._forced, version - 1)
        first = max(before, version - MOST_CONFLICTS)
        log, places = folder / "_delta_log", set[Path]()
        for number in range(first + 1, version + 1):
            file, checkpoint = log / f"{number:020d}.json", log / f"{number:020d}.checkpoint.parquet"
            if checkpoint.exists():
                places |= {checkpoint, log / "_last_checkpoint"}
            places |= {file, log, folder, *folder.parents[:2]}
            for line in file.read_bytes().splitlines() if file.exists() else ():
                added = json.loads(line).get("add") if line.startswith(b'{"add"') else None
                if added is not None:
                    places |= {folder / unquote(added["path"]), (folder / unquote(added["path"])).parent}
        for place in places:
            if place.exists():
                sync(place)
        self._forced = version


def transaction_of(sink: str, queue: MessageQueue | None = None) -> str:
    """The identifier whose version is the number of its newest commit; of a queue, whose version is its next offset."""
    return "/".join([RECORD, quote(sink, safe=""), *(quote(str(part), safe="") for part in queue or ())])


def queue_of(sink: str, identifier: str) -> MessageQueue | None:
    """The reverse, for a queue of this sink."""
    parts = [unquote(part) for part in identifier.split("/")]
    if parts[:2] != [RECORD, sink] or len(parts) != 5:
        return None
    return MessageQueue(parts[2], parts[3], int(parts[4]))


def _queues_of(sink: str) -> str:
    """The identifier whose version is the newest commit that has written those of its queues."""
    return f"{transaction_of(sink)}/queues"


def commit_of(entry: Mapping[str, Any]) -> Commit | None:
    """The commit of a sink that an entry of the history is."""
    text = entry.get("userMetadata")
    if not isinstance(text, str) or not text.startswith(f'{{"{RECORD}":'):
        return None
    return decode(json.loads(text)[RECORD])


def _computed(table: DeltaTable) -> set[str]:
    """The columns that the table makes of others, where rows lack them."""
    return {field.name for field in table.schema().fields if "delta.generationExpression" in field.metadata}


def _refusal(error: Exception) -> str:
    """What the table says to rows, in one line."""
    lines = [line for line in str(error).splitlines() if line and not line.startswith("+")]
    return f"the table refuses rows: {'; '.join(lines)}"[:500]
