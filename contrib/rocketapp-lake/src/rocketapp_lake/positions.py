"""Where a sink stands in its queues. Values alone: no clock, no file, no task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rocketapp import MessageQueue
from rocketapp.state.queue_identity import Identity, Landmark, recognise

if TYPE_CHECKING:
    # Executors of Spark use this module, and need no engine.
    from rocketapp.plugin import QueueStart, StoredRecords

T = TypeVar("T")


class Span(NamedTuple):
    """Offsets of one queue: from `start` up to `end`, without it. Offsets without a row are in it as well."""

    start: int
    end: int


Vector = Mapping[MessageQueue, int]
"""The next offset of each queue: everything below is in the table."""
Marks = Mapping[MessageQueue, Landmark]
"""The last record that was read of a queue, with a row or without: by it the queue is known again."""
Offsets = Mapping[MessageQueue, Sequence[int]]
"""Single messages of queues."""


def last_of(records: StoredRecords) -> Landmark:
    last = records.since(records.end - 1)
    assert last is not None
    (message,) = last.messages()
    return Landmark(message.offset, message.stored_ms, message.message_id)


def differing(spans: Mapping[MessageQueue, Span], vector: Vector) -> dict[MessageQueue, int]:
    """The queues whose span does not begin where the table ends, and where that is.

    Below it rows are in the table already; above it those between would be lost. A queue that the table has never seen
    may begin anywhere.
    """
    ends = {queue: vector.get(queue, span.start) for queue, span in spans.items()}
    return {queue: end for queue, end in ends.items() if end != spans[queue].start}


def advanced(vector: Vector, spans: Mapping[MessageQueue, Span]) -> dict[MessageQueue, int]:
    """The vector when these spans are in the table. It never steps back."""
    ends = {queue: max(span.end, vector.get(queue, span.end)) for queue, span in spans.items()}
    return {**vector, **ends}


async def identified(known: Landmark, start: QueueStart) -> Identity:
    """Whether the queue that begins is the one whose record is known."""
    found = await start.record_at(max(known.offset, start.min_offset))
    return recognise(known, None if found is None else Landmark(*found), end=start.max_offset)


def lost(queue: MessageQueue, position: int, start: QueueStart) -> str:
    """Why the broker cannot go on where the table ends, by its offsets; empty when it can."""
    has = f"{queue}: the table has it up to #{position - 1}, and the broker"
    if position > start.max_offset:
        fewer = position - start.max_offset
        return f"{has} only up to #{start.max_offset - 1}, {fewer} fewer: the topic was created anew, or lost messages."
    if position < start.min_offset:
        return f"{has} from #{start.min_offset} on: the {start.min_offset - position} messages between have expired."
    return ""


def nested(by_queue: Mapping[MessageQueue, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """By topic, broker and queue, for JSON."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for queue, value in sorted(by_queue.items()):
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = value
    return found


def flat(tree: Mapping[str, Mapping[str, Mapping[str, Any]]], read: Callable[[Any], T]) -> dict[MessageQueue, T]:
    """The reverse. Raises AttributeError, TypeError or ValueError for what is nothing of the kind."""
    return {
        MessageQueue(topic, broker, int(queue)): read(value)
        for topic, brokers in tree.items()
        for broker, queues in brokers.items()
        for queue, value in queues.items()
    }
