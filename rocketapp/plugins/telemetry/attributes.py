"""The attributes of spans: OpenTelemetry's semantic conventions for messaging, and our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketapp import Message, SendResult
from rocketapp.plugin import Outgoing, Sending, Subscription
from rocketapp.plugin import conventions as names
from rocketapp.plugins.counts import broker_of, server_of

ATTEMPT, OUTCOME = "rocketapp.attempt", "rocketapp.outcome"
_LEVELS = range(1, 19)

Value = str | int | Sequence[str]


def of_subscription(subscription: Subscription, client_id: str, namespace: str) -> dict[str, Value]:
    """The attributes that all spans of a handler share. `namespace` may be empty."""
    found: dict[str, Value] = {
        **names.OF_PROCESS,
        names.DESTINATION: subscription.topic,
        names.GROUP: subscription.group,
        names.MODEL: "broadcasting" if subscription.broadcast else "clustering",
        names.NAMESPACE: namespace,
        names.HANDLER: subscription.handler_name,
    }
    if client_id:
        found[names.CLIENT_ID] = client_id
    return found


def of_message(message: Message, subscription: Subscription) -> dict[str, Value]:
    """The attributes of one received message."""
    found: dict[str, Value] = {
        names.MESSAGE_ID: message.message_id,
        names.BODY_SIZE: len(message.stored_body),
        ATTEMPT: message.attempt,
        **_of_place(message),
        **_of_type(message, subscription.orderly),
    }
    if tag := message.tag:
        found[names.TAG] = tag
    if keys := message.keys:
        found[names.KEYS] = keys
    return found


def of_batch(messages: Sequence[Message]) -> dict[str, Value]:
    """The attributes of several messages of one queue, for the span of their call; there may be none."""
    attempt = max((message.attempt for message in messages), default=1)
    place = _of_place(messages[0]) if messages else {}
    return {names.COUNT: len(messages), ATTEMPT: attempt, **place}


def _of_place(message: Message) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if message.queue is not None:
        found[names.PARTITION] = f"{message.queue.broker_name}:{message.queue.queue_id}"
    return {**found, **server_of(broker_of([message.offset_message_id]))}


def _of_type(message: Message, orderly: bool) -> dict[str, Value]:
    """The message type.

    Brokers keep the delay in the properties; for a message that was sent back it is the retry's.
    """
    properties = message.properties
    if properties.get("TRAN_MSG") == "true":
        return {names.TYPE: "transaction"}
    due = properties.get("TIMER_DELIVER_MS") or properties.get("TIMER_OUT_MS", "")
    if due.isdecimal():
        return {names.TYPE: "delay", names.DELIVERY_MS: int(due)}
    level = properties.get("DELAY", "")
    if message.attempt == 1 and level.isdecimal() and int(level) in _LEVELS:
        return {names.TYPE: "delay", names.DELAY_LEVEL: int(level)}
    return {names.TYPE: "fifo" if orderly else "normal"}


def of_sending(sending: Sending, client_id: str, namespace: str, *, now_ms: int) -> dict[str, Value]:
    """The attributes known before messages are sent. `namespace` may be empty."""
    first = sending.messages[0]
    found: dict[str, Value] = {**names.OF_SEND, names.DESTINATION: first.topic, names.NAMESPACE: namespace}
    if client_id:
        found[names.CLIENT_ID] = client_id
    if sending.kind == "many":
        found[names.COUNT] = len(sending.messages)
        return found
    found[names.BODY_SIZE], found[names.TYPE] = len(first.body), _sent_type(first)
    if first.tag:
        found[names.TAG] = first.tag
    if first.keys:
        found[names.KEYS] = tuple(first.keys)
    if first.order_key is not None:
        found[names.ORDER_KEY] = first.order_key
    if first.delay_level:
        found[names.DELAY_LEVEL] = first.delay_level
    if first.delay:
        found[names.DELIVERY_MS] = now_ms + round(first.delay * 1000)
    return found


def _sent_type(message: Outgoing) -> str:
    if message.half:
        return "transaction"
    if message.delay_level or message.delay:
        return "delay"
    return "normal" if message.order_key is None else "fifo"


def of_results(results: Sequence[SendResult]) -> Mapping[str, Value]:
    """The attributes known after messages are stored."""
    broker = server_of(broker_of(result.offset_message_id for result in results))
    if len(results) != 1:
        return broker
    (result,) = results
    partition = f"{result.queue.broker_name}:{result.queue.queue_id}"
    return {names.MESSAGE_ID: result.message_id, names.PARTITION: partition, **broker}
