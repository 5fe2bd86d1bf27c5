"""What the other members of a group say that they subscribe: asked of each, through a broker that knows it.

A broker keeps one subscription for a group, so only the members themselves know what they want.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from rocketapp.client.instance import ClientInstance
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.errors import RocketAppError
from rocketapp.model.names import is_retry_topic
from rocketapp.state.roll_out import Said
from rocketapp.wire.requests.running_info import RunningInfo

ANSWER_TIMEOUT = 3.0
"""Seconds that members may take to answer, all at once."""
_AT_ONCE = 32
"""Questions that are under way at the same time."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The answers of one round."""

    said: dict[str, Said]
    silent: dict[str, str]
    """By client id: why it did not say what it subscribes."""


class AskedMembers:
    """Asks the members of one group."""

    def __init__(self, group: str, client: ClientInstance, brokers: Brokers) -> None:
        self._group, self._client, self._brokers = group, client, brokers
        self.me: str = client.client_id

    def __repr__(self) -> str:
        return f"<AskedMembers {self._group}>"

    async def others(self) -> set[str]:
        """The client ids that any broker knows, without ours. A broker that does not answer knows none."""
        lists = await asyncio.gather(*map(self._list, self._client.routes.broker_names()))
        return {client_id for found in lists for client_id in found} - {self._client.client_id}

    async def _list(self, broker_name: str) -> list[str]:
        try:
            return await self._brokers.members(broker_name)
        except RocketAppError:
            return []  # a group without members is an error as well

    async def ask(self, client_ids: Iterable[str]) -> Asked:
        """What these members say, within `ANSWER_TIMEOUT`."""
        room, asked = asyncio.Semaphore(_AT_ONCE), Asked({}, {})

        async def one(client_id: str) -> None:
            async with room:
                await self._ask(client_id, asked)

        names = sorted(client_ids)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                await asyncio.gather(*map(one, names))
        except TimeoutError:
            pass
        for name in names:
            if name not in asked.said:
                asked.silent.setdefault(name, f"it did not answer within {ANSWER_TIMEOUT:g} s")
        return asked

    async def _ask(self, client_id: str, asked: Asked) -> None:
        """Through any broker: a member is known to all brokers of its topics."""
        from rocketapp.client.calls import admin  # needed once there are other members

        for name in sorted(self._client.routes.broker_names()):
            try:
                connection = await self._brokers.connection(name)
                info = await admin.running_info(connection, self._group, client_id, ANSWER_TIMEOUT)
            except RocketAppError as error:
                asked.silent[client_id] = str(error)
                continue
            asked.said[client_id] = said_of(client_id, info)
            asked.silent.pop(client_id, None)
            return


def said_of(client_id: str, info: RunningInfo) -> Said:
    """What a member's answer means. Retry topics are every member's."""
    wants = {data.topic: data for data in info.subscriptions if not is_retry_topic(data.topic)}
    return Said(client_id, wants, info.pulled)
