"""Queues and positions in them, and their one text form.

Positions are the offsets that are read next. Spark compares them as JSON text, so there is one canonical form:
`{"t": {topic: {broker: {queue: next}}}, "v": 1}` with sorted keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark_rocketmq.problems import OptionError

VERSION = 1


class Queue(NamedTuple):
    """A queue of a topic on one broker. Its text is `topic@broker:queue`."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker}:{self.queue_id}"


Positions = Mapping[Queue, int]


def to_json(positions: Positions) -> dict[str, Any]:
    """The canonical form, for Spark to keep."""
    return {"t": tree(positions), "v": VERSION}


def tree(values: Mapping[Queue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Values by topic, broker and queue, sorted by name and number."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(values):
        found.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = values[queue]
    return found


def from_json(data: Any) -> dict[Queue, int]:
    """Read the canonical form. Raises OptionError when it is something else."""
    if not isinstance(data, dict) or data.get("v") != VERSION:
        raise OptionError(f"offsets of another version: this one reads version {VERSION}")
    return from_tree(data.get("t"), "offsets")


def from_tree(data: Any, place: str) -> dict[Queue, int]:
    """Read values by topic, broker and queue. Raises OptionError, which names `place`."""
    found = {}
    try:
        for topic, brokers in data.items():
            for broker, queues in brokers.items():
                for queue_id, value in queues.items():
                    if not isinstance(value, int) or isinstance(value, bool):
                        raise OptionError(f"{place}: {topic}@{broker}:{queue_id} is {value!r}, give a whole number")
                    found[Queue(topic, broker, int(queue_id))] = value
    except (AttributeError, TypeError, ValueError) as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f'{place}: give {{"topic": {{"broker": {{"queue": number}}}}}} as JSON') from None
    return found
