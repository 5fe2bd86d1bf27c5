"""The order of queues and members, and the text of a queue: equal in all members, since each computes its own share.

Texts are sorted by UTF-16 code units, as Java compares strings.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketapp.model.message_queue import MessageQueue


def java_order(text: str) -> bytes:
    """A sort key that orders as Java's String.compareTo does."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_members(members: Iterable[str]) -> list[str]:
    """Members in the order that every member uses. A client that reconnected may be listed twice; it counts once."""
    return sorted(set(members), key=java_order)


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Queues in the order that every member uses: by topic, broker name and id."""
    return sorted(queues, key=lambda queue: (java_order(queue.topic), java_order(queue.broker_name), queue.queue_id))


def java_text(queue: MessageQueue) -> str:
    """A queue as Java's MessageQueue.toString() writes it; `CONSISTENT_HASH` hashes this text."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
