"""A producer on a scripted cluster, for the tests of this room that need the whole of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from rocketapp.client.instance import ClientInstance
from rocketapp.clock import SystemClock
from rocketapp.config.client import ClientConfig
from rocketapp.config.producer import ProducerConfig
from rocketapp.model.event import Connected, Disconnected, Event
from rocketapp.producer.producer import Producer
from tests.unit.scripted import Cluster, Events


@asynccontextmanager
async def producing(
    cluster: Cluster,
    events: Events | None = None,
    *,
    clients: list[ClientInstance] | None = None,
    trace_topic: str | None = None,
    **config: Any,
) -> AsyncIterator[Producer]:
    """A started producer of group `p`; topic `t` exists on all brokers, and TBW102 for new ones.

    Nothing is left behind. `clients` gets the client that it belongs to.
    """
    await cluster.start()
    cluster.add_topic("t")
    cluster.name_server.routes["TBW102"] = cluster.route(queues=8, perm=7)
    told = events if events is not None else Events()

    def observe(event: Event) -> None:
        if not isinstance(event, Connected | Disconnected):
            told(event)

    client = ClientInstance(
        config=ClientConfig(name_server=cluster.name_server.address),
        dial=cluster.network.dial,
        clock=SystemClock(),
        random=Random(0),
        observe=observe,
        client_ip="10.0.0.5",
        pid=7,
    )
    await client.start()
    if clients is not None:
        clients.append(client)
    producer = Producer(
        client=client,
        config=ProducerConfig(**config),
        group="p",
        clock=SystemClock(),
        random=Random(0),
        trace_topic=trace_topic,
    )
    try:
        await producer.start()
        yield producer
        await producer.stop()
    finally:
        await client.stop()
    assert len(asyncio.all_tasks()) == 1
