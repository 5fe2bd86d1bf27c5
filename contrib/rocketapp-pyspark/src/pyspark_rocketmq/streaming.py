"""The reader of a stream. Spark's checkpoint keeps the positions; nothing else is trusted after a restart."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_rocketmq.cluster import CONNECTIONS, Cluster
from pyspark_rocketmq.offsets import Queue, from_json, to_json
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.planning import Bounds, advance, backlog_of, capped, gone, limited, ranges, within_bytes
from pyspark_rocketmq.problems import DataLossError
from pyspark_rocketmq.pulling import mean_bytes
from pyspark_rocketmq.reading import partitions_of, read_partition
from pyspark_rocketmq.resolving import bounds_of, positions, queues_of
from rocketapp import RocketAppError

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A query with AvailableNow is one batch there."""


if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("pyspark_rocketmq")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics from where the checkpoint says.

    One object lives on the driver as long as the query. Before Spark 4.2 it is not told where a batch begins nor how
    much it may read: then it remembers the end that it gave last, and keeps to its options.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options, self._cluster = options, Cluster(options.reach)
        self._initial: dict[Queue, int] | None = None
        """Where a query without a checkpoint begins. Spark asks more than once."""
        self._last: dict[Queue, int] | None = None
        """Where the next batch begins, as far as this object knows."""
        self._newest: dict[Queue, int] | None = None
        """The ends of all queues when they were last asked."""
        self._target: dict[Queue, int] | None = None
        """What a query that ends by itself reads at most."""
        self._moved = time.monotonic()
        """When the last batch with rows began."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        if self._initial is None:
            options = self._options
            bounds = bounds_of(self._cluster, queues_of(self._cluster, options.topics))
            strict = options.pulls.fail_on_data_loss
            self._initial = positions(self._cluster, options.start, bounds, fail_on_data_loss=strict)
        self._last = self._initial
        return to_json(self._last)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """One of the limits, for Spark to show; `latestOffset` keeps to all of them."""
        from pyspark.sql.streaming import datasource as spark

        limits = self._options.limits
        if limits.max_offsets is not None:
            return spark.ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return spark.ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return spark.ReadMinRows(limits.min_offsets)
        return spark.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix what the query reads: what is there now."""
        queues = queues_of(self._cluster, self._options.topics, missing_ok=not self._options.pulls.fail_on_data_loss)
        self._target = self._cluster.max_offsets(queues)

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch. The limit is one of Spark's; that of everything is obeyed whatever the options."""
        known = self._last if start is None else from_json(start)
        if known is None:
            # Before Spark 4.2 the first batch of a run is asked for without its start: it has no limit.
            end = {queue: bound.next for queue, bound in self._bounds().items()}
        else:
            end = self._advance(known)
            if self._target is not None:
                end = capped(known, end, self._target)
            if type(limit).__name__ != "ReadAllAvailable":
                end = self._within_limits(known, end)
            if end != known:
                self._moved = time.monotonic()
        self._last = end
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The ends of all queues, for Spark's progress: what they are ahead of the batch is the lag."""
        return None if self._newest is None else to_json(self._newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, until = from_json(start), from_json(end)
        self._last = until
        if begin != self._initial and self._options.pulls.fail_on_data_loss:
            self._check(begin, until)
        return partitions_of(self._options, ranges(begin | self._entered(begin, until), until))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Copies the positions to the group, when asked for. The checkpoint counts, so a failure is only logged."""
        if not self._options.commit_offsets:
            return
        try:
            self._cluster.commit(self._options.pulls.group, from_json(end))
        except RocketAppError as error:
            _log.warning("the offsets of group %s are not moved: %s", self._options.pulls.group, error)

    def stop(self) -> None:
        """The query ends, and soon its process."""
        CONNECTIONS.close()

    def _check(self, begin: dict[Queue, int], until: dict[Queue, int]) -> None:
        """Before Spark 4.2 the end of a run's first batch is given without knowing where the checkpoint stands."""
        for queue, problem in gone(begin, until):
            raise DataLossError(str(queue), problem)

    def _entered(self, begin: dict[Queue, int], until: dict[Queue, int]) -> dict[Queue, int]:
        """The first messages of queues that the start lacks.

        Such a queue mostly ends there too, and is read from the next batch on. Before Spark 4.2, one that came while no
        query ran ends further on.
        """
        new = [queue for queue, position in until.items() if queue not in begin and position > 0]
        return {queue: max(0, first) for queue, first in self._cluster.min_offsets(new).items()}

    def _bounds(self) -> dict[Queue, Bounds]:
        missing_ok = not self._options.pulls.fail_on_data_loss
        bounds = bounds_of(self._cluster, queues_of(self._cluster, self._options.topics, missing_ok=missing_ok))
        self._newest = {queue: bound.next for queue, bound in bounds.items()}
        return bounds

    def _advance(self, start: dict[Queue, int]) -> dict[Queue, int]:
        found = advance(start, self._bounds())
        if found.lost and self._options.pulls.fail_on_data_loss:
            queue, problem = found.lost[0]
            raise DataLossError(str(queue), problem)
        return found.end

    def _within_limits(self, start: dict[Queue, int], end: dict[Queue, int]) -> dict[Queue, int]:
        limits = self._options.limits
        if limits.min_offsets is not None and self._target is None:
            waited = time.monotonic() - self._moved
            if backlog_of(start, end) < limits.min_offsets and waited < limits.max_delay:
                return start
        if limits.max_offsets is not None:
            end = limited(start, end, limits.max_offsets)
        if limits.max_bytes is not None:
            end = within_bytes(start, end, limits.max_bytes, self._sizes(start, end))
        return end

    def _sizes(self, start: dict[Queue, int], end: dict[Queue, int]) -> dict[Queue, float]:
        options = self._options
        return {
            queue: mean_bytes(self._cluster, options.reach, options.pulls, queue, start[queue])
            for queue in start
            if end[queue] > start[queue]
        }
