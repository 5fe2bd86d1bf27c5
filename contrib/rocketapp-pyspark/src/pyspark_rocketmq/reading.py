"""The two readers that Spark asks for, and what one task does: a range of a queue becomes Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_rocketmq.cluster import Cluster
from pyspark_rocketmq.decoding import Rows
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.planning import Range, split
from pyspark_rocketmq.pulling import RangePuller
from pyspark_rocketmq.resolving import batch_ranges

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, part: Range) -> None:
        super().__init__(part)
        self.part = part


def read_partition(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a partition. One without a range, which Spark makes for a plan without any, has none."""
    if not isinstance(partition, RangePartition):
        return
    rows = Rows(partition.part.queue, options.columns, tags=options.pulls.tags)
    puller = RangePuller(Cluster(options.reach), options.reach, options.pulls, partition.part)
    for data, low, high in puller.replies():
        rows.add(data, low, high)
        if rows.are_enough:
            yield rows.take()
    if len(rows):
        yield rows.take()


def partitions_of(options: ReadOptions, whole: list[Range]) -> list[InputPartition]:
    """One task per range, large ones cut."""
    parts = split(whole, min_parts=options.min_partitions, max_records=options.max_records)
    return [RangePartition(part) for part in parts]


class BatchReader(DataSourceReader):
    """Reads what the topics hold when the query starts."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        return partitions_of(options, batch_ranges(Cluster(options.reach), options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)
