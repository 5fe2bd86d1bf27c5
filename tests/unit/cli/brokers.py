"""A broker in memory, in a thread of this process: a process of its own takes most of a second."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from rocketapp.clock import SystemClock
from rocketapp.config.broker import BrokerConfig
from rocketapp.embedded.embedded import EmbeddedBroker


@contextlib.contextmanager
def serving_in_memory(**options: Any) -> Iterator[str]:
    """Its address. `options`: of BrokerConfig."""
    address: Future[str] = Future()
    is_over = asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        config, clock = BrokerConfig(**options), SystemClock()
        broker = EmbeddedBroker(
            config=config, clock=clock, random=random.Random(), observe=lambda event: None, memory=True
        )
        try:
            address.set_result(await broker.start(("127.0.0.1", 0)))
            await is_over.wait()
        finally:
            await broker.stop()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, name="broker in memory")
    thread.start()
    try:
        yield address.result(30)
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join()
