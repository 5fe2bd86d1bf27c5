"""A member of a group without a group around it, for tests of single parts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Any, cast

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.limits import Limits
from rocketapp.consumer.member import GroupStats, Member
from rocketapp.consumer.pausing import Pausing
from rocketapp.consumer.stalls import StallReasons
from rocketapp.model.subscription import SubscriptionData
from rocketapp.tasks import Tasks
from rocketapp.testing.virtual_time import VirtualClock
from tests.unit.scripted import Events


def member_alone(
    handlers: Iterable[Handler] = (),
    *,
    events: Events | None = None,
    brokers: Any = None,
    config: ConsumerConfig | None = None,
    **others: Any,
) -> Member:
    """A member of `group`, which subscribes `topic`. `brokers` does what the part under test asks of brokers."""
    loop, observe, config = (
        asyncio.get_running_loop(),
        Events() if events is None else events,
        config or ConsumerConfig(),
    )
    values: dict[str, Any] = {
        "name": "group",
        "client_id": "10.0.0.1@1",
        "client": None,
        "broadcast": False,
        "subscriptions": {"topic": SubscriptionData("topic")},
        "retry_topic": None,
        "brokers": cast(Any, brokers),
        "config": config,
        "limits": Limits(config),
        "stats": GroupStats(handlers),
        "stalls": StallReasons("group", observe, loop.time),
        "waits": StallReasons("group", observe, loop.time),
        "pausing": Pausing(),
        "observe": observe,
        "tasks": Tasks(observe),
        "clock": VirtualClock(loop),
        "random": Random(1),
    }
    return Member(**{**values, **others})
