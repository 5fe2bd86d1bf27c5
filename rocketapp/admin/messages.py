"""Reads stored messages outside of any group, without changing offsets, and finds them by id or key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial

from msgspec.structs import replace

from rocketapp.admin.cluster import AdminCluster, at_once
from rocketapp.client.calls import messages, offsets, pull
from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import ALL_TAGS
from rocketapp.transport.stream import split_address
from rocketapp.wire.layout import decode_record
from rocketapp.wire.message_id import parse_offset_id
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.messages import QueryRequest
from rocketapp.wire.requests.pull import FLAG_SUBSCRIPTION, PullRequest

GROUP = "TOOLS_CONSUMER"
"""RocketMQ's own group for tools: every broker knows it, and nothing of it is stored."""
MOST_MESSAGES = 32
"""Of one pull; brokers give no more."""
PULL_TIMEOUT = 15.0


async def limits(cluster: AdminCluster, queues: list[MessageQueue]) -> dict[MessageQueue, range]:
    """The offsets that each queue holds now."""
    first = await cluster.for_queues(queues, offsets.min_offset)
    end = await cluster.for_queues(queues, offsets.max_offset)
    return {queue: range(max(first[queue], 0), max(end[queue], first[queue], 0)) for queue in queues}


async def at_time(cluster: AdminCluster, queues: Iterable[MessageQueue], timestamp: float) -> dict[MessageQueue, int]:
    """For each queue the first offset stored at this time (seconds since 1970) or later."""
    return await cluster.for_queues(queues, lambda to, queue, timeout: offsets.search(to, queue, timestamp, timeout))


async def read(cluster: AdminCluster, queue: MessageQueue, begin: int, end: int) -> AsyncIterator[list[Message]]:
    """The messages of a queue from `begin` to before `end`, in batches. Deleted ones are passed over.

    Raises BrokerError when the queue may not be read.
    """
    while begin < end:
        request = PullRequest(
            group=GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=begin,
            max_messages=min(MOST_MESSAGES, end - begin),
            sys_flag=FLAG_SUBSCRIPTION,
            expression=ALL_TAGS,
            broker_name=queue.broker_name,
        )
        connection = await cluster.connection(queue.broker_name)
        result = pull.read(await pull.start(connection, request, PULL_TIMEOUT), connection.peer)
        messages = [message for message in decode_records(result.body, queue) if begin <= message.offset < end]
        if messages:
            yield messages
        following = max(result.next_offset, messages[-1].offset + 1 if messages else begin)
        if following <= begin:
            return
        begin = following


async def newest(cluster: AdminCluster, held: Mapping[MessageQueue, range], most: int) -> list[Message]:
    """The newest messages of these queues, newest first."""
    last = {queue: range(max(there.start, there.stop - most), there.stop) for queue, there in held.items()}
    return (await _in_order(cluster, last))[::-1][:most]


async def stored_since(
    cluster: AdminCluster, held: Mapping[MessageQueue, range], timestamp: float, most: int
) -> list[Message]:
    """The first messages stored at this time (seconds since 1970) or later, oldest first."""
    begins = await at_time(cluster, held, timestamp)
    first = {queue: range(begin, min(begin + most, held[queue].stop)) for queue, begin in begins.items()}
    return (await _in_order(cluster, first))[:most]


async def _in_order(cluster: AdminCluster, wanted: Mapping[MessageQueue, range]) -> list[Message]:
    """The messages at these offsets, oldest first."""
    found: list[Message] = []
    for queue, offsets_of_it in wanted.items():
        async for batch in read(cluster, queue, offsets_of_it.start, offsets_of_it.stop):
            found += batch
    return sorted(found, key=lambda one: (one.stored_ms, one.offset))


async def find_by_id(cluster: AdminCluster, message_id: str, *, topic: str | None = None) -> list[Message]:
    """Every stored copy: for a broker's id the one at its place, for a producer's id those in `topic`, or in any topic.

    Retries and dead letters are copies.
    """
    placed = await _at_place(cluster, message_id)
    if placed is not None:
        return [placed]
    question = QueryRequest("", message_id, unique=True)
    return await _look_up(cluster, topic, question, lambda message: message.message_id == message_id)


async def find_by_key(cluster: AdminCluster, key: str, *, topic: str | None = None) -> list[Message]:
    """The messages with this key in `topic`, or in any topic, oldest first."""
    return await _look_up(cluster, topic, QueryRequest("", key), lambda message: key in message.keys)


async def _at_place(cluster: AdminCluster, message_id: str) -> Message | None:
    """The message with this broker's id. Only known brokers are asked, because a producer's id looks the same."""
    try:
        _, port, physical_offset = parse_offset_id(message_id)
    except ProtocolError:
        return None
    if physical_offset < 0:
        return None

    among = [name for name, address in cluster.masters.items() if split_address(address)[1] == port]
    for name, body in (
        await cluster.from_reachable(lambda to, timeout: messages.view(to, physical_offset, timeout), among=among)
    ).items():
        found = _decoded(body, name, decode_record(body).topic) if body else []
        if found and found[0].offset_message_id == message_id.upper():
            return found[0]
    return None


async def _look_up(
    cluster: AdminCluster, topic: str | None, question: QueryRequest, wanted: Callable[[Message], bool]
) -> list[Message]:
    topics = [topic] if topic is not None else await cluster.topics()
    found = await at_once(partial(_query, cluster, question), topics)
    copies = {(message.queue, message.offset): message for some in found for message in some if wanted(message)}
    return sorted(copies.values(), key=lambda message: message.stored_ms)


async def _query(cluster: AdminCluster, question: QueryRequest, topic: str) -> list[Message]:
    asked = replace(question, topic=topic)
    answers = await cluster.from_reachable(lambda to, timeout: messages.query(to, asked, timeout))
    return [message for name, body in answers.items() for message in _decoded(body, name, topic)]


def _decoded(body: bytes, broker: str, topic: str) -> list[Message]:
    """The messages of an answer, each with its queue."""
    found = decode_records(body, None)
    for message in found:
        message.queue = MessageQueue(topic, broker, message.queue_id)
    return found
