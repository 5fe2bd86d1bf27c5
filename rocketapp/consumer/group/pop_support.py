"""Whether the brokers of a group have pop, asked once at the start: also before its topics exist."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rocketapp.client.calls import pop
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.errors import BrokerError, RocketAppError, SetupError
from rocketapp.model.handler_kind import POPPED
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.requests.assignment import AssignmentQuestion

_PATIENCE = 1.0
"""Seconds for an answer. A broker that does not answer stops no start: its queues say so."""


async def check_pop(
    group: str, topics: Iterable[ConsumedTopic], client_id: str, brokers: Brokers, also: Iterable[str]
) -> None:
    """Ask the brokers of popped topics, and those of the topics `also`. Raises SetupError when all of them refuse."""
    also = list(also)
    for topic in topics:
        if topic.kind is POPPED:
            names = sorted({name for one in (topic.topic, *also) for name in brokers.brokers_of(one)})
            question = AssignmentQuestion(topic.topic, group, client_id)
            if names and all(await asyncio.gather(*(_lacks_pop(name, question, brokers) for name in names))):
                problem = f'mode="pop" of topic {topic.topic!r}: broker {names[0]} does not have it'
                mend = 'use Apache RocketMQ 5.0 or later, or mode="push"'
                raise SetupError(topic.handlers[0].subscription.place, f"{problem}: {mend}")


async def _lacks_pop(name: str, question: AssignmentQuestion, brokers: Brokers) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE):
            await pop.assigned(await brokers.connection(name), question, _PATIENCE)
    except BrokerError as error:
        return error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    except (RocketAppError, TimeoutError):
        return False
    return False
