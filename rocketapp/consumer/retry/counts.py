"""The one place where retries, dead letters and dropped messages are counted and told."""

from __future__ import annotations

from rocketapp.consumer.handler import Handler
from rocketapp.model.event import DeadLettered, Dropped, Observe, Retried
from rocketapp.state.redelivery import Failure
from rocketapp.wire.record import Message


def count_retry(
    handler: Handler, message: Message, reason: object, *, delay: float, group: str, observe: Observe
) -> None:
    """The message is tried again after `delay` seconds."""
    handler.stats.retried += 1
    reason_text = str(reason)
    observe(Retried(group, handler.name, message.topic, message.message_id, message.attempt, delay, reason_text))


def count_dead_letter(handler: Handler, message: Message, reason: object, *, group: str, observe: Observe) -> None:
    """A broker has stored the message as a dead letter."""
    handler.stats.dead_lettered += 1
    message_id, attempt = message.message_id, message.attempt
    error = reason.error if isinstance(reason, Failure) else None
    observe(DeadLettered(group, handler.name, message.topic, message_id, attempt, str(reason), message, error))


def count_dropped(handler: Handler, message: Message, failure: Failure, *, group: str, observe: Observe) -> None:
    """This member of a broadcast group has given the message up."""
    handler.stats.dropped += 1
    message_id, attempt = message.message_id, message.attempt
    observe(Dropped(group, handler.name, message.topic, message_id, attempt, str(failure), message, failure.error))
