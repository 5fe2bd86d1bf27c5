"""Parquet files that are written below a table, and not visible in it yet.

<table>/_rmq_staging/<batch>/out/<partitions>/part-00000-....parquet
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Container
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from rocketapp_lake.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa

Write = Callable[["pa.Table", Path], None]
"""Writes rows as Parquet files into a directory, which it creates."""
STAGING, OUT = "_rmq_staging", "out"


class Staging:
    """Of one table, on a local or network file system."""

    def __init__(self, table: Path, write: Write | None) -> None:
        self.path, self.write = table / STAGING, write

    def __repr__(self) -> str:
        return f"<Staging {self.path}>"

    def stage(self, batch: str, rows: pa.Table) -> list[str]:
        """Write the files, which survive the machine then; their names below the directory of the batch."""
        directory = self.path / batch
        shutil.rmtree(directory, ignore_errors=True)
        make(directory)
        try:
            assert self.write is not None
            self.write(rows, directory / OUT)
            files = sorted((directory / OUT).rglob("*.parquet"))
            # What wrote the files may have lost some of them, or have written some twice.
            there = sum(pq.read_metadata(file).num_rows for file in files)
            if there != rows.num_rows:
                raise OSError(
                    f"{there} rows of {rows.num_rows} are in the files of batch {batch}: they are written again"
                )
            self._check_partitions(directory / OUT)
            for place in (*files, *{file.parent for file in files}, directory / OUT, directory, self.path):
                sync(place)
        except Exception:
            # The next attempt has another name: on a full disk, files of many would keep it full.
            self.forget(batch)
            raise
        return [str(file.relative_to(directory)) for file in files]

    def _check_partitions(self, out: Path) -> None:
        """Readers that see the folder of a partition pass over files that lie beside it: Spark without a word."""
        table = self.path.parent
        has, ours = _partition(table), _partition(out)
        if has != ours and None not in (has, ours):
            mend = "change partition_by=, or give it another table"
            raise SinkError(f"{table} is partitioned by {has}, and this sink writes files by {ours}: {mend}")

    def forget(self, batch: str) -> None:
        """Its files are in the table."""
        shutil.rmtree(self.path / batch, ignore_errors=True)

    def sweep(self, older_than: float, kept: Callable[[], Container[str]]) -> int:
        """Remove what was staged more than this many seconds ago; how many batches that were. `kept`: names of some."""
        limit, old = time_ns() / 1e9 - older_than, []
        for directory in self.path.glob("*"):
            with suppress(FileNotFoundError):  # another owner has published it meanwhile
                old += [directory] if directory.stat().st_mtime <= limit else []
        names = kept() if old else ()
        swept = [directory for directory in old if directory.name not in names]
        for directory in swept:
            shutil.rmtree(directory, ignore_errors=True)
        return len(swept)


def _partition(folder: Path) -> str | None:
    """The column of the partitions in it; "nothing" when files of rows lie there themselves, None without either."""
    with os.scandir(folder) as entries:  # of a table with many files the first one is enough
        for one in entries:
            column, is_partition, _ = one.name.partition("=")
            if is_partition or one.name.endswith(".parquet"):
                return column if is_partition else "nothing"
    return None


def place_of(name: str, stem: str) -> str:
    """Where a staged file goes: `out/day=1/part-00000-....parquet` keeps its partition, and gets this first part."""
    return str(Path(*Path(name).parent.parts[1:], f"{stem}-{Path(name).name}"))


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
