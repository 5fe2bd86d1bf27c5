"""Parquet files that are written below a table, and not visible in it yet.

    <table>/_rmq_staging/<batch>.<number>

A file of the staging may vanish while a reader lists the table, a folder may not: Arrow looks into all of them, hidden
ones too, and fails for one that is gone. So the staging has no folders, and stays itself. What needs folders of its own
has them beside the table:

    .<table>.writing/<batch>/
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from rocketapp_lake.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa

STAGING = "_rmq_staging"


class Files:
    """Those of one batch."""

    def __init__(self, table: Path, batch: str) -> None:
        self.scratch = table.with_name(f".{table.name}.writing") / batch
        """A folder for what writes files by way of others, which creates it: no reader of the table looks there."""
        self.places = dict[Path, str]()
        """Where each file goes in the table."""
        self._stem = f"{table / STAGING / batch}"

    def new(self, place: str) -> Path:
        """The file to write for this place: a name, or one in the folder of a partition, `day=1/part.parquet`."""
        file = Path(f"{self._stem}.{len(self.places)}")
        self.places[file] = place
        return file


Write = Callable[["pa.Table", Files], None]
"""Writes rows as Parquet files."""


class Staging:
    """Of one table, on a local or network file system."""

    def __init__(self, table: Path, write: Write | None) -> None:
        self.table, self.path, self.write = table, table / STAGING, write

    def __repr__(self) -> str:
        return f"<Staging {self.path}>"

    def stage(self, batch: str, rows: pa.Table) -> dict[Path, str]:
        """Write the files, which survive the machine then; where each goes in the table."""
        make(self.path)
        files = Files(self.table, batch)
        try:
            assert self.write is not None
            self.write(rows, files)
            # What wrote the files may have lost some of them, or have written some twice.
            there = sum(pq.read_metadata(file).num_rows for file in files.places)
            if there != rows.num_rows:
                problem = f"{there} rows of {rows.num_rows} are in the files of batch {batch}"
                raise OSError(f"{problem}: they are written again")
            self._check_partitions(files)
            for place in (*files.places, self.path):
                sync(place)
        except Exception:
            # The next attempt has another name: on a full disk, files of many would keep it full.
            forget(files.places)
            raise
        finally:
            shutil.rmtree(files.scratch, ignore_errors=True)
        return files.places

    def _check_partitions(self, files: Files) -> None:
        """Readers that see the folder of a partition pass over files that lie beside it: Spark without a word."""
        with os.scandir(self.table) as entries:  # of a table with many files the first one is enough
            names = (one.name for one in entries if "=" in one.name or one.name.endswith(".parquet"))
            has = next(map(_partition, names), None)
        ours = next(map(_partition, files.places.values()), None)
        if has != ours and None not in (has, ours):
            mend = "change partition_by=, or give it another table"
            raise SinkError(f"{self.table} is partitioned by {has}, and this sink writes files by {ours}: {mend}")

    def sweep(self, older_than: float, kept: Callable[[], Container[str]]) -> int:
        """Remove what was staged more than this many seconds ago; how many batches that were. `kept`: names of some."""
        limit, old = time_ns() / 1e9 - older_than, []
        for one in (*self.path.glob("*"), *Files(self.table, "").scratch.glob("*")):
            with suppress(FileNotFoundError):  # another owner has published it meanwhile
                old += [one] if one.stat().st_mtime <= limit else []
        names = kept() if old else ()
        swept = [one for one in old if one.stem not in names]
        forget(swept)
        return len({one.stem for one in swept})


def forget(staged: Iterable[Path]) -> None:
    """Remove it: files, and the folders of writers that died."""
    for one in staged:
        shutil.rmtree(one, ignore_errors=True)
        with suppress(OSError):
            one.unlink()


def _partition(place: str) -> str:
    """The column of the partition that it is or lies in; "nothing" for a file that lies in none."""
    return place.partition("=")[0] if "=" in place else "nothing"


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
