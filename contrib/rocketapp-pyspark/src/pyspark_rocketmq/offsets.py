"""Queues, positions in them, and the last record that was read of each: what a checkpoint keeps.

Positions are the offsets that are read next. Spark compares them as JSON text, so there is one canonical form, with
sorted keys: `{"t": {topic: {broker: {queue: place}}}, "v": 2}`. A place is `next`, or `[next, offset, stored, key]`
when the last record is known. Version 1 had `next` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from pyspark_rocketmq.problems import OptionError
from rocketapp.state.queue_identity import Landmark

T = TypeVar("T")
VERSION = 2


class Queue(NamedTuple):
    """A queue of a topic on one broker. Its text is `topic@broker:queue`."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker}:{self.queue_id}"


Positions = Mapping[Queue, int]


class Offsets(NamedTuple):
    """What a checkpoint keeps."""

    next: dict[Queue, int]
    last: dict[Queue, Landmark]
    """A record below the position, the last one where the broker had it. A queue that was never read has none."""


def to_json(positions: Positions, last: Mapping[Queue, Landmark] | None = None) -> dict[str, Any]:
    """The canonical form, for Spark to keep."""
    known, tree = last or {}, dict[str, dict[str, dict[str, Any]]]()
    for queue in sorted(positions):
        at = positions[queue]
        place = [at, *known[queue]] if queue in known else at
        tree.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = place
    return {"t": tree, "v": VERSION}


def from_json(data: Any) -> Offsets:
    """Read the canonical form of this version or an older one. Raises OptionError when it is something else."""
    if not isinstance(data, dict) or data.get("v") not in (1, VERSION):
        raise OptionError(f"offsets of another version: this one reads versions 1 to {VERSION}")
    places = from_tree(data.get("t"), "offsets", _place)
    return Offsets(
        {queue: place[0] for queue, place in places.items()},
        {queue: place[1] for queue, place in places.items() if place[1] is not None},
    )


def _place(value: Any) -> tuple[int, Landmark | None]:
    if not isinstance(value, list):
        return whole(value), None
    following, offset, stored_ms, key = value
    return whole(following), Landmark(whole(offset), whole(stored_ms), str(key))


def whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(value)
    return value


def from_tree(data: Any, place: str, read: Callable[[Any], T]) -> dict[Queue, T]:
    """Read values by topic, broker and queue. Raises OptionError, which names `place`."""
    found = {}
    try:
        for topic, brokers in data.items():
            for broker, queues in brokers.items():
                for queue_id, value in queues.items():
                    found[Queue(topic, broker, int(queue_id))] = read(value)
    except (AttributeError, TypeError, ValueError):
        raise OptionError(f'{place}: give {{"topic": {{"broker": {{"queue": number}}}}}} as JSON') from None
    return found
