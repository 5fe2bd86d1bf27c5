"""Which queues of a topic brokers let this member pop: each is asked about its own queues.

A broker pulls unless it was told otherwise, so it is told: with its present answer POP nothing is changed, and what an
operator has set for sharing queues stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Protocol

from rocketapp.client.calls import pop
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.errors import BrokerError, RocketAppError, TransportError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.requests.assignment import POP, Assigned, AssignmentQuestion

_TIMEOUT = 3.0
"""Seconds that a broker may take to answer (Java: the same)."""


class Shares(Protocol):
    """Shares out the queues of some topics in place of the members."""

    topics: Collection[str]

    async def of(
        self, topic: str, connected: Iterable[str], present: Iterable[MessageQueue]
    ) -> tuple[frozenset[MessageQueue], str | None]:
        """The queues of this member, and why a broker did not tell; its queues are the `present` ones then.

        `connected`: names of brokers that can be asked. `present`: the queues until now, of brokers of the topic.
        """
        ...


class BrokerShares:
    """Asks the brokers of popped topics."""

    def __init__(self, topics: Iterable[str], *, group: str, client_id: str, brokers: Brokers) -> None:
        self.topics: Collection[str] = frozenset(topics)
        self._group, self._client_id, self._brokers = group, client_id, brokers

    def __repr__(self) -> str:
        return f"<BrokerShares of {self._group}: {len(self.topics)} topics>"

    async def of(
        self, topic: str, connected: Iterable[str], present: Iterable[MessageQueue]
    ) -> tuple[frozenset[MessageQueue], str | None]:
        names = sorted(connected)
        answers = dict(zip(names, await asyncio.gather(*(self._try(topic, name) for name in names)), strict=True))
        told = {name: answer for name, answer in answers.items() if not isinstance(answer, RocketAppError)}
        problem = next((str(answer) for answer in answers.values() if isinstance(answer, RocketAppError)), None)
        kept = frozenset(queue for queue in present if queue.broker_name not in told)
        return kept.union(*told.values()), problem

    async def _try(self, topic: str, broker_name: str) -> set[MessageQueue] | RocketAppError:
        try:
            return await self._ask(topic, broker_name)
        except RocketAppError as error:
            return error

    async def _ask(self, topic: str, broker_name: str) -> set[MessageQueue]:
        connection = await self._brokers.connection(broker_name)
        question = AssignmentQuestion(topic, self._group, self._client_id)
        try:
            answer = await pop.assigned(connection, question, _TIMEOUT)
            if answer is not None and not _are_popped(answer):
                await pop.set_mode(connection, topic, self._group, POP, _TIMEOUT)
                answer = await pop.assigned(connection, question, _TIMEOUT)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise TransportError(
                    broker_name, 'it cannot be popped (mode="pop"): Apache RocketMQ 5.0 and later can'
                ) from None
            raise
        if answer is None or not _are_popped(answer):
            raise TransportError(broker_name, f"it does not share out {topic} yet")
        return {each.queue for each in answer if each.queue.broker_name == broker_name}


def _are_popped(answer: list[Assigned]) -> bool:
    return bool(answer) and all(each.mode == POP for each in answer)
