"""Messages by their ids and keys.

Code QUERY_MESSAGE 12 (Java: QueryMessageProcessor). This broker keeps no index: it looks through the newest messages of
the topic, which is quick enough for the few that an embedded broker holds.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketapp.broker.core import Core
from rocketapp.broker.request_dispatch import Process
from rocketapp.errors import BrokerError
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.messages import QueryRequest

MOST_LOOKED_AT, MOST_LOOKED_AT_BYTES = 20_000, 33_554_432
"""Newest messages of a topic that are looked at, over all its queues: other requests wait meanwhile, some 50 ms."""
MOST_FOUND, MOST_FOUND_BYTES = 64, 8_388_608
"""Most messages of an answer; clients end a connection that brings a frame of more than 16 MiB."""
_READ_MESSAGES, _READ_BYTES = 32, 262_144


class QueryProcessor:
    """Finds messages by a key or by their unique id."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def table(self) -> dict[int, Process]:
        return {RequestCode.QUERY_MESSAGE: self.query}

    def query(self, connection: Connection, command: Command) -> Command:
        """The newest messages with the key, the oldest of them first."""
        request = QueryRequest.from_fields(command.fields)
        found = [pair for pair in self._look(request) if _is_wanted(pair[0], request)]
        found.sort(key=lambda pair: (pair[0].stored_ms, pair[0].physical_offset))
        chosen = _newest(found[-max(1, min(request.most, MOST_FOUND)) :])
        if not chosen:
            raise BrokerError(ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct")
        body = b"".join(record for _, record in chosen)
        newest = chosen[-1][0]
        fields = {
            "indexLastUpdateTimestamp": str(newest.stored_ms),
            "indexLastUpdatePhyoffset": str(newest.physical_offset),
        }
        return Command.response(command, ResponseCode.SUCCESS, fields=fields, body=body)

    def _look(self, request: QueryRequest) -> Iterator[tuple[Message, bytes]]:
        """Each message of every read in which the key occurs, with its record."""
        store, key = self._core.store, request.key.encode()
        queues = store.queue_ids(request.topic)
        for queue_id in queues:
            stop = store.max_offset(request.topic, queue_id)
            first = max(store.min_offset(request.topic, queue_id), stop - MOST_LOOKED_AT // len(queues), 0)
            room = MOST_LOOKED_AT_BYTES // len(queues)
            while first < stop and room > 0:
                at = begin = max(stop - _READ_MESSAGES, first)
                while at < stop:
                    read = store.read(request.topic, queue_id, at, max_messages=stop - at, max_bytes=_READ_BYTES)
                    room -= len(read.body)
                    if key in read.body:
                        yield from _records(read.body)
                    at = max(read.next_offset, at + 1)
                stop = begin


def _records(body: bytes) -> Iterator[tuple[Message, bytes]]:
    begin = 0
    for message in decode_records(body, None):
        yield message, body[begin : begin + message.size]
        begin += message.size


def _newest(found: list[tuple[Message, bytes]]) -> list[tuple[Message, bytes]]:
    """As many of the last ones as an answer has room for, at least one."""
    size = count = 0
    for _, record in reversed(found):
        size += len(record)
        if count and size > MOST_FOUND_BYTES:
            break
        count += 1
    return found[len(found) - count :]


def _is_wanted(message: Message, request: QueryRequest) -> bool:
    if not request.begin_ms <= message.stored_ms <= request.end_ms:
        return False
    return message.message_id == request.key if request.unique else request.key in message.keys
