"""Delays of any length, and messages that are taken back."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp import Client, NotRecalled
from rocketapp.clock import SystemClock
from tests.peers.clusters import Cluster
from tests.peers.java_client import JavaClient, Peer

DELAYS = [0.4, 1.5, 2.0, 2.9, 3.3, 4.7]
LATE = 3.0
"""A timer counts whole seconds. The rest is for a busy machine; the next delay level comes 3.5 s late."""


def test_delays_are_exact_and_what_is_recalled_never_comes(cluster: Cluster, topic: str) -> None:
    async def story() -> dict[str, float]:
        due, came = {}, {}
        async with Client(cluster.name_server) as client:
            await client.publish(topic, "now")
            for number, seconds in enumerate(DELAYS * 2):
                await client.publish(topic, str(number), delay=seconds)
                due[str(number)] = SystemClock().now() + seconds
            level = await client.publish(topic, "level", delay=5, recallable=True)
            exact = await client.publish(topic, "exact", delay=4.4, tag="t", keys=["k"])
            for result in (level, exact):
                assert result.recall_handle
                await client.recall(topic, result.recall_handle)
            async for message in client.messages(topic, start="first", idle=LATE + 2):
                came[message.text()] = message.stored_at.timestamp()
            with pytest.raises(NotRecalled, match="timestamp invalid"):
                await client.recall(topic, exact.recall_handle or "")
        assert came.keys() == {"now", *due}
        return {name: came[name] - due[name] for name in due}

    late = asyncio.run(story())
    assert all(-0.05 <= seconds <= LATE for seconds in late.values()), late


def test_what_one_side_has_sent_the_other_takes_back(cluster: Cluster, peer: Peer, topic: str) -> None:
    java = JavaClient(peer, cluster.name_server)
    java.create_topic(topic, 4)

    async def story() -> list[str]:
        async with Client(cluster.name_server) as client:
            (javas, kept) = java.send(
                topic, {"text": "java's", "delay_ms": 5000}, {"text": "java's kept", "delay_ms": 5000}
            )
            ours = await client.publish(topic, "ours", delay=5.5)
            await client.publish(topic, "ours kept", delay=5.5)
            await client.recall(topic, javas["recall_handle"])
            assert java.recall(topic, ours.recall_handle or "") == ours.message_id
            found = [message.text() async for message in client.messages(topic, start="first", idle=9.0)]
            with pytest.raises(NotRecalled, match="timestamp invalid"):
                await client.recall(topic, kept["recall_handle"])
            return sorted(found)

    assert asyncio.run(story()) == ["java's kept", "ours kept"]
