"""A directory of Parquet files with a log of its own, on a local or network file system with hard links.

    <table>/_rmq_log/<sink>/<sequence>.json   one per commit: created if absent, which is the fence and the commit point
    <table>/_rmq_staging/<batch>/             files that are written and not visible
    <table>/<partitions>/<sequence>-<batch>-<number>.parquet

Readers pass over names that begin with `_`. After its commit point a batch is moved into the table file by file. Who
dies on the way leaves that to the next one who loads: a commit is only added when the files of the one before are in
place. The names of files hold their batch, so moving them twice is harmless.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rocketapp_pyspark.errors import FencedError, SinkError
from rocketapp_pyspark.records import Commit, Head, decode, encode, to_json
from rocketapp_pyspark.store import Staged

if TYPE_CHECKING:
    import pyarrow as pa

Write = Callable[["pa.Table", Path], None]
"""Writes rows as Parquet files into a directory, which it creates."""

LOG, STAGING = "_rmq_log", "_rmq_staging"


class ParquetStore:
    """One sink in one directory (rocketapp_pyspark.store.Store)."""

    def __init__(self, path: str | os.PathLike[str], sink: str, *, write: Write) -> None:
        self.path, self.sink, self._write = Path(path), sink, write
        self._log = _log(self.path, sink)
        self._staging = self.path / STAGING
        self._complete = 0
        """All files up to this commit are in place."""

    def __repr__(self) -> str:
        return f"<ParquetStore {self.path} of {self.sink}>"

    def load(self) -> Head:
        numbers = [int(entry.stem) for entry in self._log.glob("*.json")] if self._log.is_dir() else []
        if not numbers:
            return Head()
        newest = max(numbers)
        entry = self._entry(newest)
        if entry is None:
            raise SinkError(f"{self._log}: commit {newest} has vanished: is the log being removed?")
        self._complete_to(newest, entry)
        commit = decode(entry)
        return Head(sequence=newest, batch=commit.batch, vector=commit.vector, schema=commit.schema)

    def stage(self, batch: str, rows: pa.Table) -> Staged:
        directory = self._staging / batch
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        out = directory / "out"
        self._write(rows, out)
        files = [str(file.relative_to(directory)) for file in sorted(out.rglob("*.parquet"))]
        size = 0
        for name in files:
            _sync(directory / name)
            size += (directory / name).stat().st_size
        for folder in {(directory / name).parent for name in files} | {out, directory, self._staging}:
            _sync(folder)
        return Staged(batch, rows.num_rows, size, files)

    def publish(self, commit: Commit, staged: Staged | None) -> None:
        before = commit.sequence - 1
        if before:
            entry = self._entry(before)
            if entry is None:
                raise FencedError(f"{self._log}: the table is not at commit {before}")
            self._complete_to(before, entry)
        files = [] if staged is None else [[name, self._place(commit, name)] for name in staged.content]
        for name, _ in files:
            if not (self._staging / commit.batch / name).is_file():
                raise SinkError(f"{self._staging / commit.batch / name} has vanished: it was staged too long ago")
        entry = {**encode(commit), "files": files}
        self._create(commit.sequence, to_json(entry))
        self._complete_to(commit.sequence, entry, is_ours=True)

    def who_committed(self, sequence: int) -> str | None:
        entry = self._entry(sequence)
        return None if entry is None else str(entry["batch"])

    def sweep(self, older_than: float) -> int:
        self.load()  # what is named by the newest commit is moved away
        if not self._staging.is_dir():
            return 0
        limit, swept = time_ns() / 1e9 - older_than, 0
        for directory in self._staging.iterdir():
            if directory.stat().st_mtime <= limit:
                shutil.rmtree(directory, ignore_errors=True)
                swept += 1
        return swept

    @staticmethod
    def log_of(path: str | os.PathLike[str], sink: str) -> Iterator[Commit]:
        """Every commit of a sink, oldest first. It reads alone, and completes nothing."""
        for entry in sorted(_log(Path(path), sink).glob("*.json")):
            yield decode(json.loads(entry.read_bytes()))

    # Inside.

    def _name(self, sequence: int) -> Path:
        return self._log / f"{sequence:020d}.json"

    def _entry(self, sequence: int) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._name(sequence).read_bytes())
        except FileNotFoundError:
            return None
        return found

    def _place(self, commit: Commit, name: str) -> str:
        """Where a staged file goes: `out/day=1/part-00000-....parquet` keeps its partition."""
        parts, number = Path(name).parent.parts[1:], Path(name).name
        return str(Path(*parts, f"{commit.sequence:020d}-{commit.batch}-{number}"))

    def _create(self, sequence: int, content: bytes) -> None:
        """The commit point. Raises FencedError if this number is taken."""
        if not self._log.is_dir():
            self._log.mkdir(parents=True, exist_ok=True)
            _sync(self._log.parent)
            _sync(self.path)
        name = self._name(sequence)
        coming = name.with_name(f".{name.name}.{os.getpid()}.{time_ns()}")
        with coming.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(coming, name)
        except FileExistsError:
            raise FencedError(f"{name}: another owner has committed it") from None
        finally:
            coming.unlink(missing_ok=True)
        _sync(self._log)

    def _complete_to(self, sequence: int, entry: dict[str, Any], *, is_ours: bool = False) -> None:
        """Move the files of a commit into the table, as far as they are not there."""
        if sequence <= self._complete:
            return
        directory, folders = self._staging / entry["batch"], set()
        for name, place in entry["files"]:
            target = self.path / place
            if not target.exists() and (is_ours or directory.exists()):
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    (directory / name).replace(target)
                except FileNotFoundError:
                    # Another owner has moved it meanwhile; or it was, and has been removed from the table since.
                    if not target.exists() and (is_ours or directory.exists()):
                        raise SinkError(f"{directory / name} of commit {sequence} is lost: restore it") from None
                    continue
            folders |= {target.parent, target.parent.parent} if target.parent != self.path else {self.path}
        for folder in folders:
            _sync(folder)
        shutil.rmtree(directory, ignore_errors=True)
        self._complete = sequence


def _log(path: Path, sink: str) -> Path:
    return path / LOG / quote(sink, safe="")


def _sync(path: Path) -> None:
    """What was written there survives the machine."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
