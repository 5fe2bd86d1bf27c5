"""A directory of Parquet files with a log of its own, on a local or network file system with hard links.

    <table>/_rmq_log/<sink>/<sequence>.json   one per commit: created if absent, which is the fence and the commit point
    <table>/_rmq_log/<sink>/<sequence>.done   beside the newest one: its files are in place
    <table>/_rmq_staging/<batch>.<number>     files that are written and not visible
    <table>/<partitions>/<sequence>-<batch>-<number>.parquet

Readers pass over names that begin with `_`. After its commit point a batch is moved into the table file by file. Who
dies on the way leaves that to the next one who loads: a commit is only added when the files of the one before are in
place. The names of files hold their batch, so moving them twice is harmless.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.records import Commit, Head, decode, encode, to_json
from rocketapp_lake.staging import Staging, Write, forget, make, sync
from rocketapp_lake.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

LOG = "_rmq_log"
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}
"""What `link` raises where there are none."""


class ParquetStore(Store):
    """One sink in one directory."""

    def __init__(self, path: str | os.PathLike[str], sink: str, *, write: Write | None = None) -> None:
        """`write`: what writes files; without it the store takes no rows, and completes nothing before it commits."""
        # A program may go to another folder meanwhile.
        self.path, self.sink = Path(path).absolute(), sink
        self._log = ParquetLog(self.path, sink)
        self._staging = Staging(self.path, write)
        self._complete = 0
        """All files up to this commit are in place."""
        self._fits = set[Any]()
        """Columns that no sink of the directory has with another type."""

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
        if self._staging.write is not None:
            self._complete_to(newest, entry)
        return Head.of(decode(entry))

    def check(self, rows: pa.Table) -> None:
        if new := {*rows.schema} - self._fits:
            self.add_columns(new)
            self._fits |= new

    def commit(self, commit: Commit, rows: pa.Table | None) -> None:
        if rows is not None:
            self.check(rows)
        staged = {} if rows is None else self._staging.stage(commit.batch, rows)
        try:
            self._publish(commit, staged)
        except FencedError:
            forget(staged)
            raise

    def add_columns(self, columns: Iterable[pa.Field]) -> None:
        """Each file has columns of its own, and readers take those that it lacks as empty: types have to agree."""
        for entry in self._newest_of_all():
            has: dict[str, str] = json.loads(entry["schema"] or "{}")
            for column in columns:
                if has.get(column.name, str(column.type)) != str(column.type):
                    differ = f"column {column.name} is {has[column.name]}, and the rows have {column.type}"
                    raise SinkError(f"{self.path}: {differ}")

    def who_committed(self, sequence: int) -> str | None:
        entry = self._log.entry(sequence)
        return None if entry is None else str(entry["batch"])

    def sweep(self, older_than: float) -> int:
        # Files of the newest batch of each sink may still have to be moved.
        return self._staging.sweep(older_than, lambda: {entry["batch"] for entry in self._newest_of_all()})

    def commits(self) -> Iterator[Commit]:
        for log in sorted((self.path / LOG).glob("*")):
            entries = (read(file) for file in sorted(log.glob("*.json"), reverse=True))
            yield from (decode(entry) for entry in entries if entry is not None)

    # Inside.

    def _publish(self, commit: Commit, staged: Mapping[Path, str]) -> None:
        before = commit.sequence - 1
        if before:
            entry = self._log.entry(before)
            if entry is None:
                raise FencedError(f"{self._log.path}: the table is not at commit {before}")
            self._complete_to(before, entry)
        for file in staged:
            if not file.is_file():
                raise SinkError(f"{file} has vanished: it was staged too long ago")
        stem = f"{commit.sequence:020d}-{commit.batch}"
        places = {file: Path(place).with_name(f"{stem}-{Path(place).name}") for file, place in staged.items()}
        entry = {**encode(commit), "files": [[file.name, str(place)] for file, place in places.items()]}
        self._log.create(commit.sequence, to_json(entry))
        self._complete_to(commit.sequence, entry)

    def _complete_to(self, sequence: int, entry: Mapping[str, Any]) -> None:
        """Move the files of a commit into the table, as far as they are not there."""
        if sequence <= self._complete:
            return
        if not self._log.is_done(sequence):
            # The commit has to last before its files are moved, which would be there without it.
            sync(self._log.path)
            self._move(sequence, entry)
            self._log.done(sequence)
        self._complete = sequence

    def _move(self, sequence: int, entry: Mapping[str, Any]) -> None:
        folders = set()
        for name, place in entry["files"]:
            file, target = self._staging.path / name, self.path / place
            if not target.exists():
                make(target.parent)
                try:
                    file.replace(target)
                except FileNotFoundError:
                    # Another owner has moved it meanwhile; or it did, and it was removed from the table since.
                    if not target.exists() and not self._log.is_done(sequence):
                        go_on = f"create {self._log.mark(sequence)} to go on without its rows"
                        raise SinkError(f"{file} of commit {sequence} is lost: restore it, or {go_on}") from None
                    continue
            folders |= {target.parent, target.parent.parent} if target.parent != self.path else {self.path}
        for folder in folders:
            sync(folder)

    def _newest_of_all(self) -> Iterator[dict[str, Any]]:
        """The newest commit of each sink of the directory."""
        for log in (self.path / LOG).glob("*"):
            newest = max(log.glob("*.json"), default=None)
            if newest is not None and (entry := read(newest)) is not None:
                yield entry


class ParquetLog:
    """The commits of one sink, as plain values: each as `records.encode` has it, and its files."""

    def __init__(self, table: Path, sink: str) -> None:
        self.path = table / LOG / quote(sink, safe="")
        self._known = 0
        """A number that has been seen."""

    def __repr__(self) -> str:
        return f"<ParquetLog {self.path}>"

    def newest(self) -> int:
        """The number of the newest commit; 0 without any."""
        if not self._known or not self._name(self._known).exists():
            # Other programs may leave files of their own in it.
            numbers = (entry.stem for entry in self.path.glob("*.json") if entry.stem.isdecimal())
            self._known = max(map(int, numbers), default=0)
        # Counted on: a directory with a file for each commit ever made is not listed again.
        while self._known and self._name(self._known + 1).exists():
            self._known += 1
        return self._known

    def entry(self, sequence: int) -> dict[str, Any] | None:
        """A commit; None when it is not there. Raises SinkError for one that is damaged."""
        return read(self._name(sequence))

    def create(self, sequence: int, content: bytes) -> None:
        """The commit point; it lasts once the folder is synced. Raises FencedError if this number is taken."""
        make(self.path)
        name = self._name(sequence)
        coming = name.with_name(f".{name.name}.{os.getpid()}.{time_ns()}")
        try:
            with coming.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(coming, name)
        except FileExistsError:
            raise FencedError(f"{name}: another owner has committed it") from None
        except OSError as error:
            if error.errno in _NO_LINKS:
                problem = f"the table has to be on a file system with hard links: {error}"
                raise SinkError(f"{self.path}: {problem}") from error
            raise
        finally:
            coming.unlink(missing_ok=True)

    def is_done(self, sequence: int) -> bool:
        """Whether the files of a commit were in place, whatever became of them since."""
        return self.mark(sequence).exists() or self._name(sequence + 1).exists()

    def done(self, sequence: int) -> None:
        """They are, and will be after a power cut."""
        self.mark(sequence).touch()
        self.mark(sequence - 1).unlink(missing_ok=True)

    def mark(self, sequence: int) -> Path:
        """The file that says so."""
        return self._name(sequence).with_suffix(".done")

    def _name(self, sequence: int) -> Path:
        return self.path / f"{sequence:020d}.json"


def read(file: Path) -> dict[str, Any] | None:
    """A commit; None when it is not there. Raises SinkError for one that is damaged."""
    try:
        found: dict[str, Any] = json.loads(file.read_bytes())
        decode(found)
        if not isinstance(found["files"], list):
            raise ValueError("it names no files")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, AttributeError) as error:
        raise SinkError(f"{file} is damaged: restore it from a copy of the table: {error}") from None
    return found
