"""Refuses invalid messages before they are sent: Java's Validators, and the limits of the encoding."""

from __future__ import annotations

from math import inf

from rocketapp.model.names import DELAY_SECONDS, FORBIDDEN_TOPICS, topic_problem
from rocketapp.model.numbers import is_whole
from rocketapp.model.outgoing import Outgoing
from rocketapp.wire.properties import ENTRY_END, LONGEST, NAME_END

_RESERVED = """KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID
    ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY
    EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME TRAN_PREPARED_QUEUE_OFFSET TRANSACTION_CHECK_TIMES
    CHECK_IMMUNITY_TIME_IN_SECONDS INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME
    CLUSTER MSG_TYPE POP_CK POP_CK_OFFSET 1ST_POP_TIME INNER_NUM INNER_BASE DUP_INFO REDIRECT __transactionId__
    TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES
    TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL PROPERTY_FORWARD_QUEUE_ID INNER_MULTI_DISPATCH
    INNER_MULTI_QUEUE_OFFSET DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID
"""
RESERVED_PROPERTIES = frozenset(_RESERVED.split())
"""Names that RocketMQ gives a meaning (Java: MessageConst): users may not set them."""


def problem_of(message: Outgoing, max_message_bytes: float) -> str | None:
    """Why this message cannot be sent, or None when it can."""
    if message.topic in FORBIDDEN_TOPICS:
        return "sending to this system topic is forbidden"
    if problem := topic_problem(message.topic) or _body_problem(message.body, max_message_bytes):
        return problem
    if problem := _delay_problem(message):
        return problem
    if message.queue is not None and message.queue.topic != message.topic:
        return f"queue {message.queue} belongs to another topic"
    return _index_problem(message) or _properties_problem(message)


def _delay_problem(message: Outgoing) -> str | None:
    level = message.delay_level
    if level != 0 and not (is_whole(level) and 1 <= level <= len(DELAY_SECONDS)):
        return f"delay level {message.delay_level}: 1 to {len(DELAY_SECONDS)} are legal, and 0 for no delay"
    if not 0 <= message.delay < inf:
        return f"a delay of {message.delay:g} s: give seconds above 0, or 0 for none"
    if message.half and (level or message.delay):
        return "a message of a transaction cannot be delayed: it is held back until the commit"
    return None


def properties_size_problem(encoded: bytes) -> str | None:
    if len(encoded) > LONGEST:
        return f"properties of {len(encoded)} bytes, at most {LONGEST} are legal"
    return None


def _body_problem(body: bytes, most: float) -> str | None:
    if not body:
        return "the body is empty"
    if len(body) > most:
        return f"body of {len(body)} bytes, at most {most} are legal: see producer.max_message_bytes"
    return None


def _index_problem(message: Outgoing) -> str | None:
    if message.tag and _has_separator(message.tag):
        return f"tag {message.tag!r} holds a separator (0x01 or 0x02)"
    for number, key in enumerate(message.keys):
        if _has_separator(key):
            return f"key {number} {key!r} holds a separator (0x01 or 0x02)"
        if not key or " " in key:
            return f"key {key!r}: keys are joined by blanks, so none may be empty or hold one"
    return None


def _properties_problem(message: Outgoing) -> str | None:
    for name, value in message.properties.items():
        if name in RESERVED_PROPERTIES:
            return f"property {name!r} belongs to RocketMQ"
        if not name or not value:
            return f"property {name!r}: neither name nor value may be empty"
        if _has_separator(name) or _has_separator(value):
            return f"property {name!r} holds a separator (0x01 or 0x02)"
    return None


def _has_separator(text: str) -> bool:
    return NAME_END in text or ENTRY_END in text
