"""The offsets of one group in a plugin's store. Brokers hear what is stored, so that tools see how far the group is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from rocketapp.client.calls.offsets import Committed
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.offset_store import OffsetStore
from rocketapp.errors import OvertakenError, RequestTimeoutError, TransportError
from rocketapp.model.message_queue import MessageQueue

T = TypeVar("T")
_WHO = "offset store"


class PluginOffsets:
    """Asks the store as the engine asks brokers."""

    travels: bool = False

    def __init__(self, store: OffsetStore, *, group: str, brokers: Brokers, timeout: float) -> None:
        """`timeout`: seconds that any answer may take, as the contract says. The engine gives brokers less where an old
        answer would mislead it; here epochs keep late writers out.
        """
        self._store, self._group, self._brokers, self._timeout = store, group, brokers, timeout
        self._epochs: dict[MessageQueue, int] = {}

    def __repr__(self) -> str:
        return f"<PluginOffsets of {self._group}: {len(self._epochs)} queues taken>"

    def is_connected(self, broker_name: str) -> bool:
        """The store is one for all brokers, and knows by itself whether it is reached."""
        return True

    async def take(self, queue: MessageQueue) -> None:
        taken = await self._ask(self._store.take(self._group, queue), None)
        self._epochs[queue] = taken.epoch

    async def committed(
        self, queue: MessageQueue, *, exact: bool = False, timeout: float | None = None, dial: bool = True
    ) -> int | None:
        return await self._ask(self._store.read(self._group, queue), timeout)

    async def committed_for_start(self, queue: MessageQueue) -> Committed:
        """A group that had its offsets at the brokers goes on there."""
        offset = await self.committed(queue)
        return await self._brokers.committed_for_start(queue) if offset is None else Committed(offset, True)

    async def commit(
        self, queue: MessageQueue, offset: int, *, timeout: float | None = None, dial: bool = True
    ) -> None:
        epoch = self._epochs.get(queue, 0)
        if not await self._ask(self._store.write(self._group, queue, offset, epoch), timeout) and epoch:
            raise OvertakenError(str(queue), epoch)

    async def _ask(self, answer: Awaitable[T], timeout: float | None) -> T:
        timeout = max(self._timeout, timeout or 0.0)
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise RequestTimeoutError(_WHO, f"no answer within {timeout:g} s") from None
        except Exception as error:
            raise TransportError(_WHO, f"{type(error).__name__}: {error}") from error
