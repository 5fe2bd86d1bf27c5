"""Splits many messages into batches: which messages share a request, and in which order.

The batches of one sequence are sent one after the other, so messages for the same queue keep their order. Sequences are
sent concurrently. A message that cannot be in a batch is sent by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import is_retry_topic
from rocketapp.model.outgoing import Outgoing
from rocketapp.producer.selection import has_wish, wished_queue
from rocketapp.wire.batch import ITEM_BYTES

LEAST_IN_SEQUENCE = 32
"""Messages without a wished queue are spread over the queues in runs of at least this length."""
MOST_IN_BATCH = 1024
"""The answer to a batch lists an id per message: this keeps it small."""


class PreparedMessage(NamedTuple):
    """An encoded message of a batch, and the index of its result."""

    number: int
    """Its place among the messages of the call."""
    message_id: str
    body: bytes
    properties: bytes

    @property
    def size(self) -> int:
        return ITEM_BYTES + len(self.body) + len(self.properties)


@dataclass(frozen=True, slots=True)
class BatchSequence:
    """Batches that are sent in this order to one queue; `queue` None: to any queue of the topic."""

    topic: str
    queue: MessageQueue | None
    batches: list[list[PreparedMessage]] = field(default_factory=list)


def may_share(message: Outgoing) -> bool:
    """Whether the message may be in a batch: brokers neither delay, hold back nor answer messages inside one."""
    return not (message.delay_level or message.delay or message.half or message.marks or is_retry_topic(message.topic))


def batch_sequences(
    topic: str, messages: Sequence[tuple[Outgoing, PreparedMessage]], queues: Sequence[MessageQueue], most_bytes: int
) -> list[BatchSequence]:
    """Split messages of one topic into batches of at most `most_bytes`, unless one message alone is larger."""
    wished: dict[MessageQueue, list[PreparedMessage]] = {}
    free: list[PreparedMessage] = []
    for message, item in messages:
        if has_wish(message):
            wished.setdefault(wished_queue(message, queues), []).append(item)
        else:
            free.append(item)
    sequences = [BatchSequence(topic, queue, _batches(items, most_bytes)) for queue, items in wished.items()]
    if free:
        runs = min(len(queues), -(-len(free) // LEAST_IN_SEQUENCE))
        length = -(-len(free) // runs)
        sequences += [
            BatchSequence(topic, None, _batches(free[at : at + length], most_bytes))
            for at in range(0, len(free), length)
        ]
    return sequences


def _batches(items: Sequence[PreparedMessage], most_bytes: int) -> list[list[PreparedMessage]]:
    batches: list[list[PreparedMessage]] = []
    room = 0
    for item in items:
        if not batches or item.size > room or len(batches[-1]) == MOST_IN_BATCH:
            batches.append([])
            room = most_bytes
        batches[-1].append(item)
        room -= item.size
    return batches
