"""Handlers that remember what they were called with, and a cluster to call them."""

from __future__ import annotations

import asyncio
from typing import Any

from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster


class Seen(list[Any]):
    """A handler that remembers bodies."""

    async def __call__(self, message: Message) -> None:
        self.append(message.body)


class Gated(Seen):
    """A handler that starts with every message and ends when the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.done: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        self.append(message.body)
        await self.gate.wait()
        self.done.append(message.body)


async def started(**options: Any) -> FakeCluster:
    cluster = FakeCluster(**options)
    await cluster.start()
    return cluster
