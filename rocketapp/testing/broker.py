"""A real embedded broker on loopback, in memory, on a loop and a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from random import Random

from rocketapp.clock import SystemClock
from rocketapp.config.broker import BrokerConfig
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.model.event import unobserved


@contextmanager
def serving(config: BrokerConfig | None = None) -> Iterator[str]:
    """Within: a broker serves at this `host:port`, in real time. `config`: its options; the port is a free one."""
    address: Future[str] = Future()
    stop: Future[asyncio.Event] = Future()
    config = BrokerConfig() if config is None else config

    async def serve() -> None:
        stopped = asyncio.Event()
        stop.set_result(stopped)
        broker = EmbeddedBroker(config=config, clock=SystemClock(), random=Random(), observe=unobserved, memory=True)
        try:
            address.set_result(await broker.start(("127.0.0.1", 0)))
        except BaseException as error:
            address.set_exception(error)
            return
        await stopped.wait()
        await broker.stop()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="rocketapp broker", daemon=True)
    thread.start()
    try:
        yield address.result()
    finally:
        loop.call_soon_threadsafe(stop.result().set)
        thread.join()
        loop.close()
