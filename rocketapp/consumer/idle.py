"""Is there anything left to do, as far as this process knows?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.offsets import Offsets
from rocketapp.consumer.group.rebalancer import Rebalancer
from rocketapp.consumer.retry.failed_messages import FailedMessages
from rocketapp.errors import RocketAppError
from rocketapp.model.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class IdleReport:
    """What is owned, what is wanted, and why there is something left to do."""

    owned: frozenset[MessageQueue]
    """Queues that are ours and open (orderly: locked)."""
    wanted: frozenset[MessageQueue]
    """Queues that should be ours."""
    reasons: tuple[str, ...]
    """Empty: idle."""


async def report(
    *, rebalancer: Rebalancer, offsets: Offsets, redelivery: FailedMessages, brokers: Brokers, now: float
) -> IdleReport:
    """Look at everything that could still bring work; the brokers are asked how far their queues reach."""
    wanted = frozenset[MessageQueue]().union(*rebalancer.wanted.values())
    owned = {queue: each.process_queue for queue, each in rebalancer.owned.items() if each.process_queue is not None}
    reasons = [] if rebalancer.is_complete else ["the assignment is not complete"]
    reasons += [f"{queue} is not open yet" for queue in sorted(wanted - owned.keys())]
    reasons += [f"{queue} is being given back" for queue in sorted(rebalancer.owned.keys() - wanted)]
    if (left := redelivery.due_until - now) > 0:
        reasons.append(f"a retry that was sent back is due within {left:.0f} s")
    for queue, unfinished in owned.items():
        if count := len(unfinished):
            reasons.append(f"{queue}: {count} messages are unfinished")
    popped = {queue: each.popped for queue, each in rebalancer.owned.items() if each.popped is not None}
    for queue, each in popped.items():
        if each.is_empty_since is None:
            reasons.append(f"{queue}: its broker has not said that nothing is left")
        elif each.has_acks:
            reasons.append(f"{queue}: handled messages are not acknowledged yet")
    if not reasons:
        await offsets.flush()
        queues = sorted(owned.keys() - popped.keys())
        lags = await asyncio.gather(*(_behind(queue, offsets, brokers) for queue in queues))
        reasons += filter(None, lags)
    return IdleReport(frozenset(owned), wanted, tuple(reasons))


async def _behind(queue: MessageQueue, offsets: Offsets, brokers: Brokers) -> str | None:
    """Why a queue is not through; None when the group's offset is at its end."""
    try:
        end = await brokers.max_offset(queue)
    except RocketAppError as error:
        return f"{queue}: its end is not known: {error}"
    confirmed = offsets.confirmed(queue)
    return None if confirmed is not None and confirmed >= end else f"{queue}: committed {confirmed}, ends at {end}"
