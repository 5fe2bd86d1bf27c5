"""Adds up what several processes of one app report: counters and durations are summed, queues are listed together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from rocketapp.plugin import AppSnapshot, GroupSnapshot, HandlerSnapshot, Metric
from rocketapp.plugins.counts import CallKey, Counts, Histogram

Durations = tuple[tuple[CallKey, tuple[tuple[int, ...], float, int]], ...]
"""What one process has measured since its start: of each the buckets, the seconds of all together, and the messages."""


def durations_of(counts: Counts) -> Durations:
    """A copy of all durations measured so far."""
    # Threads of handlers add new ones meanwhile.
    known = counts.histograms.copy().items()
    return tuple((which, (tuple(one.buckets), one.total, one.messages)) for which, one in known)


def aggregate_durations(parts: Iterable[Durations]) -> Counts:
    """The durations of several processes, added."""
    found = Counts()
    for which, (buckets, total, messages) in chain.from_iterable(parts):
        known = found.histograms.setdefault(which, Histogram())
        known.buckets = [one + other for one, other in zip(known.buckets, buckets, strict=True)]
        known.total += total
        known.messages += messages
    return found


def aggregate_snapshots(snapshots: Sequence[AppSnapshot]) -> AppSnapshot:
    """The snapshots of several processes as one. Members of a group: as the process says that knows most of them."""
    if len(snapshots) == 1:
        return snapshots[0]
    groups: dict[tuple[str, str], list[GroupSnapshot]] = {}
    metrics: dict[str, list[Metric]] = {}
    for snapshot in snapshots:
        for group in snapshot.groups:
            groups.setdefault((group.cluster, group.group), []).append(group)
        for metric in snapshot.metrics:
            metrics.setdefault(metric.name, []).append(metric)
    return AppSnapshot(
        cache_limit_bytes=sum(one.cache_limit_bytes for one in snapshots),
        groups=tuple(map(_group, groups.values())),
        client_ids={},
        metrics=tuple(map(_metric, metrics.values())),
    )


def counters_of(snapshot: AppSnapshot) -> AppSnapshot:
    """The snapshot of a process that has ended: its counters, without the queues that it owned."""
    groups = tuple(replace(group, members=0, queues=()) for group in snapshot.groups)
    counters = tuple(metric for metric in snapshot.metrics if metric.kind == "counter")
    return AppSnapshot(cache_limit_bytes=0, groups=groups, client_ids={}, metrics=counters)


def _group(parts: Sequence[GroupSnapshot]) -> GroupSnapshot:
    handlers: dict[tuple[str, str], HandlerSnapshot] = {}
    unmatched: Counter[str] = Counter()
    for part in parts:
        for one in part.handlers:
            known = handlers.get((one.name, one.topic))
            both = one if known is None else replace(one, stats=known.stats + one.stats, slow=known.slow + one.slow)
            handlers[one.name, one.topic] = both
        unmatched.update(part.unmatched)
    return GroupSnapshot(
        group=parts[0].group,
        cluster=parts[0].cluster,
        client_id="",
        members=max(part.members for part in parts),
        pulls=sum(part.pulls for part in parts),
        handlers=tuple(handlers.values()),
        unmatched=dict(unmatched),
        queues=tuple(sorted((queue for part in parts for queue in part.queues), key=lambda one: one.queue)),
        unassigned=next((part.unassigned for part in parts if part.unassigned), ""),
        adjusted={topic: values for part in parts for topic, values in part.adjusted.items()},
        paused={topic: why for part in parts for topic, why in part.paused.items()},
        has_assigned=all(part.has_assigned for part in parts),
        roll_out=next((part.roll_out for part in parts if part.roll_out), ""),
        forwarded=sum(part.forwarded for part in parts),
    )


def _metric(parts: Sequence[Metric]) -> Metric:
    sums: dict[tuple[tuple[str, str], ...], tuple[Mapping[str, str], float]] = {}
    for part in parts:
        for labels, value in part.samples:
            key = tuple(sorted(labels.items()))
            sums[key] = labels, value + (sums[key][1] if key in sums else 0.0)
    return replace(parts[0], samples=tuple(sums.values()))
