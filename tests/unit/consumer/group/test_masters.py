"""Which connection a queue is read from while its routes change."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.brokers import Brokers
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import MASTER_ID
from tests.unit.scripted import in_virtual_time

QUEUE = MessageQueue("topic", "broker-a", 0)


class DialsForASecond:
    """A client whose routes name one master, and whose connections come a second after they were asked for."""

    def __init__(self, *addresses: str) -> None:
        self.master = addresses[0]
        self.connections = {each: SimpleNamespace() for each in addresses}

    def broker_address(self, broker_name: str, broker_id: int = MASTER_ID) -> str:
        return self.master

    def living_connection(self, address: str) -> Any:
        return self.connections[address]

    async def connection(self, address: str) -> Any:
        await asyncio.sleep(1)
        return self.connections[address]


@in_virtual_time
async def test_routes_that_change_while_a_connection_is_dialled_lead_the_next_pull_to_the_new_master() -> None:
    client = DialsForASecond("10.0.0.1:10911", "10.0.0.2:10911")
    brokers = Brokers("group", cast(Any, client), ConsumerConfig(), Random(1), cast(Any, None))
    on_its_way = asyncio.ensure_future(brokers.to_pull(QUEUE, MASTER_ID))
    await asyncio.sleep(0.5)
    client.master = "10.0.0.2:10911"
    assert await on_its_way is client.connections["10.0.0.1:10911"]
    following = brokers.recognised_at(QUEUE) or await brokers.to_pull(QUEUE, MASTER_ID)
    assert following is client.connections["10.0.0.2:10911"]
