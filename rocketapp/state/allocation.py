"""Which queues a member gets, computed from the client ids of all members.

Every member computes this for itself, so all of them have to sort in the same way: by UTF-16
code units, as Java compares strings. Java: AllocateMessageQueueAveragely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def average(members: Sequence[str], me: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """The contiguous share of `me` in the sorted queues. The first members get one queue more each (`AVG`)."""
    if me not in members:
        return []
    index, (share, rest) = members.index(me), divmod(len(queues), len(members))
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (1 if index < rest else 0)])
