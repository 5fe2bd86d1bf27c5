"""An embedded broker in memory, and an administrator who asks it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from random import Random

from rocketapp.admin.cluster import AdminCluster
from rocketapp.client.instance import ClientInstance
from rocketapp.config.client import ClientConfig
from rocketapp.config.producer import ProducerConfig
from rocketapp.producer.producer import Producer
from rocketapp.wire import properties as names
from tests.unit.broker.asking import Client, Running, running


class Stage:
    """The broker, one plain client of it, and the administrator's view."""

    def __init__(self, broker: Running, client: Client, cluster: AdminCluster) -> None:
        self.broker, self.client, self.cluster = broker, client, cluster

    def producer(self) -> Producer:
        """One without retries, as a replay uses it."""
        return Producer(
            client=self.cluster.client,
            config=ProducerConfig(retries=0),
            group="replay",
            clock=self.broker.clock,
            random=Random(2),
        )

    async def bury(self, group: str, count: int, *, topic: str = "orders", first: int = 0) -> None:
        """Make dead letters; their bodies are their numbers."""
        for number in range(first, first + count):
            properties = {
                names.UNIQ_KEY: f"ID{number}",
                names.KEYS: f"order-{number}",
                names.RETRY_TOPIC: topic,
                names.ORIGIN_MESSAGE_ID: f"ORIGIN{number}",
                "rocketapp.exception": "ValueError",
                "rocketapp.reason": f"ValueError: no {number}",
                "rocketapp.attempts": "17",
                "colour": "red",
            }
            encoded = names.encode(properties).decode()
            answer = await self.client.send(f"%DLQ%{group}", str(number).encode(), encoded, queue_id=0)
            assert answer.code == 0, answer.remark


@contextlib.asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """A cluster without topics."""
    async with running() as broker:
        client = ClientInstance(
            config=ClientConfig(name_server=broker.address),
            dial=broker.network.dial,
            clock=broker.clock,
            random=Random(0),
            observe=broker.events.append,
            client_ip="10.0.0.5",
            pid=7,
        )
        await client.start()
        try:
            yield Stage(broker, await broker.client(), await AdminCluster.of(client))
        finally:
            await client.stop()
