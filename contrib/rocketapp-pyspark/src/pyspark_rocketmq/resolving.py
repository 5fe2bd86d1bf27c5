"""Asks a cluster what the options mean now: which queues, and which offsets."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from pyspark_rocketmq.cluster import Cluster
from pyspark_rocketmq.options import Edge, ReadOptions, Topics
from pyspark_rocketmq.planning import Bounds, Range, ranges, resolve, times_of
from pyspark_rocketmq.problems import OptionError
from pyspark_rocketmq.pushdown import Wanted
from rocketapp import MessageQueue, NoRouteError


def queues_of(cluster: Cluster, topics: Topics, *, missing_ok: bool = False) -> list[MessageQueue]:
    """The queues that are read, sorted.

    Raises NoRouteError for an unknown topic and OptionError for an assigned queue that does not exist; with
    `missing_ok` these are left out.
    """
    named = {queue.topic for queue in topics.assigned}.union(topics.names)
    known = filter(topics.has_topic, cluster.topics()) if topics.pattern else named
    # A topic of the list may vanish before its route is asked for.
    readable = partial(_if_known, cluster) if topics.pattern or missing_ok else cluster.readable
    found = [queue for topic in known for queue in readable(topic) if topics.have(queue)]
    absent = set(topics.assigned).difference(found)
    if absent and not missing_ok:
        raise OptionError(f"option assign: {min(absent)} does not exist or may not be read")
    return sorted(found)


def _if_known(cluster: Cluster, topic: str) -> list[MessageQueue]:
    try:
        return cluster.readable(topic)
    except NoRouteError:
        return []


def bounds_of(
    cluster: Cluster, queues: Iterable[MessageQueue], away: set[str] | None = None
) -> dict[MessageQueue, Bounds]:
    """What each queue holds now. The first offsets are asked last: they only grow.

    `away`: the names of brokers that do not answer, whose queues are left out; without it they are an error.
    """
    following = cluster.max_offsets(queues, away)
    first = cluster.min_offsets(following, away)
    return {queue: Bounds(max(0, offset), following[queue]) for queue, offset in first.items()}


def positions(
    cluster: Cluster, edge: Edge, bounds: dict[MessageQueue, Bounds], *, fail_on_data_loss: bool
) -> dict[MessageQueue, int]:
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
