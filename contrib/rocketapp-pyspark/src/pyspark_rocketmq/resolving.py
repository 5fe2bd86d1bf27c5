"""Asks a cluster what the options mean now: which queues, and which offsets."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark_rocketmq.cluster import Cluster
from pyspark_rocketmq.offsets import Queue
from pyspark_rocketmq.options import Edge, ReadOptions, Topics
from pyspark_rocketmq.planning import Bounds, Range, ranges, resolve, times_of
from pyspark_rocketmq.problems import OptionError
from rocketapp import NoRouteError


def queues_of(cluster: Cluster, topics: Topics) -> list[Queue]:
    """The queues that are read, sorted. Raises OptionError when one that was assigned does not exist."""
    if topics.assigned:
        present = {queue for topic in {queue.topic for queue in topics.assigned} for queue in cluster.readable(topic)}
        absent = [queue for queue in topics.assigned if queue not in present]
        if absent:
            raise OptionError(f"option assign: {absent[0]} does not exist or may not be read")
        return list(topics.assigned)
    if topics.pattern:
        pattern = re.compile(topics.pattern)
        return sorted(
            queue for topic in cluster.topics() if pattern.fullmatch(topic) for queue in _some(cluster, topic)
        )
    return sorted(queue for topic in topics.names for queue in cluster.readable(topic))


def _some(cluster: Cluster, topic: str) -> list[Queue]:
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


def batch_ranges(cluster: Cluster, options: ReadOptions) -> list[Range]:
    """The ranges of a batch read, fixed once: tasks that run again read the same."""
    bounds = bounds_of(cluster, queues_of(cluster, options.topics))
    strict = options.pulls.fail_on_data_loss
    start = positions(cluster, options.start, bounds, fail_on_data_loss=strict)
    end = positions(cluster, options.end, bounds, fail_on_data_loss=strict)
    return ranges(start, end)
