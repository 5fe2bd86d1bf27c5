"""Queues, positions in them, and the last record that was read of each: what a checkpoint keeps.

Positions are the offsets that are read next. Spark compares them as JSON text, so there is one canonical form, with
sorted keys: `{"t": {topic: {broker: {queue: place}}}, "v": 2}`. A place is `next`, or `[next, offset, stored, key]`
when the last record is known. Version 1 had `next` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from pyspark_rocketmq.problems import OptionError
from rocketapp import MessageQueue
from rocketapp.state.queue_identity import Landmark
from rocketapp_lake.positions import flat, nested

T = TypeVar("T")
VERSION = 2


Positions = Mapping[MessageQueue, int]


class Offsets(NamedTuple):
    """What a checkpoint keeps."""

    next: dict[MessageQueue, int]
    last: dict[MessageQueue, Landmark]
    """A record below the position, the last one where the broker had it. A queue that was never read has none."""


def to_json(positions: Positions, last: Mapping[MessageQueue, Landmark] | None = None) -> dict[str, Any]:
    """The canonical form, for Spark to keep."""
    known = last or {}
    return {
        "t": nested({queue: [at, *known[queue]] if queue in known else at for queue, at in positions.items()}),
        "v": VERSION,
    }


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


def from_tree(data: Any, place: str, read: Callable[[Any], T]) -> dict[MessageQueue, T]:
    """Read values by topic, broker and queue. Raises OptionError, which names `place`."""
    try:
        return flat(data, read)
    except (AttributeError, TypeError, ValueError):
        raise OptionError(f'{place}: give {{"topic": {{"broker": {{"queue": number}}}}}} as JSON') from None
