"""Read a topic outside of any group: nothing is committed, and no other reader is disturbed."""

from __future__ import annotations

import asyncio
from random import Random

from rocketapp.app.settings.settings import Settings
from rocketapp.client.instance import ClientInstance
from rocketapp.consumer.following import Following
from rocketapp.scripts.reading import Wanted, log, tell
from rocketapp.wire.record import Message


class Outside:
    """One topic, read once; see `reading.Reading`."""

    def __init__(self, client: ClientInstance, settings: Settings, wanted: Wanted, *, random: Random) -> None:
        self._idle = wanted.idle
        self._following = Following(
            client,
            settings.consumer,
            wanted.topic,
            wanted.tags,
            start=wanted.start,
            max_inflated_bytes=settings.client.max_inflated_bytes,
            random=random,
            observe=tell,
            say=log.warning,
        )

    async def start(self) -> None:
        self._following.start()

    async def next(self) -> list[Message]:
        try:
            async with asyncio.timeout(self._idle):
                return await self._following.next()
        except TimeoutError:
            return []

    def done(self, message: Message) -> None:
        """Nothing is committed."""

    async def stop(self) -> None:
        await self._following.stop()
