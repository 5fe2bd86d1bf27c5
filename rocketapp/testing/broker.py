"""A real embedded broker on loopback, in memory, on a loop and a thread of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from rocketapp.clock import SystemClock
from rocketapp.config.broker import BrokerConfig
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.model.event import unobserved
from rocketapp.scripts.sync_client import LoopThread


@contextmanager
def serving(config: BrokerConfig | None = None) -> Iterator[str]:
    """Within: a broker serves at this `host:port`, in real time. `config`: its options; the port is a free one."""
    config, loop = BrokerConfig() if config is None else config, LoopThread("rocketapp broker")

    async def made() -> EmbeddedBroker:
        return EmbeddedBroker(config=config, clock=SystemClock(), random=Random(), observe=unobserved, memory=True)

    try:
        broker = loop.run(made())
        address = loop.run(broker.start(("127.0.0.1", 0)))
        try:
            yield address
        finally:
            loop.run(broker.stop())
    finally:
        loop.stop()
