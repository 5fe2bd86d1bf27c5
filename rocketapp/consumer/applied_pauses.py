"""What the pauses of a group mean for one queue: its pulls, and the messages that it has pulled."""

from __future__ import annotations

from collections.abc import Sequence

from rocketapp.consumer.pull.gate import Gate
from rocketapp.consumer.stalls import OF_TRIAL, StallReasons
from rocketapp.consumer.ways.delivery import Delivery
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import is_retry_topic
from rocketapp.state.pauses import Pauses


def apply_pauses(
    pauses: Pauses,
    queue: MessageQueue,
    topics: Sequence[str],
    *,
    gate: Gate,
    delivery: Delivery,
    stall_reasons: StallReasons,
) -> None:
    """Hold what is paused, or try one message of it, and let go on what is not. `topics`: all of the group."""
    if is_retry_topic(queue.topic):
        # Messages of several topics come back in one queue: what is not paused goes on.
        reason = pauses.reason_of_all(topics)
        trials = [_apply(pauses, topic, delivery, topic) for topic in topics]
    else:
        reason = pauses.reason(queue.topic)
        trials = [_apply(pauses, queue.topic, delivery)]
    if reason is not None and any(trials):
        # It is pulled, and stands still all the same.
        stall_reasons.blocked(queue, reason, place=OF_TRIAL)
        gate.resume()
        return
    if reason is None:
        gate.resume()
    else:
        gate.pause(reason)
    stall_reasons.moving(queue, place=OF_TRIAL)


def _apply(pauses: Pauses, topic: str, delivery: Delivery, held: str | None = None) -> bool:
    """Hold a topic or let it go on; whether one message of it is tried. `held`: it is a part of the delivery only."""
    if not pauses.is_paused(topic):
        delivery.go_on(held)
        return False
    delivery.hold(held)
    take = pauses.leave(topic)
    if take is not None:
        delivery.try_one(take, held)
    return take is not None
