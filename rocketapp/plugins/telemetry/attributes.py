"""What spans and metrics say of messages: OpenTelemetry's semantic conventions for messaging, with RocketMQ's own.

The names are those of schema 1.44.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rocketapp.plugin import Message, Outgoing, Sending, SendResult, Subscription
from rocketapp.plugins.figures import DESTINATION, GROUP, HANDLER, PARTITION

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
SYSTEM, OPERATION_NAME, OPERATION_TYPE = "messaging.system", "messaging.operation.name", "messaging.operation.type"
CLIENT_ID = "messaging.client.id"
MESSAGE_ID, BODY_SIZE, COUNT = "messaging.message.id", "messaging.message.body.size", "messaging.batch.message_count"
TAG, KEYS, TYPE = (f"messaging.rocketmq.message.{name}" for name in ("tag", "keys", "type"))
DELAY_LEVEL, ORDER_KEY = "messaging.rocketmq.message.delay_time_level", "messaging.rocketmq.message.group"
MODEL = "messaging.rocketmq.consumption_model"
ATTEMPT, OUTCOME = "rocketapp.attempt", "rocketapp.outcome"

Value = str | int | Sequence[str]


def of_subscription(subscription: Subscription, client_id: str) -> dict[str, Value]:
    """What all spans of a handler share."""
    found: dict[str, Value] = {
        SYSTEM: "rocketmq",
        OPERATION_NAME: "process",
        OPERATION_TYPE: "process",
        DESTINATION: subscription.topic,
        GROUP: subscription.group,
        MODEL: "clustering",
        HANDLER: subscription.handler_name,
    }
    if client_id:
        found[CLIENT_ID] = client_id
    return found


def of_message(message: Message, subscription: Subscription) -> dict[str, Value]:
    """What one received message adds."""
    properties = message.properties
    found: dict[str, Value] = {
        MESSAGE_ID: message.message_id,
        BODY_SIZE: len(message.stored_body),
        ATTEMPT: message.attempt,
        TYPE: _received_type(properties, subscription.orderly),
    }
    if message.queue is not None:
        found[PARTITION] = f"{message.queue.broker_name}:{message.queue.queue_id}"
    if tag := message.tag:
        found[TAG] = tag
    if keys := message.keys:
        found[KEYS] = keys
    return found


def _received_type(properties: Mapping[str, str], orderly: bool) -> str:
    if properties.get("TRAN_MSG") == "true":
        return "transaction"
    return "fifo" if orderly else "normal"


def of_sending(sending: Sending, client_id: str) -> dict[str, Value]:
    """What is known before messages are sent."""
    first = sending.messages[0]
    found: dict[str, Value] = {
        SYSTEM: "rocketmq",
        OPERATION_NAME: "send",
        OPERATION_TYPE: "send",
        DESTINATION: first.topic,
    }
    if client_id:
        found[CLIENT_ID] = client_id
    if sending.kind == "many":
        found[COUNT] = len(sending.messages)
        return found
    found[BODY_SIZE], found[TYPE] = len(first.body), _sent_type(first)
    if first.tag:
        found[TAG] = first.tag
    if first.keys:
        found[KEYS] = tuple(first.keys)
    if first.order_key is not None:
        found[ORDER_KEY] = first.order_key
    if first.delay_level:
        found[DELAY_LEVEL] = first.delay_level
    return found


def _sent_type(message: Outgoing) -> str:
    if message.delay_level:
        return "delay"
    return "normal" if message.order_key is None else "fifo"


def of_result(result: SendResult) -> dict[str, Value]:
    """What is known of one message when it is stored."""
    return {MESSAGE_ID: result.message_id, PARTITION: f"{result.queue.broker_name}:{result.queue.queue_id}"}
