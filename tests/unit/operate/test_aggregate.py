"""Several processes of one app as one."""

from __future__ import annotations

from rocketapp.operate.aggregate import aggregate_durations, aggregate_snapshots, counters_of, durations_of
from rocketapp.plugin import Metric
from rocketapp.plugins.counts import CallKey, Counts, Histogram
from tests.unit.operate.views import queue_at, snapshot_of


def rows(written: float, pending: float) -> tuple[Metric, Metric]:
    return (
        Metric(name="sink.rows", kind="counter", unit="{row}", meaning="Rows.", samples=(({"t": "a"}, written),)),
        Metric(name="sink.open", kind="gauge", unit="{row}", meaning="Open.", samples=(({"t": "a"}, pending),)),
    )


def test_counters_are_added_and_queues_stand_side_by_side() -> None:
    first = snapshot_of(queue_at(10, queue_id=1), handled=3, slow=1, metrics=rows(5, 1))
    second = snapshot_of(queue_at(20, queue_id=0), handled=4, slow=2, metrics=rows(6, 2))
    app = aggregate_snapshots([first, second])
    (group,) = app.groups
    assert [(one.name, one.stats.handled, one.slow) for one in group.handlers] == [("app:settle", 7, 3)]
    assert (group.pulls, group.unmatched, group.members) == (6, {"orders": 2}, 2)
    assert [one.queue.queue_id for one in group.queues] == [0, 1]
    assert [dict(metric.samples[0][0]) | {"n": metric.samples[0][1]} for metric in app.metrics] == [
        {"t": "a", "n": 11},
        {"t": "a", "n": 3},
    ]
    assert app.cache_limit_bytes == 200


def test_what_a_dead_process_counted_stays_and_what_it_owned_does_not() -> None:
    app = aggregate_snapshots(
        [counters_of(snapshot_of(queue_at(10), handled=3, metrics=rows(5, 1))), snapshot_of(handled=1)]
    )
    (group,) = app.groups
    assert group.handlers[0].stats.handled == 4
    assert group.queues == ()
    assert [metric.name for metric in app.metrics] == ["sink.rows"]


def test_durations_are_added_over_processes() -> None:
    which, sent = CallKey("orders", "shop", "app:settle"), CallKey("parcels")
    parts = []
    for seconds in (0.001, 0.3):
        counts = Counts()
        counts.histograms.setdefault(which, Histogram()).add(seconds)
        counts.histograms.setdefault(sent, Histogram()).add(seconds, 5)
        parts.append(durations_of(counts))
    found = aggregate_durations(parts)
    assert sum(found.histograms[which].buckets) == 2
    assert found.histograms[sent].total == 0.301
    assert found.histograms[sent].messages == 10
