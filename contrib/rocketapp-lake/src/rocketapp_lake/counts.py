"""What a sink says of itself: a line of the log per commit, and counters that are read when metrics are collected.

A few additions per batch; nothing per message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from rocketapp import MessageQueue
from rocketapp.plugin import AppSnapshot, Metric
from rocketapp_lake.batches import Batch
from rocketapp_lake.committer import Done

if TYPE_CHECKING:
    from rocketapp_lake.writer import Writer

log = logging.getLogger("rocketapp.lake")


def _counted(name: str, unit: str, meaning: str) -> Any:
    """A field that is a metric of this name."""
    return field(default=0, metadata={"metric": (name, unit, meaning)})


@dataclass(slots=True)
class Counts:
    """Of one sink, since its app has started."""

    rows: int = _counted("rows", "{row}", "Rows that were committed.")
    bytes: int = _counted("written", "By", "Bytes of the rows that were committed, in memory.")
    commits: int = _counted("commits", "{commit}", "Commits of batches.")
    seconds: float = _counted("commit.time", "s", "Time that commits took, writing included.")
    failures: int = _counted("failures", "{attempt}", "Attempts to commit that failed.")
    bad_rows: int = _counted("bad_rows", "{row}", "Bodies that could not be decoded.")
    fenced: int = _counted("fences_lost", "{race}", "Races with another owner that were lost.")
    trimmed: int = _counted("replays_trimmed", "{message}", "Messages that were in the table before.")
    swept: int = _counted("orphans_swept", "{batch}", "Batches that were never published, and removed.")
    compacted: int = _counted("compacted", "{file}", "Small files that were put together.")
    positions: dict[MessageQueue, int] = field(default_factory=dict)
    """Where the table stands in the queues that this process has."""

    def committed(self, name: str, batch: Batch, done: Done, seconds: float) -> None:
        """A batch is in the table."""
        if done.batch:
            self.commits += 1
            self.rows += done.rows
            self.bytes += done.bytes
            self.bad_rows += len(done.bad)
        self.seconds += seconds
        self.fenced += done.fenced
        self.trimmed += done.trimmed
        vector = done.head.vector
        self.positions |= {queue: vector[queue] for queue in self.positions if queue in vector}
        _tell(name, batch, done, seconds)


_FIGURES: Sequence[tuple[str, str, str, Callable[[Writer], float]]] = (
    *((*one.metadata["metric"], attrgetter(f"counts.{one.name}")) for one in fields(Counts) if one.metadata),
    ("paused", "s", "Time in which a full buffer stopped the pulls.", attrgetter("buffer.paused")),
    ("buffer.usage", "By", "Bytes of records that are held.", attrgetter("buffer.held")),
    ("buffer.limit", "By", "Bytes at which pulls stop.", attrgetter("buffer.limit")),
)


def metrics_of(sinks: Sequence[Writer], now: AppSnapshot) -> list[Metric]:
    """All of them, for all sinks of an app."""
    found = [
        _metric(name, unit, meaning, tuple(({"rocketapp.sink": sink.name}, read(sink)) for sink in sinks))
        for name, unit, meaning, read in _FIGURES
    ]
    lag = tuple(sample for sink in sinks for sample in _lags(sink, now))
    meaning = "Messages between the table and the end of the queue, when the broker last answered a pull."
    return [*found, _metric("lag", "{message}", meaning, lag)]


Samples = tuple[tuple[Mapping[str, str], float], ...]


def _metric(name: str, unit: str, meaning: str, samples: Samples) -> Metric:
    kind: Literal["counter", "gauge"] = "gauge" if name in ("buffer.usage", "buffer.limit", "lag") else "counter"
    return Metric(name=f"rocketapp.sink.{name}", kind=kind, unit=unit, meaning=meaning, samples=samples)


def _lags(sink: Writer, now: AppSnapshot) -> Samples:
    ends = {one.queue: one.end for group in now.groups for one in group.queues}
    return tuple(
        (
            {
                "rocketapp.sink": sink.name,
                "messaging.destination.name": queue.topic,
                "messaging.destination.partition.id": f"{queue.broker_name}:{queue.queue_id}",
            },
            max(0, end - position),
        )
        for queue, position in sorted(sink.counts.positions.items())
        if (end := ends.get(queue)) is not None
    )


def _tell(name: str, batch: Batch, done: Done, seconds: float) -> None:
    made, committed = done.seconds
    facts = {
        "sink": name,
        "sequence": done.head.sequence,
        "batch": done.batch,
        "rows": done.rows,
        "bytes": done.bytes,
        "seconds": seconds,
        "rows_seconds": made,
        "commit_seconds": committed,
        "reason": batch.reason,
        "trimmed": done.trimmed,
        "fenced": done.fenced,
        "spans": {str(queue): list(span) for queue, span in batch.spans.items()},
    }
    text = (
        "sink %(sink)s: commit %(sequence)d of %(rows)d rows, %(bytes)d bytes, %(seconds).2f s (rows "
        "%(rows_seconds).2f, commit %(commit_seconds).2f), cut by %(reason)s"
    )
    if done.batch:
        text += ", batch %(batch)s"
    if done.trimmed or done.fenced:
        text += "; %(trimmed)d messages were there before, %(fenced)d races lost"
    log.info(text, facts, extra=facts)
