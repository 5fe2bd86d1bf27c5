"""Recalls: take back a message that waits for its time.

Code RECALL_MESSAGE 370 (Java: RecallMessageProcessor). A recall is a record of its own behind the message, due in the
same second. Whether the message still waits is not looked at, as in Apache RocketMQ: its second is yet to come.
"""

from __future__ import annotations

from typing import NoReturn

from rocketapp.broker.core import Core
from rocketapp.broker.timers import LONGEST_MS, slot_ms
from rocketapp.errors import BrokerError, ProtocolError
from rocketapp.transport.answers import REFUSES, Answer, answers, on_topic
from rocketapp.transport.connection import Connection
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import Record
from rocketapp.wire.requests.recall import RecallHandle, RecallRequest
from rocketapp.wire.requests.send import REGION


class RecallProcessor:
    """Stores what takes messages back."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @answers(RequestCode.RECALL_MESSAGE, needs=(on_topic("Pub"),), slave=REFUSES)
    def recall(self, connection: Connection, command: Command) -> Answer:
        core = self._core
        request = RecallRequest.from_fields(command.fields)
        if core.topics.get(request.topic) is None:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{request.topic}] not exist")
        try:
            handle = RecallHandle.decode(request.handle)
        except ProtocolError as error:
            raise BrokerError(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {error}") from None
        if handle.topic != request.topic:
            _refuse("topic not match")
        if handle.broker_name != core.config.name:
            _refuse("broker service not available")
        now_ms = core.now_ms()
        if not 0 < handle.due_ms - now_ms < LONGEST_MS:
            _refuse("timestamp invalid")
        core.timers.schedule(self._record(connection, request, handle, now_ms), slot_ms(handle.due_ms, now_ms))
        core.traffic.put += 1
        return {"msgId": handle.message_id, "MSG_REGION": REGION}

    def _record(self, connection: Connection, request: RecallRequest, handle: RecallHandle, now_ms: int) -> Record:
        born, here, flags = self._core.hosts(connection)
        properties = {
            names.TAGS: "_RECALL_TAG_",
            names.TIMER_DEL_UNIQKEY: handle.message_id,
            names.UNIQ_KEY: handle.message_id,
            names.TIMER_DELIVER_MS: str(handle.due_ms),
            names.PGROUP: request.group or None,
        }
        return Record(
            topic=handle.topic,
            body=b"0",
            raw_properties=names.encode(properties),
            sys_flag=flags,
            born_ms=now_ms,
            born_host=born.raw,
            born_port=born.port,
            store_host=here.raw,
            store_port=here.port,
        )


def _refuse(problem: str) -> NoReturn:
    raise BrokerError(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {problem}")
