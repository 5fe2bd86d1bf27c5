"""SQL filters are applied by brokers, and only by those that are told to: each is asked before anything is consumed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rocketapp.client.calls import clients
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.errors import BrokerError, KeysRefused, SetupError, TransportError
from rocketapp.model.subscription import TAGS
from rocketapp.wire.codes import ResponseCode

_PATIENCE = 1.0
"""Seconds in which a broker is reached and answers: another one refuses the pulls, which is then told."""


async def check_filters(
    group: str, topics: Iterable[ConsumedTopic], client_id: str, brokers: Brokers, also: Iterable[str]
) -> None:
    """Ask every broker of a topic whether it filters so. Raises SetupError when one refuses.

    A topic that does not exist yet may come to any broker of the topics `also`: it is refused when all of them do.
    """
    others = sorted({name for topic in also for name in brokers.brokers_of(topic)})
    for topic in topics:
        if topic.data.expression_type != TAGS:
            there = brokers.brokers_of(topic.topic)
            refusals = [await _refusal(group, topic, name, client_id, brokers) for name in there or others]
            refused = [refusal for refusal in refusals if refusal is not None]
            if refused and (there or len(refused) == len(others)):
                raise refused[0]


async def _refusal(
    group: str, topic: ConsumedTopic, broker_name: str, client_id: str, brokers: Brokers
) -> SetupError | None:
    try:
        async with asyncio.timeout(_PATIENCE):
            connection = await brokers.connection(broker_name)
            await clients.check_subscription(connection, client_id, group, topic.data, _PATIENCE)
    except (TransportError, TimeoutError, KeysRefused):
        return None
    except BrokerError as error:
        is_wrong = error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        mend = "correct it" if is_wrong else "set enablePropertyFilter=true there, or filter by tags="
        problem = f"sql={topic.data.expression!r} of topic {topic.topic!r}: broker {broker_name} refuses it"
        return SetupError(topic.handlers[0].subscription.place, f"{problem}: {error.remark}: {mend}")
    return None
