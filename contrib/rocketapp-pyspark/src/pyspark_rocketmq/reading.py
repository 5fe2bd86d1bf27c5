"""The two readers that Spark asks for, and what one task does: a range of a queue becomes Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_rocketmq.cluster import Cluster
from pyspark_rocketmq.decoding import Rows
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.planning import Range, split
from pyspark_rocketmq.pulling import RangePuller
from pyspark_rocketmq.pushdown import Wanted, wanted_of
from pyspark_rocketmq.resolving import batch_ranges
from rocketapp import MessageQueue
from rocketapp.state.queue_identity import Landmark

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, part: Range, landmark: Landmark | None = None) -> None:
        super().__init__(part)
        self.part, self.landmark = part, landmark


def read_partition(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a partition. One without a range, which Spark makes for a plan without any, has none."""
    if not isinstance(partition, RangePartition):
        return
    rows = Rows(partition.part.queue, options.columns, tags=options.pulls.tags)
    puller = RangePuller(Cluster(options.reach), options.pulls, partition.part, partition.landmark)
    for data, low, high in puller.replies():
        rows.add(data, low, high)
        if rows.are_enough:
            yield from _batch_of(rows)
    yield from _batch_of(rows)


def _batch_of(rows: Rows) -> Iterator[pa.RecordBatch]:
    batch = rows.take()
    if batch.num_rows:
        yield batch


def partitions_of(
    options: ReadOptions, whole: list[Range], last: Mapping[MessageQueue, Landmark] = MappingProxyType({})
) -> list[InputPartition]:
    """One task per range, large ones cut. `last`: records by which tasks know the queues again."""
    parts = split(whole, min_parts=options.min_partitions, max_records=options.max_records_per_partition)
    return [RangePartition(part, last.get(part.queue)) for part in parts]


class BatchReader(DataSourceReader):
    """Reads what the topics hold when the query starts."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._wanted: Wanted | None = None

    def partitions(self) -> list[InputPartition]:
        options = self._options
        return partitions_of(options, batch_ranges(Cluster(options.reach), options, self._wanted))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)


class FilteringReader(BatchReader):
    """Reads less when the query's filters allow it.

    A class of its own: Spark refuses readers with this method unless `spark.sql.python.filterPushdown.enabled` is true.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Keep what they leave. All are given back: Spark applies them again."""
        self._wanted = wanted_of(filters)
        return filters
