"""A Delta table, wherever the library reaches it: on a disk, S3, Azure, Google.

Delta's library writes and commits. A commit of a sink carries its number as a transaction identifier, which Delta keeps
for ever, and the whole commit, with all positions, as user metadata. Its number is the fence: the library refuses a
commit beside another one with the same identifier, and one whose table is not the same any more. It holds only for the
object that has read where the sink stands: a table that is given by its path is looked up anew, and so is its number.
Another writer, as Spark, has one identifier in a commit, and passes over a number that is there without a word: its
commits are read back.

RESTORE takes rows back and no identifier. So the number and the newest commit in the living history have to agree.
"""

from __future__ import annotations

import json
import os
from collections import deque
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
from rocketapp_lake.records import Commit, Head, decode, encode, to_json
from rocketapp_lake.staging import sync
from rocketapp_lake.store import Compacted, Store
from rocketapp_lake.writing import AppendToDelta, arranged, partition_column

MOST_CONFLICTS = 100
"""Commits of others, of a kind that the library does not go behind, that one commit gives way to."""
RETRIES = 15
"""Commits of others that the library goes behind by itself, without writing the files again."""
EXPIRY = "delta.setTransactionRetentionDuration"
NONE = -1
"""The version of a queue that the sink does not have any more."""
RECORD = "rocketapp"
"""In the user metadata: the commit of a sink."""
MEND = "go on with `rocketapp sink rebase`, from where the rows in the table end"
CLEANED_EVERY = 100
"""Commits behind which the library looks for entries of the log that have expired: it reads the names of all."""
KEPT_FOR = 32
"""Commits that one object of the library makes: with each of them it takes longer, by what it remembers of them."""
_NEWEST = 50
"""Entries of the history that are looked at before all of them are."""


class DeltaStore(Store):
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
        self.place = text if "://" in text else str(Path(text).absolute())
        self.sink, self._is_set_back = sink, is_set_back
        self._partition_by, self._sort_by, self._storage = partition_by, sort_by, dict(storage or {})
        self._partition_columns, self._declared = [partition_column(one) for one in partition_by], declared
        self._append = append
        self._seen: tuple[Any, int, Commit | None] | None = None
        """Table, version, and the newest commit of the sink in its living history then."""
        self._last: deque[tuple[DeltaTable, int]] = deque(maxlen=1)
        """The table as the last commit has left it, and how many commits that object has made. One call takes it out:
        an object that another thread brings up to date meanwhile is a fence no more."""
        self._forced: int | None = None
        """The version up to which this store has forced the log to the disk."""

    def __repr__(self) -> str:
        return f"<DeltaStore {self.place} of {self.sink}>"

    def load(self) -> Head:
        table = self._open()
        return Head() if table is None else self._head(table)

    def check(self, rows: pa.Table) -> None:
        table = self._open()
        if table is not None:
            self._check(table, arranged(rows, self._partition_by, self._sort_by))

    def commit(self, commit: Commit, rows: pa.Table | None) -> None:
        if rows is not None:
            rows = arranged(rows, self._partition_by, self._sort_by)
        for _ in range(MOST_CONFLICTS):
            table, made = self._now()
            table = table or self._create(COORDINATES if rows is None else rows.schema)
            head = self._head(table)
            if head.sequence != commit.sequence - 1:
                if self._batch_at(table, commit.sequence) == commit.batch:
                    return  # an object store may say that a commit failed which it has made
                raise FencedError(f"{self.place}: sink {self.sink} is at commit {head.sequence}")
            if rows is not None:
                if not self._takes(table, rows):
                    continue
                rows = self._fitted(table, rows)
            before = table.version()
            try:
                self._write(table, commit, rows)
            except CommitFailedError:
                continue
            except (SchemaMismatchError, DeltaError) as error:
                raise SinkError(f"{self.place}: {_refusal(error)}") from error
            self._sync(before, table.version())
            self._last.append((table, made + 1))
            return
        raise self._too_many()

    def who_committed(self, sequence: int) -> str | None:
        with suppress(IndexError):
            last = self._last.pop()
            found = self._batch_at(last[0], sequence)
            self._last.append(last)
            if found is not None:
                return found
        table = self._open()
        return None if table is None else self._batch_at(table, sequence)

    def compact(self, target_file_size: int) -> Compacted:
        """By Delta's own OPTIMIZE: small files of all writers of the table."""
        table = self._open()
        if table is None:
            return Compacted()
        before = table.version()
        try:
            done = table.optimize.compact(target_size=target_file_size)
        except CommitFailedError:
            return Compacted()  # another owner was faster, or the table is another one now: the next time will do
        self._sync(before, table.version())
        return Compacted(done["numFilesRemoved"], done["numFilesAdded"], json.loads(done["filesAdded"])["totalSize"])

    def add_columns(self, columns: pa.Schema) -> None:
        for _ in range(MOST_CONFLICTS):
            table = self._open()
            if table is None:
                return
            has = {field.name: field for field in table.schema().fields}
            wanted = self._schema(columns).fields
            for field in wanted:
                if field.name in has and has[field.name].type != field.type:
                    raise self._differs(field.name, has[field.name].type, field.type)
            lacking = [field for field in wanted if field.name not in has]
            if not lacking:
                return
            before = table.version()
            try:
                table.alter.add_columns(lacking, commit_properties=CommitProperties(max_commit_retries=0))
            except CommitFailedError:
                continue
            self._sync(before, table.version())
            return
        raise self._too_many()

    def commits(self) -> Iterator[Commit]:
        table = self._open()
        for entry in table.history() if table is not None else ():
            commit = commit_of(entry)
            if commit is not None:
                yield commit

    # Inside.

    def _now(self) -> tuple[DeltaTable | None, int]:
        """The table as it is now, and how many commits this object has made: the last one, while it is alone."""
        with suppress(IndexError, DeltaError):  # the second: another table is in this place
            table, made = self._last.pop()
            version = table.version()
            if made < KEPT_FOR:
                table.update_incremental()
                if table.version() == version:
                    return table, made
        return self._open(), 0

    def _open(self) -> DeltaTable | None:
        """As it is now."""
        try:
            return DeltaTable(self.place, storage_options=self._storage or None)
        except TableNotFoundError:
            if "://" not in self.place and Path(self.place, "_rmq_log").exists():
                problem = f"{self.place} is a Parquet directory of a sink: give format='parquet', or another table="
                raise SinkError(problem) from None
            return None

    def _create(self, schema: pa.Schema) -> DeltaTable:
        """A new table, unless another owner is faster."""
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
            found = self._open()
            if found is None:
                raise
            return found
        self._sync(-1, table.version())
        return table

    # Where the sink stands.

    def _head(self, table: DeltaTable) -> Head:
        """Raises SinkError when the table was restored to an older version."""
        if EXPIRY in table.metadata().configuration:
            raise SinkError(f"{self.place}: {EXPIRY} makes Delta forget where its sinks stand: unset it")
        sequence = table.transaction_version(transaction_of(self.sink)) or 0
        if not sequence:
            return Head()
        try:
            newest = self._newest(table)
        except LookupError:
            return Head(sequence=sequence, vector=self._kept(table, sequence))
        has = 0 if newest is None else newest.sequence
        if has != sequence and not self._is_set_back:
            raise SinkError(
                f"{self.place} was restored to commit {has} of sink {self.sink}, which has made {sequence}: "
                f"restore the newer version, or {MEND}"
            )
        if newest is None:
            return Head(sequence=sequence)
        return replace(Head.of(newest), sequence=sequence, batch=newest.batch if has == sequence else "")

    def _newest(self, table: DeltaTable) -> Commit | None:
        """The newest commit of the sink whose rows are in the table.

        Raises LookupError when the history does not go back to one, SinkError when it was restored to who knows what.
        """
        name, version, seen = table.metadata().id, table.version(), self._seen
        if seen is not None and seen[0] == name and seen[1] <= version:
            entries = table.history(version - seen[1]) if version > seen[1] else []
            if not any(entry.get("operation") == "RESTORE" for entry in entries):
                own = next(self._own(entries), None)
                found = seen[2] if own is None else own
                self._seen = name, version, found
                return found
        found = None
        for entries in (table.history(_NEWEST), table.history()):
            with suppress(LookupError):
                found = self._unbroken(self._own(self._living(entries, version)))
                break
        else:
            raise LookupError
        self._seen = name, version, found
        return found

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

    def _batch_at(self, table: DeltaTable, sequence: int) -> str | None:
        """Raises SinkError when the table was restored to an older version."""
        head = self._head(table)
        if head.sequence <= sequence:
            return head.batch if head.sequence == sequence else None
        return next((one.batch for one in self._own(table.history()) if one.sequence == sequence), None)

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
        has = {field.name: field for field in table.schema().fields}
        for ours in self._schema(rows.schema).fields:
            theirs = has.get(ours.name)
            if theirs is None:
                raise SinkError(f"{self.place} has no column {ours.name}: add it to the table")
            if theirs.type != ours.type:
                raise self._differs(ours.name, theirs.type, ours.type)
        for name, field in has.items():
            is_there = not rows[name].null_count if name in rows.column_names else name in computed
            if field.nullable or is_there:
                continue
            why = "some rows have nothing in it" if name in rows.column_names else "the rows do not have it"
            raise SinkError(f"{self.place}: column {name} may not be null, and {why}")

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

    def _write(self, table: DeltaTable, commit: Commit, rows: pa.Table | None) -> None:
        metadata = to_json({RECORD: encode(commit)}).decode()
        if self._append is not None and rows is not None:
            said = {"txnAppId": transaction_of(self.sink), "txnVersion": str(commit.sequence), "userMetadata": metadata}
            self._append(self.place, rows, said)
            table.update_incremental()
            if self._batch_at(table, commit.sequence) != commit.batch:
                raise FencedError(f"{self.place}: another owner of sink {self.sink} has made commit {commit.sequence}")
            return
        if rows is None:
            rows = pa.schema(table.schema().to_arrow()).empty_table()
        write_deltalake(
            table,
            rows,
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

    def _differs(self, name: str, has: object, rows: object) -> SinkError:
        return SinkError(f"{self.place}: column {name} is {has}, and the rows have {rows}: cast them")

    def _too_many(self) -> SinkError:
        return SinkError(f"{self.place}: others have changed it {MOST_CONFLICTS} times in a row just before this sink")

    def _sync(self, before: int, version: int) -> None:
        """These versions survive the machine, with their files: Delta's library leaves that to the system.

        So do those of others since the last call: a log that is torn hides what lies behind.
        """
        if "://" in self.place:
            return
        folder, first = Path(self.place), before
        if self._forced is not None:
            first = min(before, max(self._forced, before - MOST_CONFLICTS))
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
