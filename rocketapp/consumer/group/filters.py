"""SQL filters are applied by brokers, and only by those that are told to: each is asked before anything is consumed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rocketapp.client.calls import clients
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.errors import BrokerError, SetupError, TransportError
from rocketapp.model.subscription import TAGS
from rocketapp.wire.codes import ResponseCode

_PATIENCE = 1.0
"""Seconds in which a broker is reached and answers: another one refuses the pulls, which is then told."""


async def check_filters(group: str, topics: Iterable[ConsumedTopic], client_id: str, brokers: Brokers) -> None:
    """Ask every broker of a topic whether it filters so. Raises SetupError when one refuses."""
    for topic in topics:
        if topic.data.expression_type != TAGS:
            for name in brokers.brokers_of(topic.topic):
                await _check(group, topic, name, client_id, brokers)


async def _check(group: str, topic: ConsumedTopic, broker_name: str, client_id: str, brokers: Brokers) -> None:
    try:
        async with asyncio.timeout(_PATIENCE):
            connection = await brokers.connection(broker_name)
            await clients.check_subscription(connection, client_id, group, topic.data, _PATIENCE)
    except (TransportError, TimeoutError):
        return
    except BrokerError as error:
        is_wrong = error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        mend = "correct it" if is_wrong else "set enablePropertyFilter=true there, or filter by tags="
        problem = f"sql={topic.data.expression!r} of topic {topic.topic!r}: broker {broker_name} refuses it"
        raise SetupError(topic.handlers[0].subscription.place, f"{problem}: {error.remark}: {mend}") from error
