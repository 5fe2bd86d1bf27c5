"""The reader of a stream. Spark's checkpoint keeps the positions; nothing else is trusted after a restart."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_rocketmq.cluster import CONNECTIONS, Cluster
from pyspark_rocketmq.offsets import Offsets, Positions, from_json, to_json
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.planning import Bounds, advance, backlog_of, capped, limited, ranges, within_bytes
from pyspark_rocketmq.problems import DataLossError
from pyspark_rocketmq.pulling import BEGUN_ANEW, denials, landmarks, mean_bytes
from pyspark_rocketmq.reading import partitions_of, read_partition
from pyspark_rocketmq.resolving import bounds_of, positions, queues_of
from rocketapp import MessageQueue, RocketAppError, TransportError
from rocketapp.state.queue_identity import Identity, Landmark, recognise

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A query with AvailableNow is one batch there."""


if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("pyspark_rocketmq")
_AWAY = "its broker is away, and before Spark 4.2 a query cannot go on without it when it starts"
_FORGOTTEN = "its position is forgotten, and it is read from its first message when it is back"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics from where the checkpoint says.

    One object lives on the driver as long as the query. Before Spark 4.2 it is not told where a batch begins nor how
    much it may read: then it remembers the end that it gave last, and keeps to its options.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options, self._cluster = options, Cluster(options.reach)
        self._initial: Offsets | None = None
        """Where a query without a checkpoint begins. Spark asks more than once."""
        self._last: Offsets | None = None
        """Where the next batch begins, as far as this object knows."""
        self._examined: Offsets | None = None
        """The start of the batch that is planned, when it was compared with what the queues hold."""
        self._newest: dict[MessageQueue, int] = {}
        """The ends of all queues when they were last asked."""
        self._target: dict[MessageQueue, int] | None = None
        """What a query that ends by itself reads at most."""
        self._away: set[str] = set()
        self._told: set[str] = set()
        """What was logged already."""
        self._moved = time.monotonic()
        """When the last batch with rows began."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        if self._initial is None:
            options = self._options
            bounds = bounds_of(self._cluster, queues_of(self._cluster, options.topics))
            strict = options.pulls.fail_on_data_loss
            begin = positions(self._cluster, options.start, bounds, fail_on_data_loss=strict)
            self._initial = self._with_landmarks(begin, Offsets({}, {}), bounds)
        self._last = self._examined = self._initial
        return to_json(*self._last)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """One of the limits, for Spark to show; `latestOffset` keeps to all of them."""
        from pyspark.sql.streaming import datasource as spark

        options = self._options
        kinds = (
            (spark.ReadMaxRows, options.max_offsets_per_trigger),
            (spark.ReadMaxBytes, options.max_bytes_per_trigger),
            (spark.ReadMinRows, options.min_offsets_per_trigger),
        )
        for kind, limit in kinds:
            if limit is not None:
                return kind(limit)
        return spark.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix what the query reads: what is there now. Raises TransportError when no name server tells."""
        queues = queues_of(self._cluster, self._options.topics, missing_ok=True)
        self._target = {queue: bound.next for queue, bound in bounds_of(self._cluster, queues, set(self._away)).items()}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch. The limit is one of Spark's; that of everything is obeyed whatever the options."""
        known = self._last if start is None else from_json(start)
        if known is None:
            # Before Spark 4.2 the first batch of a run is asked for without its start: it has no limit.
            bounds, known, anew = self._bounds(), Offsets({}, {}), set[MessageQueue]()
            end = {queue: bound.next for queue, bound in bounds.items()}
        else:
            bounds = self._bounds(known)
            self._examined = known
            end, anew = self._advance(known, bounds)
            if self._target is not None:
                end = capped(known.next, end, self._target)
            if type(limit).__name__ != "ReadAllAvailable":
                end = self._within_limits(known.next, end)
            if end != known.next:
                self._moved = time.monotonic()
        # A position at the first message of a queue that took another one's place is one in the new queue.
        begun = {queue for queue in anew & bounds.keys() if end[queue] == bounds[queue].first}
        known = Offsets(known.next, {queue: mark for queue, mark in known.last.items() if queue not in begun})
        self._last = self._with_landmarks(end, known, bounds)
        if self._target is not None and self._last.next == known.next:
            self._check_end(known.next, self._target, bounds.keys() | anew)
        return to_json(*self._last)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The ends of all queues, and how far the batch that was planned is behind them, for Spark's progress."""
        if not self._newest or self._last is None:
            return None
        at = self._last.next
        behind = [max(0, end - at[queue]) for queue, end in self._newest.items() if queue in at] or [0]
        figures = {"min": min(behind), "max": max(behind), "avg": sum(behind) / len(behind)}
        return to_json(self._newest) | {f"{name}OffsetsBehindLatest": value for name, value in figures.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, until = from_json(start), from_json(end)
        self._last, first = until, dict(begin.next)
        if begin != self._examined:
            # A batch that is run again, or, before Spark 4.2, the first of a run: its end was found without its start.
            found, _ = self._advance(begin, self._bounds(begin))
            first |= {queue: at for queue, at in found.items() if at < begin.next.get(queue, 0)}
            silent = [queue for queue in begin.next if queue not in until.next and self._options.topics.have(queue)]
            if silent and self._options.pulls.fail_on_data_loss:
                raise DataLossError(str(silent[0]), _AWAY, _FORGOTTEN)
        new = [queue for queue, position in until.next.items() if queue not in first and position > 0]
        # Such a queue mostly ends at its first message, and is read from the next batch on.
        first |= {queue: max(0, offset) for queue, offset in self._cluster.min_offsets(new).items()}
        wanted = {queue: at for queue, at in first.items() if self._options.topics.have(queue)}
        return partitions_of(self._options, ranges(wanted, until.next), until.last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Copies the positions to the group, when asked for. The checkpoint counts, so a failure is only logged."""
        if not self._options.commit_offsets:
            return
        group, away = self._options.pulls.group, set(self._away)
        try:
            self._cluster.commit(group, from_json(end).next, away)
            if silent := away - self._away:
                raise TransportError(min(silent), "it does not answer")
        except RocketAppError as error:
            _log.warning("the offsets of group %s are not moved: %s", group, error)

    def stop(self) -> None:
        """The query ends, and soon its process."""
        CONNECTIONS.close()

    def _bounds(self, known: Offsets | None = None) -> dict[MessageQueue, Bounds]:
        """What each queue that answers holds now. Raises NoRouteError for a topic that was never there."""
        topics = self._options.topics
        try:
            queues = queues_of(self._cluster, topics, missing_ok=True)
        except TransportError as error:
            self._tell("no name server answers: %s", error)
            return {}
        if known is not None and self._options.pulls.fail_on_data_loss:
            for topic in set(topics.names).difference(queue.topic for queue in (*queues, *known.next)):
                self._cluster.readable(topic)
        before = set(self._away)
        bounds = bounds_of(self._cluster, queues, self._away)
        for broker in self._away - before:
            _log.warning("broker %s is away: its queues keep their positions, the others go on", broker)
        for broker in before - self._away:
            _log.warning("broker %s is back", broker)
        self._newest |= {queue: bound.next for queue, bound in bounds.items()}
        return bounds

    def _tell(self, text: str, *facts: object) -> None:
        """Log a warning, each only once."""
        if (said := text % facts) not in self._told:
            self._told.add(said)
            _log.warning("%s", said)

    def _advance(
        self, start: Offsets, bounds: dict[MessageQueue, Bounds]
    ) -> tuple[dict[MessageQueue, int], set[MessageQueue]]:
        """The newest end, and the queues that are not those which the start means, or are denied."""
        pulls = self._options.pulls
        silent = [queue for queue in start.next if queue not in bounds and self._options.topics.have(queue)]
        denied = denials(self._cluster, pulls, silent) if silent else {}
        lost = {queue: DataLossError(str(queue), problem) for queue, problem in denied.items()}
        moved = {
            queue: max(mark.offset, bounds[queue].first)
            for queue, mark in start.last.items()
            if queue in bounds and bounds[queue].next != start.next[queue]
        }
        for queue, record in self._landmarks(moved, bounds).items():
            mark, (first, following) = start.last[queue], bounds[queue]
            said = recognise(mark, record, end=following)
            if said is Identity.GONE:
                self._tell(
                    "%s: message %d, the last that was read, is deleted, and what follows is newer", queue, mark.offset
                )
            elif said is Identity.OTHER:
                passed = max(0, min(start.next[queue], following) - first)
                problem = (
                    f"it is another queue: message {mark.offset} is not the one that was read (key {mark.key}, stored "
                    f"at {mark.stored_ms}). {passed} messages below the position {start.next[queue]} were never read"
                )
                lost[queue] = DataLossError(str(queue), problem, BEGUN_ANEW)
        end, problems = advance(start.next, bounds, lost)
        for one in problems:
            if pulls.fail_on_data_loss:
                raise one
            self._tell("%s: %s; %s", one.place, one.problem, one.otherwise)
        return end, {*lost}

    def _landmarks(
        self, offsets: dict[MessageQueue, int], bounds: dict[MessageQueue, Bounds]
    ) -> dict[MessageQueue, Landmark | None]:
        """Records by which queues are known again. A queue whose broker goes away here leaves the bounds."""
        there = {queue: offset for queue, offset in offsets.items() if offset < bounds[queue].next}
        found = landmarks(self._cluster, self._options.pulls, there, self._away)
        for queue in there.keys() - found.keys():
            del bounds[queue]
        return found | dict.fromkeys(offsets.keys() - there.keys())

    def _with_landmarks(
        self, end: dict[MessageQueue, int], start: Offsets, bounds: dict[MessageQueue, Bounds]
    ) -> Offsets:
        """Positions with the records below them. A queue whose position stays keeps the one it has."""
        asked = {
            queue: at - 1
            for queue, at in end.items()
            if queue in bounds and at > bounds[queue].first and (at != start.next.get(queue) or queue not in start.last)
        }
        found = self._landmarks(asked, bounds)
        silent = asked.keys() - found.keys()
        end = {q: start.next[q] if q in silent else at for q, at in end.items() if q not in silent or q in start.next}
        last = {queue: mark for queue, mark in start.last.items() if end.get(queue) == start.next[queue]}
        last |= {queue: mark for queue, mark in found.items() if mark is not None and mark.offset < end[queue]}
        return Offsets(end, last)

    def _check_end(self, at: Positions, target: Positions, known: Set[MessageQueue]) -> None:
        """`known`: the queues that were heard of. Raises TransportError when others are left to read."""
        left = {queue: end - at[queue] for queue, end in target.items() if end > at.get(queue, end)}
        if away := left.keys() - known:
            queue = min(away)
            problem = f"it is away, and has {left[queue]} messages that were there when the query began"
            raise TransportError(queue.broker_name, f"{problem}: start the query again when it is back")

    def _within_limits(self, start: dict[MessageQueue, int], end: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
        options = self._options
        if options.min_offsets_per_trigger is not None and self._target is None:
            waited = time.monotonic() - self._moved
            if backlog_of(start, end) < options.min_offsets_per_trigger and waited < options.max_trigger_delay:
                return start
        if options.max_offsets_per_trigger is not None:
            end = limited(start, end, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            behind = {queue: at for queue, at in start.items() if end[queue] > at}
            sizes = mean_bytes(self._cluster, options.pulls, behind, self._away)
            end = within_bytes(start, end, options.max_bytes_per_trigger, sizes)
        return end
