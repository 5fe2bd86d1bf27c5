"""Replies: stored, and pushed to the client that asked.

Codes SEND_REPLY_MESSAGE 324, SEND_REPLY_MESSAGE_V2 325, and to the client PUSH_REPLY_MESSAGE_TO_CLIENT 326 (Java:
ReplyMessageProcessor). The answer says whether the client has it. Nothing reads what is stored: it is a record of
replies whose client was away. Keys are enough to reply, so only the topic of replies takes what is stored here.
"""

from __future__ import annotations

import contextlib

from rocketapp.broker.core import Core
from rocketapp.broker.processors.send import SendProcessor
from rocketapp.errors import BrokerError, ProtocolError, StoreError, TransportError
from rocketapp.transport.answers import IS_BUSY, KEYS_ARE_ENOUGH, answers
from rocketapp.transport.connection import Connection
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.message_id import offset_id
from rocketapp.wire.requests.replies import PushReply, reply_topic
from rocketapp.wire.requests.send import SendRequest, SendResponse

TIMEOUT = 10.0
"""Seconds that a client may take to accept a reply."""


class ReplyProcessor:
    """Pushes replies to the client that asked, if it is connected here."""

    def __init__(self, core: Core, sends: SendProcessor) -> None:
        self._core, self._sends = core, sends

    @answers(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2, needs=KEYS_ARE_ENOUGH, slave=IS_BUSY)
    async def reply(self, connection: Connection, command: Command) -> SendResponse:
        """Answered when the client has it. A reply that cannot be stored is pushed nevertheless."""
        core, request = self._core, SendRequest.from_command(command)
        told = SendResponse("", request.queue_id, 0)
        if request.topic == reply_topic(core.config.cluster):
            with contextlib.suppress(StoreError, ProtocolError):
                told = self._store(connection, request, command.body)
        asker = names.decode(request.properties.encode()).get(names.REPLY_TO_CLIENT, "")
        channel = core.producers.channel_of(asker)
        if channel is None:
            problem = f"push reply message fail, channel of <{asker}> not found."
            raise BrokerError(ResponseCode.SYSTEM_ERROR, problem)
        push = PushReply(
            group=request.producer_group,
            topic=request.topic,
            queue_id=request.queue_id,
            sys_flag=request.sys_flag,
            born_ms=request.born_ms,
            born_host=connection.peer,
            store_host=core.address,
            stored_ms=core.now_ms(),
            flag=request.flag,
            properties=request.properties,
        )
        pushed = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push.to_fields(), command.body)

        try:
            taken = await channel.start_request(pushed, timeout=TIMEOUT)
            refusal = taken.remark if taken.code else None
        except TransportError as error:
            refusal = str(error)
        if refusal is not None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"push reply message to {asker} fail: {refusal}")
        return told

    def _store(self, connection: Connection, request: SendRequest, body: bytes) -> SendResponse:
        sends = self._sends
        topic, raw = sends.topic(request), request.properties.encode()
        queue_id = sends.queue_id(request, topic)
        record = sends.record(connection, request, body, raw, topic=topic.name, queue_id=queue_id)
        stored = self._core.store.append(record)
        message_id = offset_id(record.store_host, record.store_port, stored.physical)
        return SendResponse(message_id, queue_id, stored.queue_offset)
