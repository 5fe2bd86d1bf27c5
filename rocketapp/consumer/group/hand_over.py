"""A concurrent queue changes hands between living members: the next owner waits until the last one is through.

Whoever gives a queue away drops what was not started, finishes what was, and commits. Usually
that takes a moment, and the next owner waits for a moment. Handlers that take longer are told
to the next owner by a sign: a lock at the broker, held while they run. It is held under a name
of its own, because a lock under the group's name would turn the group's retries into dead
letters. Members that do not know the sign (the Java client's) do not set it and ignore it.
"""

from __future__ import annotations

import asyncio

from rocketapp.consumer.group.brokers import Brokers
from rocketapp.errors import BrokerError, RocketAppError
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.model.message_queue import MessageQueue

MOMENT = 0.25
"""Seconds after which a member that is not through with a queue sets the sign, and before which its next owner does
not begin."""
_LEAST, _MOST = 1.0, 15.0
"""Seconds that the next owner waits: for a sign to be set, and at most, sign or not."""
_LOOK = 0.1
"""Seconds between looks."""


class HandOver:
    """The signs of one group."""

    def __init__(self, brokers: Brokers, observe: Observe) -> None:
        self._brokers, self._observe = brokers, observe
        self._loop = asyncio.get_running_loop()

    async def set_sign(self, queue: MessageQueue) -> None:
        """We are not through with this queue yet."""
        try:
            await self._brokers.lock(queue.broker_name, [queue], sign=True)
        except RocketAppError as error:
            # The next owner does not wait longer than a moment, and may repeat what still runs.
            self._observe(LoopFailed("hand over", f"{queue}: {error}"))

    async def remove_sign(self, queue: MessageQueue) -> None:
        """We are."""
        try:
            await self._brokers.unlock(queue.broker_name, [queue], sign=True)
        except RocketAppError as error:
            self._observe(LoopFailed("hand over", f"{queue}: {error}"))

    async def wait(self, queue: MessageQueue, ended: asyncio.Future[None]) -> None:
        """Until the previous owner is through, or `ended` is done. Raises when no broker answers."""
        began = self._loop.time()
        while not ended.done():
            waited = self._loop.time() - began
            # Not at once: until the previous owner has heard the same news, it pulls whatever comes.
            if waited >= _MOST or (waited >= MOMENT and await self._is_finished(queue)):
                return
            if waited >= _LEAST and not await self.is_signed(queue):
                return
            await asyncio.wait([ended], timeout=_LOOK)

    async def _is_finished(self, queue: MessageQueue) -> bool:
        """Nothing is left in it that anybody could still be working on."""
        committed = await self._brokers.committed(queue, exact=True)
        return committed is not None and committed >= await self._brokers.max_offset(queue)

    async def is_signed(self, queue: MessageQueue) -> bool:
        """Whether another member is not through with it."""
        try:
            granted = await self._brokers.lock(queue.broker_name, [queue], sign=True)
        except BrokerError:
            return False  # signs are not possible here
        if queue in granted:
            await self.remove_sign(queue)
        return queue not in granted
