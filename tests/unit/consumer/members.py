"""A member of a group without a group around it, for tests of single parts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.member import Member
from rocketapp.model.subscription import SubscriptionData
from rocketapp.testing.virtual_time import VirtualClock
from tests.unit.consumer.fake_cluster import subscription
from tests.unit.scripted import Events


def member_alone(
    handlers: Iterable[Handler] = (),
    *,
    events: Events | None = None,
    brokers: Any = None,
    config: ConsumerConfig | None = None,
    broadcast: bool = False,
    routes: Any = None,
) -> Member:
    """A member of `group`, which subscribes `topic`. `brokers` does what the part under test asks of brokers."""
    observe = Events() if events is None else events
    handlers = tuple(handlers) or (Handler(subscription(), lambda _: None),)
    topic = ConsumedTopic("topic", "first", 16, handlers, SubscriptionData("topic"), broadcast=broadcast)
    member = Member(
        "group",
        [topic],
        client=cast(Any, SimpleNamespace(client_id="10.0.0.1@1", observe=observe, routes=routes)),
        config=config or ConsumerConfig(),
        clock=VirtualClock(asyncio.get_running_loop()),
        random=Random(1),
    )
    if brokers is not None:
        member.brokers = brokers
    return member
