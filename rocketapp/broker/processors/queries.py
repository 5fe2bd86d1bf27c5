"""Messages by their ids and keys.

Code QUERY_MESSAGE 12 (Java: QueryMessageProcessor). The index knows hashes: each message that it leads to is compared.
"""

from __future__ import annotations

import asyncio
from itertools import islice

from rocketapp.broker.core import Core
from rocketapp.broker.indexing import Indexing
from rocketapp.broker.store.key_index import KeyIndex
from rocketapp.errors import BrokerError
from rocketapp.transport.answers import answers, on_topic
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.messages import QueryRequest

MOST_FOUND, MOST_FOUND_BYTES = 64, 8_388_608
"""Most messages of an answer; clients end a connection that brings a frame of more than 16 MiB."""
_MOST_READ = 256
"""Records that are read for a question. Those of another key are rare, unless somebody chose them by their hashes."""
_AT_ONCE = 8
"""Records that are read in one turn of the loop, some 0.3 ms."""


class QueryProcessor:
    """Finds messages by a key or by their unique id."""

    def __init__(self, core: Core, index: KeyIndex, indexing: Indexing) -> None:
        self._core, self._index, self._indexing = core, index, indexing

    @answers(RequestCode.QUERY_MESSAGE, needs=(on_topic("Sub", "Get"),))
    async def query(self, connection: Connection, command: Command) -> Command:
        """The newest messages with the key, oldest first, after the index is up to date."""
        request = QueryRequest.from_fields(command.fields)
        async with self._indexing.asked():
            found = sorted(await self._find(request), key=lambda pair: pair[0].physical_offset)
        if not found:
            raise BrokerError(ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct")
        newest = found[-1][0]
        fields = {
            "indexLastUpdateTimestamp": str(newest.stored_ms),
            "indexLastUpdatePhyoffset": str(newest.physical_offset),
        }
        body = b"".join(record for _, record in found)
        return Command.response(command, ResponseCode.SUCCESS, fields=fields, body=body)

    async def _find(self, request: QueryRequest) -> list[tuple[Message, bytes]]:
        """The newest messages with the key, and their records: as many as were asked for and fit, at least one.

        They are read in turns of the loop that leave time to others.
        """
        found: list[tuple[Message, bytes]] = []
        size, most = 0, max(1, min(request.most, MOST_FOUND))
        leads = self._index.find(request.topic, request.key, request.begin_ms, request.end_ms)
        for number, physical in enumerate(dict.fromkeys(islice(leads, _MOST_READ)), 1):
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
            record = self._core.store.record_at(physical)
            message = None if record is None else decode_records(record, None)[0]
            if record is None or message is None or not _is_wanted(message, request):
                continue
            size += len(record)
            if found and size > MOST_FOUND_BYTES:
                break
            found.append((message, record))
            if len(found) == most:
                break
        return found


def _is_wanted(message: Message, request: QueryRequest) -> bool:
    if message.topic != request.topic or not request.begin_ms <= message.stored_ms <= request.end_ms:
        return False
    return message.message_id == request.key if request.unique else request.key in message.keys
