"""A directory of Parquet files with a log of its own, on a local or network file system with hard links.

    <table>/_rmq_log/<sink>/<sequence>.json   one per commit: created if absent, which is the fence and the commit point
    <table>/_rmq_log/<sink>/<sequence>.done   beside the newest one: its files are in place
    <table>/_rmq_staging/<batch>/             files that are written and not visible
    <table>/<partitions>/<sequence>-<batch>-<number>.parquet

Readers pass over names that begin with `_`. After its commit point a batch is moved into the table file by file. Who
dies on the way leaves that to the next one who loads: a commit is only added when the files of the one before are in
place. The names of files hold their batch, so moving them twice is harmless.

A compaction is a commit that moves larger files in, and then removes the small ones that it names.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.parquet_log import LOG, ParquetLog, read
from rocketapp_lake.records import Commit, Head, decode, encode, to_json
from rocketapp_lake.staging import OUT, STAGING, Staged, Staging, Write, make, place_of, sync
from rocketapp_lake.store import Compacted

if TYPE_CHECKING:
    import pyarrow as pa


class ParquetStore:
    """One sink in one directory (rocketapp_lake.store.Store)."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        sink: str,
        *,
        write: Write,
        sort_by: Sequence[str] = (),
        staging: str | os.PathLike[str] | None = None,
    ) -> None:
        """`sort_by`: the columns by which `write` sorts the rows of a file. `staging`: for files of commits to come."""
        # A program may go to another folder meanwhile.
        self.path, self.sink, self._sort_by = Path(path).absolute(), sink, sort_by
        self._log = ParquetLog(self.path, sink)
        self._staging = Staging(self.path, write, None if staging is None else Path(staging))
        self._complete = 0
        """All files up to this commit are in place."""

    def __repr__(self) -> str:
        return f"<ParquetStore {self.path} of {self.sink}>"

    def load(self) -> Head:
        if (self.path / "_delta_log").exists():
            raise SinkError(f"{self.path} is a Delta table: give format='delta', or another table=")
        newest = self._log.newest()
        if newest < self._complete:
            self._complete = 0  # the directory was restored to an older state
        if not newest:
            return Head()
        entry = self._log.entry(newest)
        if entry is None:
            raise SinkError(f"{self._log.path}: commit {newest} has vanished: is the log being removed?")
        self._complete_to(newest, entry)
        commit = decode(entry)
        return Head(sequence=newest, batch=commit.batch, vector=commit.vector, schema=commit.schema)

    def check(self, rows: pa.Table) -> None:
        """A directory takes all rows."""

    def commit(self, commit: Commit, rows: pa.Table | None) -> None:
        staged = None if rows is None else self._staging.stage(commit.batch, rows)
        try:
            self._publish(commit, staged)
        except FencedError:
            self._staging.forget(commit.batch)
            raise

    def add_columns(self, columns: pa.Schema) -> None:
        """Each file has columns of its own, and readers take those that it lacks as empty: types have to agree."""
        for entry in self._newest_of_all():
            has: dict[str, str] = json.loads(entry["schema"] or "{}")
            for column in columns:
                if has.get(column.name, str(column.type)) != str(column.type):
                    raise SinkError(
                        f"{self.path}: column {column.name} is {has[column.name]}, and the rows have {column.type}"
                    )

    def who_committed(self, sequence: int) -> str | None:
        entry = self._log.entry(sequence)
        return None if entry is None else str(entry["batch"])

    def sweep(self, older_than: float) -> int:
        self.load()  # what is named by the newest commit is moved away
        return self._staging.sweep(older_than, self._named())

    def compact(self, target_file_size: int) -> Compacted:
        """See rocketapp_lake.store.Compacts. Files that another sink has added to the directory are its own."""
        head, batch = self.load(), uuid.uuid4().hex
        live = self._live(head.sequence)
        try:
            sizes = [(place, (self.path / place).stat().st_size) for place in live]
            groups = [group for small in small_files(sizes, target_file_size) for group in alike(self.path, small)]
            staged = self._merged(batch, groups) if groups else None
        except Exception as error:
            self._staging.forget(batch)
            if isinstance(error, FileNotFoundError) and self._was_compacted(head, self.load()):
                return Compacted()  # another owner was faster, and has removed them
            raise
        return Compacted() if staged is None else self._swap(head, live, groups, staged)

    @staticmethod
    def log_of(path: str | os.PathLike[str], sink: str) -> Iterator[Commit]:
        """Every commit of a sink, oldest first. It reads alone, and completes nothing."""
        for file in sorted(ParquetLog(Path(path), sink).path.glob("*.json")):
            entry = read(file)
            if entry is not None:
                yield decode(entry)

    @staticmethod
    def files_of(path: str | os.PathLike[str], sink: str) -> list[Path]:
        """The files that hold each row of a sink once, as of its newest commit that is in place. It reads alone."""
        store = ParquetStore(path, sink, write=_refuse)
        newest = store._log.newest()
        entry = store._log.entry(newest) if newest else None
        if entry is not None and not store._log.is_done(newest) and not store._is_in_place(entry):
            newest -= 1  # its owner is moving its files, or has died meanwhile
        return [store.path / place for place in store._live(newest)]

    # Inside.

    def _publish(self, commit: Commit, staged: Staged | None, extra: dict[str, Any] | None = None) -> None:
        before = commit.sequence - 1
        if before:
            entry = self._log.entry(before)
            if entry is None:
                raise FencedError(f"{self._log.path}: the table is not at commit {before}")
            self._complete_to(before, entry)
        stem = f"{commit.sequence:020d}-{commit.batch}"
        files = [] if staged is None else [[name, place_of(name, stem)] for name in staged.content]
        for name, _ in files:
            if not (self._staging.path / commit.batch / name).is_file():
                raise self._staging.lost(self._staging.path / commit.batch / name)
        staging = {"staging": str(self._staging.path)} if self._staging.is_elsewhere else {}
        entry = {**encode(commit), "files": files, **staging, **(extra or {})}
        self._log.create(commit.sequence, to_json(entry))
        self._complete_to(commit.sequence, entry)

    def _swap(self, head: Head, live: Sequence[str], groups: Sequence[Sequence[str]], staged: Staged) -> Compacted:
        """Publish the merged files in place of the small ones. `head`, `live`: what these were chosen from."""
        removed = {place for group in groups for place in group}
        kept = [place for place in live if place not in removed]
        while True:
            now = self.load()
            if self._was_compacted(head, now):
                self._staging.forget(staged.batch)  # another owner was faster: they are not put together twice
                return Compacted()
            kept += [place for entry in self._between(head, now) for _, place in entry["files"]]
            head = now
            try:
                self._publish(_compaction(self.sink, head, staged), staged, {"removed": sorted(removed), "kept": kept})
            except FencedError:
                continue
            return Compacted(len(removed), len(groups), staged.bytes)

    def _between(self, head: Head, now: Head) -> list[dict[str, Any]]:
        """The commits behind one and up to the other."""
        entries = map(self._log.entry, range(head.sequence + 1, now.sequence + 1))
        return [entry for entry in entries if entry is not None]

    def _was_compacted(self, head: Head, now: Head) -> bool:
        return any(entry.get("kind") == "compact" for entry in self._between(head, now))

    def _complete_to(self, sequence: int, entry: Mapping[str, Any]) -> None:
        """Move the files of a commit into the table, as far as they are not there."""
        if sequence <= self._complete:
            return
        if not self._log.is_done(sequence):
            self._log.sync()
            self._move(sequence, entry)
            self._remove(entry)
            self._log.done(sequence)
        self._staging.forget(entry["batch"])
        self._complete = sequence

    def _move(self, sequence: int, entry: Mapping[str, Any]) -> None:
        # Where its owner has staged it, which need not be where this one does.
        directory, folders = Path(entry.get("staging", self.path / STAGING)) / entry["batch"], set()
        for name, place in entry["files"]:
            target = self.path / place
            if not target.exists():
                make(target.parent)
                try:
                    (directory / name).replace(target)
                except FileNotFoundError:
                    # Another owner has moved it meanwhile; or it did, and it was removed from the table since.
                    if not target.exists() and not self._log.is_done(sequence):
                        raise SinkError(
                            f"{directory / name} of commit {sequence} is lost: restore it, or create "
                            f"{self._log.mark(sequence)} to go on without its rows"
                        ) from None
                    continue
            folders |= {target.parent, target.parent.parent} if target.parent != self.path else {self.path}
        for folder in folders:
            sync(folder)

    def _remove(self, entry: Mapping[str, Any]) -> None:
        """The files that a compaction has put together, when all of the new ones are in place."""
        left = [self.path / place for place in entry.get("removed", ()) if (self.path / place).exists()]
        if left and self._is_in_place(entry):
            for file in left:
                file.unlink(missing_ok=True)
            for folder in {file.parent for file in left}:
                sync(folder)

    def _is_in_place(self, entry: Mapping[str, Any]) -> bool:
        return all((self.path / place).exists() for _, place in entry["files"])

    def _merged(self, batch: str, groups: Iterable[Sequence[str]]) -> Staged:
        out = self._staging.path / batch / OUT
        for number, group in enumerate(groups):
            target = out / Path(group[0]).parent / f"part-{number:05d}.parquet"
            merge([self.path / place for place in group], target, self._sort_by)
        return self._staging.durable(batch, 0)

    def _live(self, sequence: int) -> list[str]:
        """The files that hold the rows up to a commit; those that were removed from the table later are left out."""
        found, removed = list[str](), set[str]()
        for number in range(sequence, 0, -1):
            entry = self._log.entry(number)
            if entry is None:
                break
            found += [place for _, place in entry["files"]]
            removed |= set(entry.get("removed", ()))
            if "kept" in entry:
                found += entry["kept"]
                break
        return sorted(place for place in found if place not in removed and (self.path / place).exists())

    def _named(self) -> set[str]:
        """The newest batch of each sink of the directory: its files may still have to be moved."""
        return {str(entry["batch"]) for entry in self._newest_of_all()}

    def _newest_of_all(self) -> Iterator[dict[str, Any]]:
        """The newest commit of each sink of the directory."""
        for log in (self.path / LOG).iterdir() if (self.path / LOG).is_dir() else ():
            newest = max(log.glob("*.json"), default=None)
            entry = None if newest is None else read(newest)
            if entry is not None:
                yield entry


def _compaction(sink: str, head: Head, staged: Staged) -> Commit:
    return Commit(
        sink=sink,
        sequence=head.sequence + 1,
        batch=staged.batch,
        spans={},
        vector=head.vector,
        schema=head.schema,
        made_at=time_ns() / 1e9,
        kind="compact",
    )


def _refuse(rows: pa.Table, directory: Path) -> None:
    raise SinkError(f"{directory}: opened to be read, not to be written")


ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Bytes of rows in memory that are written together."""


def small_files(files: Iterable[tuple[str, int]], target: int) -> Iterator[list[str]]:
    """Lists of files, each of one directory and of at most `target` bytes together, two or more.

    `files`: places and sizes in bytes. Files of half the target or more are left as they are.
    """
    small = sorted((str(Path(place).parent), place, size) for place, size in files if 2 * size < target)
    for _, found in groupby(small, key=lambda file: file[0]):
        group, total = list[str](), 0
        for _, place, size in found:
            if total + size > target:
                if len(group) > 1:
                    yield group
                group, total = [], 0
            group.append(place)
            total += size
        if len(group) > 1:
            yield group


def alike(root: Path, places: Sequence[str]) -> Iterator[list[str]]:
    """The same files by the columns that they have; a single one is left out."""
    by_columns: dict[str, list[str]] = {}
    for place in places:
        columns = pq.read_schema(root / place).remove_metadata().to_string()
        by_columns.setdefault(columns, []).append(place)
    yield from (group for group in by_columns.values() if len(group) > 1)


def merge(sources: Sequence[Path], target: Path, sort_by: Sequence[str] = ()) -> None:
    """All rows of the sources, which have the same columns, in one file. With `sort_by` all of them are in memory."""
    schema = pq.read_schema(sources[0])
    target.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(target, schema) as writer:
        if sort_by:
            rows = pa.concat_tables([_file(source).read() for source in sources])
            writer.write_table(rows.sort_by([(column, "ascending") for column in sort_by]))
            return
        held, size = list[pa.Table](), 0
        for rows in _row_groups(sources):
            held.append(rows)
            size += rows.nbytes
            if size >= ROW_GROUP_BYTES:
                writer.write_table(pa.concat_tables(held))
                held, size = [], 0
        if held:
            writer.write_table(pa.concat_tables(held))


def _row_groups(sources: Sequence[Path]) -> Iterator[pa.Table]:
    for source in sources:
        file = _file(source)
        for number in range(file.num_row_groups):
            yield file.read_row_group(number)


def _file(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(path)
