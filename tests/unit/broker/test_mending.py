"""A consume queue that the disk has lost is made again from the log while others are served."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from rocketapp.broker.store.files import MemoryFiles
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.record import decode_records
from tests.unit.broker.asking import running
from tests.unit.broker.store.stores import record

COUNT = 100_000


def longest_turn(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The CPU time of the longest turn so far, in seconds."""
    longest, run = [0.0], asyncio.Handle._run

    def timed(handle: Any) -> None:
        begun = time.thread_time()
        run(handle)
        longest[0] = max(longest[0], time.thread_time() - begun)

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    return longest


def test_a_queue_of_100_000_lost_entries_keeps_no_turn_of_the_loop_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running(files) as broker:
            client = await broker.client()
            await client.send("orders", queue_id=0)
            store = broker.broker._broker._core.store  # type: ignore[union-attr]
            for start in range(0, COUNT, 1000):
                store.append_batch([record(b"%d" % number, topic="orders") for number in range(start, start + 1000)])
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            store.flush()
            files.open("consumequeue/orders/0/" + "0" * 20).write(bytes(20 * COUNT), 0)
            await asyncio.sleep(0)
            longest = longest_turn(monkeypatch)
            for offset, body in ((0, b"hello"), (COUNT - 10, b"%d" % (COUNT - 11))):
                refused = 0
                while (answer := await client.pull("orders", offset)).code == ResponseCode.SERVICE_NOT_AVAILABLE:
                    refused += 1
                assert refused
                assert decode_records(answer.body, None)[0].body == body
            assert longest[0] < 0.05

    asyncio.run(story())
