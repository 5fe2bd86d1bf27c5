"""What a member tells an administrator of itself: Java's ConsumerRunningInfo.

Its properties are the settings of the group under their own names, by topic what was changed since, and those that
Java's tool looks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.assembly import Group
from rocketapp.consumer.group.owned import Owned
from rocketapp.consumer.items import messages_of
from rocketapp.consumer.stacks import stacks
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.requests.clients import CONSUME_PASSIVELY
from rocketapp.wire.requests.running_info import (
    CONCURRENCY,
    CONSUME_TYPE,
    ORDERLY,
    PULLED,
    PopInfo,
    QueueInfo,
    RunningInfo,
    encode_pulled,
)


def of_group(group: Group, config: ConsumerConfig, *, loop_started: float, with_stacks: bool) -> RunningInfo:
    """`loop_started`: seconds since 1970 at the loop's time 0. `with_stacks`: tell where threads and tasks stand."""
    handlers, pulled = group.stats.handlers, group.guard.pulled
    properties = {f"consumer.{name}": _text(value) for name, value in asdict(config).items()}
    for topic, changed in group.limits.changed.items():
        properties |= {f"adjusted.{topic}.{name}": _text(value) for name, value in changed.items()}
    properties |= {
        CONSUME_TYPE: CONSUME_PASSIVELY,
        ORDERLY: _text(bool(handlers) and all(handler.subscription.orderly for handler in handlers)),
        CONCURRENCY: str(sum(handler.subscription.concurrency for handler in handlers)),
    }
    if pulled is not None:
        properties[PULLED] = encode_pulled(pulled)
    running = _running(group)
    owned = group.rebalancer.owned
    queues = {
        queue: _of_queue(group, queue, owned[queue], running, loop_started)
        for queue in sorted(owned)
        if owned[queue].popped is None
    }
    popped = {
        queue: PopInfo(len(each.popped), each.is_ending, _milliseconds(loop_started, each.popped.answered_at))
        for queue, each in sorted(owned.items())
        if each.popped is not None
    }
    rates = group.rates.of(group.model.subscriptions)
    return RunningInfo(properties, group.guard.own, queues, popped, rates, stacks() if with_stacks else None)


def _of_queue(
    group: Group,
    queue: MessageQueue,
    owned: Owned,
    running: Mapping[MessageQueue, set[int]],
    loop_started: float,
) -> QueueInfo:
    process_queue = owned.process_queue
    if process_queue is None:
        return QueueInfo(group.model.offsets.confirmed(queue) or 0, is_given_back=owned.is_ending)
    locked_at = group.leases.granted_at(queue)
    in_hand = sorted(running.get(queue, ()))
    cached = [offset for offset in process_queue.offsets() if offset not in in_hand]
    return QueueInfo(
        process_queue.commit_offset,
        *((cached[0], cached[-1], len(cached)) if cached else (0, 0, 0)),
        process_queue.size,
        *((in_hand[0], in_hand[-1], len(in_hand)) if in_hand else (0, 0, 0)),
        is_locked=group.leases.state(queue) == "held",
        locked_ms=_milliseconds(loop_started, locked_at),
        is_given_back=owned.is_ending,
        pulled_ms=_milliseconds(loop_started, process_queue.answered_at),
        consumed_ms=_milliseconds(loop_started, group.progress.last(queue)),
    )


def _running(group: Group) -> dict[MessageQueue, set[int]]:
    """By queue that is consumed under a lock the offsets of the messages whose handler runs."""
    found: dict[MessageQueue, set[int]] = {}
    for way in group.ways:
        for _, item in way.in_hand() if way.needs_lock else ():
            for message in messages_of(item):
                if message.queue is not None:
                    found.setdefault(message.queue, set()).add(message.offset)
    return found


def _milliseconds(loop_started: float, time: float | None) -> int:
    """Since 1970; 0 for what was not yet."""
    return int((loop_started + time) * 1000) if time else 0


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
