"""Find stored messages by their ids and keys, on every broker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rocketapp.admin.cluster import AdminCluster, at_once
from rocketapp.client.calls import messages
from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.transport.connection import Connection
from rocketapp.transport.stream import split_address
from rocketapp.wire.message_id import parse_offset_id
from rocketapp.wire.record import Message, decode_record, decode_records
from rocketapp.wire.requests.messages import QueryRequest


async def find_by_id(cluster: AdminCluster, message_id: str, *, topic: str | None = None) -> list[Message]:
    """Every stored copy: of a broker's id the one at its place, of a producer's id those in `topic`, or in any.

    Retries and dead letters are copies.
    """
    placed = await _at_place(cluster, message_id)
    if placed is not None:
        return [placed]
    question = QueryRequest("", message_id, unique=True)
    return await _look_up(cluster, topic, question, lambda message: message.message_id == message_id)


async def find_by_key(cluster: AdminCluster, key: str, *, topic: str | None = None) -> list[Message]:
    """The messages with this key in `topic`, or in any, the oldest first."""
    return await _look_up(cluster, topic, QueryRequest("", key), lambda message: key in message.keys)


async def _at_place(cluster: AdminCluster, message_id: str) -> Message | None:
    """The message with this broker's id. Only known brokers are asked: a producer's id looks the same."""
    try:
        _, port, physical_offset = parse_offset_id(message_id)
    except ProtocolError:
        return None
    if physical_offset < 0:
        return None

    async def ask(connection: Connection, timeout: float) -> bytes | None:
        return await messages.view(connection, physical_offset, timeout)

    among = [name for name, address in cluster.masters.items() if split_address(address)[1] == port]
    for name, body in (await cluster.from_reachable(ask, among=among)).items():
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
    async def ask(connection: Connection, timeout: float) -> bytes:
        return await messages.query(connection, question._replace(topic=topic), timeout)

    answers = await cluster.from_reachable(ask)
    return [message for name, body in answers.items() for message in _decoded(body, name, topic)]


def _decoded(body: bytes, broker: str, topic: str) -> list[Message]:
    """The records of an answer, each with the queue in which it lies."""
    found = decode_records(body, None)
    for message in found:
        message.queue = MessageQueue(topic, broker, message.queue_id)
    return found
