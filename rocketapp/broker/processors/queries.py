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

MOST_LOOKED_AT = 20_000
"""Newest messages of a topic that are looked at, over all its queues: other requests wait meanwhile, some 50 ms."""
MOST_FOUND = 64
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
        found.sort(key=lambda pair: pair[0].stored_ms)
        chosen = found[-max(1, min(request.most, MOST_FOUND)) :]
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
            end = store.max_offset(request.topic, queue_id)
            at = max(store.min_offset(request.topic, queue_id), end - MOST_LOOKED_AT // len(queues), 0)
            while at < end:
                read = store.read(request.topic, queue_id, at, max_messages=_READ_MESSAGES, max_bytes=_READ_BYTES)
                if key in read.body:
                    begin = 0
                    for message in decode_records(read.body, None):
                        yield message, read.body[begin : begin + message.size]
                        begin += message.size
                if read.next_offset <= at:
                    break
                at = read.next_offset


def _is_wanted(message: Message, request: QueryRequest) -> bool:
    if not request.begin_ms <= message.stored_ms <= request.end_ms:
        return False
    return message.message_id == request.key if request.unique else request.key in message.keys
