"""What ways are made from when no group stands around them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.member import GroupStats
from rocketapp.consumer.pausing import Pausing
from rocketapp.consumer.retry.breaker import Stopping
from rocketapp.consumer.stalls import StallReasons
from rocketapp.consumer.ways.context import WayContext
from rocketapp.consumer.ways.retries_in_place import RetryContext
from tests.unit.consumer.members import member_alone
from tests.unit.scripted import Events


def way_context(handlers: Sequence[Handler], *, dead_letters: Any = None, **others: Any) -> WayContext:
    """`dead_letters` takes messages that failed for good."""
    observe, pausing = Events(), Pausing()
    stopping = Stopping(handlers, pausing)
    still = StallReasons("group", observe, asyncio.get_running_loop().time)
    values: dict[str, Any] = {
        "group": "group",
        "stats": GroupStats(handlers),
        "observe": observe,
        "stall_reasons": still,
        "waits": still,
        "pausing": pausing,
        "retries": RetryContext(member_alone(handlers, events=observe), cast(Any, dead_letters), stopping, suspend=1.0),
        "new_completion": None,
    }
    return WayContext(**{**values, **others})
