"""Asks a cluster what the options mean now: which queues, and which offsets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from pyspark_rocketmq.cluster import Cluster
from pyspark_rocketmq.offsets import Queue
from pyspark_rocketmq.options import Edge, ReadOptions, Topics
from pyspark_rocketmq.planning import Bounds, Range, ranges, resolve, times_of
from pyspark_rocketmq.problems import OptionError
from pyspark_rocketmq.pushdown import Wanted
from rocketapp import NoRouteError


def queues_of(cluster: Cluster, topics: Topics, *, missing_ok: bool = False) -> list[Queue]:
    """The queues that are read, sorted.

    Raises NoRouteError for an unknown topic and OptionError for an assigned queue that does not exist; with
    `missing_ok` these are left out.
    """
    readable = partial(_if_known, cluster) if missing_ok else cluster.readable
    if topics.assigned:
        present = {queue for topic in {queue.topic for queue in topics.assigned} for queue in readable(topic)}
        absent = [queue for queue in topics.assigned if queue not in present]
        if absent and not missing_ok:
            raise OptionError(f"option assign: {absent[0]} does not exist or may not be read")
        return sorted(present.intersection(topics.assigned))
    if topics.pattern:
        pattern = re.compile(topics.pattern)
        return sorted(
            queue for topic in cluster.topics() if pattern.fullmatch(topic) for queue in _if_known(cluster, topic)
        )
    return sorted(queue for topic in topics.names for queue in readable(topic))


def _if_known(cluster: Cluster, topic: str) -> list[Queue]:
    """A topic may vanish between the list and its route."""
    try:
        return cluster.readable(topic)
    except NoRouteError:
        return []


def bounds_of(cluster: Cluster, queues: Iterable[Queue]) -> dict[Queue, Bounds]:
    """What each queue holds now. The first offsets are asked last: they only grow."""
    queues = list(queues)
    following = cluster.max_offsets(queues)
    first = cluster.min_offsets(queues)
    return {queue: Bounds(max(0, first[queue]), following[queue]) for queue in queues}


def positions(
    cluster: Cluster, edge: Edge, bounds: dict[Queue, Bounds], *, fail_on_data_loss: bool
) -> dict[Queue, int]:
    """What an edge means now."""
    found = cluster.offsets_at(times_of(edge, bounds))
    return resolve(edge, bounds, found, fail_on_data_loss=fail_on_data_loss)


def batch_ranges(cluster: Cluster, options: ReadOptions, wanted: Wanted | None = None) -> list[Range]:
    """The ranges of a batch read, fixed once: tasks that run again read the same. `wanted`: what filters leave."""
    bounds = bounds_of(cluster, queues_of(cluster, options.topics))
    strict = options.pulls.fail_on_data_loss
    start = positions(cluster, options.start, bounds, fail_on_data_loss=strict)
    end = positions(cluster, options.end, bounds, fail_on_data_loss=strict)
    whole = ranges(start, end)
    return whole if wanted is None else _left(cluster, whole, wanted)


def _left(cluster: Cluster, whole: list[Range], wanted: Wanted) -> list[Range]:
    """The parts of ranges that filters leave; brokers say where their times lie."""
    parts = [wanted.within(part) for part in whole if wanted.has(part.queue)]
    if wanted.since_ms is not None:
        since = cluster.offsets_at({part.queue: wanted.since_ms for part in parts})
        parts = [part._replace(start=max(part.start, since[part.queue])) for part in parts]
    if wanted.until_ms is not None:
        until = cluster.offsets_at({part.queue: wanted.until_ms + 1 for part in parts})
        parts = [part._replace(end=min(part.end, until[part.queue])) for part in parts]
    return [part for part in parts if part.start < part.end]
