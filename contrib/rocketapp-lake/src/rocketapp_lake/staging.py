"""Parquet files that are written below a table, and not visible in it yet.

<table>/_rmq_staging/<batch>/out/<partitions>/part-00000-....parquet
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow.parquet as pq

from rocketapp_lake.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa

Write = Callable[["pa.Table", Path], None]
"""Writes rows as Parquet files into a directory, which it creates."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows that are written and not visible."""

    batch: str
    rows: int
    bytes: int
    content: Any = None
    """What the store needs to publish them."""


STAGING, OUT = "_rmq_staging", "out"


class Staging:
    """Of one table, on a local or network file system."""

    def __init__(self, table: Path, write: Write, elsewhere: Path | None = None) -> None:
        """`elsewhere`: a directory for the staged files of this and other tables; None: below the table."""
        self.table, self.path, self.write = table, table / STAGING, write
        self.is_elsewhere = elsewhere is not None
        if elsewhere is not None:
            # By table: what is old is swept by the table that it belongs to.
            self.path = elsewhere.absolute() / quote(str(table.absolute()), safe="")

    def __repr__(self) -> str:
        return f"<Staging {self.path}>"

    def stage(self, batch: str, rows: pa.Table) -> Staged:
        """Write the files."""
        directory = self.path / batch
        shutil.rmtree(directory, ignore_errors=True)
        make(directory)
        try:
            self._check()
            self.write(rows, directory / OUT)
            staged = self.durable(batch, rows.num_rows)
            self._count(staged)
        except Exception:
            # The next attempt has another name: on a full disk, files of many would keep it full.
            self.forget(batch)
            raise
        return staged

    def _check(self) -> None:
        """That files can be moved into the table has to be known before they are committed."""
        if self.is_elsewhere:
            make(self.table)
            if self.path.stat().st_dev != self.table.stat().st_dev:
                raise SinkError(f"staging={self.path.parent}: give a directory on the file system of {self.table}")

    def _count(self, staged: Staged) -> None:
        """What wrote the files may have lost some of them, or have written some twice."""
        files = [self.path / staged.batch / name for name in staged.content]
        there = sum(pq.read_metadata(file).num_rows for file in files)
        if there != staged.rows:
            raise OSError(
                f"{there} rows of {staged.rows} are in the files of batch {staged.batch}: they are written again"
            )

    def durable(self, batch: str, rows: int) -> Staged:
        """What is written survives the machine. `content` has the names of the files below the batch."""
        directory = self.path / batch
        files = [str(file.relative_to(directory)) for file in sorted((directory / OUT).rglob("*.parquet"))]
        size = 0
        for name in files:
            sync(directory / name)
            size += (directory / name).stat().st_size
        for folder in {(directory / name).parent for name in files} | {directory / OUT, directory, self.path}:
            sync(folder)
        return Staged(batch, rows, size, files)

    def lost(self, file: Path) -> SinkError:
        """What to raise for a staged file that is not there."""
        return SinkError(f"{file} has vanished: it was staged too long ago")

    def move(self, batch: str, places: Iterable[tuple[str, Path]]) -> None:
        """Move files out of staging, each to its place; those that are there already are passed over.

        Raises SinkError for one that is in neither place.
        """
        folders = set()
        for name, target in places:
            if target.exists():
                continue
            make(target.parent)
            try:
                (self.path / batch / name).replace(target)
            except FileNotFoundError:
                raise self.lost(self.path / batch / name) from None
            folders |= {target.parent, target.parent.parent}
        for folder in folders:
            sync(folder)

    def move_back(self, batch: str, places: Iterable[tuple[str, Path]]) -> None:
        """The reverse, after a publication that did not happen."""
        for name, target in places:
            back = self.path / batch / name
            back.parent.mkdir(parents=True, exist_ok=True)
            target.replace(back)

    def forget(self, batch: str) -> None:
        """Its files are in the table."""
        shutil.rmtree(self.path / batch, ignore_errors=True)

    def sweep(self, older_than: float, kept: Container[str] = ()) -> int:
        """Remove what was staged more than this many seconds ago; how many batches that were. `kept`: names of some."""
        limit, swept = time_ns() / 1e9 - older_than, 0
        for directory in (one for root in {self.path, self.table / STAGING} for one in root.glob("*")):
            try:
                is_old = directory.stat().st_mtime <= limit
            except FileNotFoundError:
                continue  # another owner has published it meanwhile
            if is_old and directory.name not in kept:
                shutil.rmtree(directory, ignore_errors=True)
                swept += 1
        return swept


def place_of(name: str, stem: str) -> str:
    """Where a staged file goes: `out/day=1/part-00000-....parquet` keeps its partition, and gets this first part."""
    return str(Path(*Path(name).parent.parts[1:], f"{stem}-{Path(name).name}"))


def partition_of(name: str) -> dict[str, str]:
    """The values in the names of its directories."""
    return dict(part.split("=", 1) for part in Path(name).parent.parts[1:])


def make(directory: Path) -> None:
    """Create a directory and those above it that are missing; they survive the machine."""
    new = list(takewhile(lambda one: not one.exists(), (directory, *directory.parents)))
    directory.mkdir(parents=True, exist_ok=True)
    for one in reversed(new):
        sync(one.parent)


def sync(path: Path) -> None:
    """What was written there survives the machine."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
