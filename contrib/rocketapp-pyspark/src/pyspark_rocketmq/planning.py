"""Which ranges of which queues are read, and by how many tasks. Pure.

Positions are the offsets that are read next, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pyspark_rocketmq.offsets import Positions
from pyspark_rocketmq.options import EARLIEST, LATEST, Edge
from pyspark_rocketmq.problems import DataLossError, OptionError
from rocketapp import MessageQueue


class Range(NamedTuple):
    """The messages `start <= offset < end` of a queue."""

    queue: MessageQueue
    start: int
    end: int


class Bounds(NamedTuple):
    """What a queue holds: the offset of its first message, and that of its next one."""

    first: int
    next: int


def times_of(edge: Edge, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """The queues whose place the edge gives as a time, for the broker to search."""
    found = {}
    for queue in queues:
        ms = edge.times.get(queue, edge.time)
        if ms is not None:
            found[queue] = ms
    return found


def resolve(
    edge: Edge,
    bounds: Mapping[MessageQueue, Bounds],
    found_at: Mapping[MessageQueue, int],
    *,
    fail_on_data_loss: bool = True,
) -> dict[MessageQueue, int]:
    """The position that the edge means in every queue. `found_at`: what brokers found for times.

    Raises OptionError for a queue that is not read and for a time without a message, and DataLossError for an offset
    that the queue does not have.
    """
    unknown = sorted({*edge.offsets, *edge.times} - set(bounds))
    if unknown:
        raise OptionError(f"the options name {unknown[0]}, which is not among the queues that are read")
    return {
        queue: _position(edge, queue, bounds[queue], found_at.get(queue), fail_on_data_loss) for queue in sorted(bounds)
    }


def _position(edge: Edge, queue: MessageQueue, bounds: Bounds, found: int | None, fail_on_data_loss: bool) -> int:
    if found is not None:
        if edge.fail_on_miss and found >= bounds.next > bounds.first:
            raise OptionError(
                f"{queue} has no message at or after the starting time: give an earlier one, or "
                "startingOffsetsByTimestampStrategy=latest"
            )
        return min(max(found, bounds.first), bounds.next)
    place = edge.offsets.get(queue, edge.default)
    if place in (EARLIEST, LATEST):
        return bounds.first if place == EARLIEST else bounds.next
    inside = min(max(place, bounds.first), bounds.next)
    if fail_on_data_loss and inside != place:
        raise DataLossError(str(queue), f"offset {place} is asked for, it holds {bounds.first} to {bounds.next}")
    return inside


def ranges(start: Positions, end: Positions) -> list[Range]:
    """What lies between two positions, for the queues that are in both, sorted. Empty ranges are left out."""
    return [
        Range(queue, start[queue], end[queue]) for queue in sorted(start) if start[queue] < end.get(queue, start[queue])
    ]


def split(whole: Sequence[Range], *, min_parts: int | None, max_records: int | None) -> list[Range]:
    """Cut large ranges, so that there are about `min_parts` of them and none has more than `max_records`.

    The same ranges are always cut at the same offsets: a task that is run again reads the same rows.
    """
    total = sum(end - start for _, start, end in whole)
    wanted = min_parts or 0
    found = []
    for queue, start, end in whole:
        size = end - start
        parts = max(1, -(-size // max_records) if max_records else 1, round(size / total * wanted) if total else 1)
        parts = min(parts, size)
        cuts = [start + size * part // parts for part in range(parts + 1)]
        found += [Range(queue, low, high) for low, high in pairwise(cuts)]
    return found


def limited(start: Positions, end: Positions, most: int) -> dict[MessageQueue, int]:
    """An end with at most `most` offsets after `start`, shared out by what waits in each queue.

    Every queue with something to read gets at least one offset. When there are fewer offsets than such queues, they
    take turns: the first one moves on with the positions.
    """
    backlog = {queue: end[queue] - start[queue] for queue in sorted(end) if end[queue] > start.get(queue, end[queue])}
    total = sum(backlog.values())
    if total <= most:
        return dict(end)
    queues = list(backlog)
    first = sum(start.values()) % len(queues)
    turns = queues[first:] + queues[:first]
    shares = dict.fromkeys(turns[:most], 1)
    spare = most - len(shares)
    if spare:
        beyond = total - len(queues)
        for queue in queues:
            shares[queue] += (backlog[queue] - 1) * spare // beyond
        left = most - sum(shares.values())
        for queue in [queue for queue in turns if shares[queue] < backlog[queue]][:left]:
            shares[queue] += 1
    return {queue: start[queue] + shares.get(queue, 0) if queue in backlog else end[queue] for queue in end}


def within_bytes(
    start: Positions, end: Positions, most: int, sizes: Mapping[MessageQueue, float]
) -> dict[MessageQueue, int]:
    """An end that is about `most` bytes after `start`. `sizes`: by queue the mean bytes of an offset."""
    backlog = {queue: end[queue] - start[queue] for queue in end if end[queue] > start.get(queue, end[queue])}
    total = sum(size * sizes.get(queue, 0.0) for queue, size in backlog.items())
    if total <= most:
        return dict(end)
    return limited(start, end, max(1, int(sum(backlog.values()) * most / total)))


def advance(
    start: Positions, bounds: Mapping[MessageQueue, Bounds], lost: Mapping[MessageQueue, DataLossError]
) -> tuple[dict[MessageQueue, int], list[DataLossError]]:
    """The newest end of a stream that stands at `start`, when these queues answer now, and what is wrong on the way.

    A queue that does not answer keeps its position. A new queue enters at its first message and is read from the next
    batch on, so that its start is kept with the positions; so does one that is not the queue it was. `lost`: queues
    that their broker denies, and those that are not what they were.
    """
    end, problems = dict(start), [*lost.values()]
    for queue, (first, following) in bounds.items():
        if queue not in start or queue in lost:
            end[queue] = first
            continue
        position, end[queue] = start[queue], following
        if following < position:
            problem = f"the queue ends at {following}, the stream stands at {position}"
            problems.append(DataLossError(str(queue), problem))
        elif position < first:
            problem = (
                f"the queue begins at {first}, the stream stands at {position}: {first - position} are deleted unread"
            )
            problems.append(DataLossError(str(queue), problem))
    return end, problems


def backlog_of(start: Positions, end: Positions) -> int:
    """How many offsets lie between two positions."""
    return sum(max(0, end[queue] - start.get(queue, end[queue])) for queue in end)


def capped(start: Positions, end: Positions, target: Positions) -> dict[MessageQueue, int]:
    """An end that goes no further than a target that was fixed before; queues that the target lacks do not move."""
    found = {queue: min(end[queue], target.get(queue, position)) for queue, position in start.items()}
    return found | {queue: end[queue] for queue in end if queue not in start and queue in target}
