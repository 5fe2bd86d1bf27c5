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
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.layout import Record
from rocketapp.wire.requests.recall import RecallHandle, RecallRequest
from rocketapp.wire.requests.send import REGION


class RecallProcessor:
    """Stores recalls of delayed messages."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @answers(RequestCode.RECALL_MESSAGE, needs=(on_topic("Pub"),), slave=REFUSES, reads=RecallRequest)
    def recall(self, request: RecallRequest) -> Answer:
        core, now_ms = self._core, self._core.now_ms()
        if core.topics.get(request.topic) is None:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{request.topic}] not exist")
        try:
            handle = RecallHandle.decode(request.handle)
        except ProtocolError as error:
            _refuse(str(error))
        if handle.topic != request.topic:
            _refuse("topic not match")
        if handle.broker_name != core.config.name:
            _refuse("broker service not available")
        if not 0 < handle.due_ms - now_ms < LONGEST_MS:
            _refuse("timestamp invalid")
        properties = {
            names.TAGS: "_RECALL_TAG_",
            names.TIMER_DEL_UNIQKEY: handle.message_id,
            names.UNIQ_KEY: handle.message_id,
            names.TIMER_DELIVER_MS: str(handle.due_ms),
            names.PGROUP: request.group or None,
        }
        record = Record(handle.topic, b"0", names.encode(properties), born_ms=now_ms)
        core.timers.schedule(record, slot_ms(handle.due_ms, now_ms))
        core.traffic.put += 1
        return {"msgId": handle.message_id, "MSG_REGION": REGION}


def _refuse(problem: str) -> NoReturn:
    raise BrokerError(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {problem}")
