"""Delays of any length, and messages that are taken back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rocketapp import Client, NotRecalled
from rocketapp.clock import SystemClock
from tests.peers import toolchain
from tests.peers.clusters import Apache, Cluster, Embedded
from tests.peers.java_client import JavaClient, Peer
from tests.peers.waiting import wait_until

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


def _publish(name_server: str, topic: str, **delays: float) -> None:
    """A message for each name; those whose name begins with `gone` are taken back."""

    async def story() -> None:
        async with Client(name_server) as client:
            for name, seconds in delays.items():
                sent = await client.publish(topic, name, delay=seconds, recallable=True)
                if name.startswith("gone"):
                    await client.recall(topic, sent.recall_handle or "")

    asyncio.run(story())


def _found(name_server: str, topic: str) -> list[str]:
    """All that the topic has now."""

    async def story() -> list[str]:
        async with Client(name_server) as client:
            return sorted([message.text() async for message in client.messages(topic, start="first", idle=1.0)])

    return asyncio.run(story())


def _wait_for(name_server: str, topic: str, *texts: str) -> None:
    wait_until(lambda: set(texts) <= set(_found(name_server, topic)), within=120, what=f"{texts} in {topic}", every=0.5)


@pytest.mark.timeout(240)
def test_what_waits_is_handed_over_to_apaches_broker_and_back(java_classes: Path, tmp_path: Path, topic: str) -> None:
    ours = Embedded(tmp_path / "ours")
    try:
        _publish(ours.name_server, topic, long=3600, now=0.3, gone_soon=19, soon=20, gone_later=44, later=45)
        _wait_for(ours.name_server, topic, "now")
        ours.stop()
        conf = ("timerFlushIntervalMs=500",)
        apache = Apache(tmp_path / "apache", store=ours.store, conf=conf, options=toolchain.BRIEF)
        try:
            _wait_for(apache.name_server, topic, "soon")
            _publish(apache.name_server, topic, gone_apaches=19, apaches=20, apaches_first=1)
            _wait_for(apache.name_server, topic, "apaches_first")
            seen = SystemClock().now()
            checkpoint = ours.store / "config" / "timercheck"  # what it was when the broker is killed, now
            wait_until(
                lambda: int.from_bytes(checkpoint.read_bytes()[:8], "big") > seen * 1000,
                within=30,
                what="it is written",
            )
        finally:
            apache.stop()
        ours.start_again()
        _wait_for(ours.name_server, topic, "apaches", "later")
        assert _found(ours.name_server, topic) == ["apaches", "apaches_first", "later", "now", "soon"]
    finally:
        ours.stop()
