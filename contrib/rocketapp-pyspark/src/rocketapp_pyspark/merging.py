"""Small Parquet files into larger ones: which go together, and writing them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

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
