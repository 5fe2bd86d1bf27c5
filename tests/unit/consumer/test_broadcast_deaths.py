"""Workers of a broadcast group die: what one had in flight is its own, like what it has done."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.offsets import local
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed
from tests.unit.scripted import ClockAt, in_virtual_time

CAUSE = 4


@pytest.fixture(autouse=True)
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written at once: virtual time does not wait for threads."""

    async def at_once(call: Callable[[], None], _: str) -> None:
        call()

    monkeypatch.setattr(local, "in_daemon_thread", at_once)


@in_virtual_time
async def test_what_has_ended_one_worker_is_forgotten_by_no_other_one_that_is_done_with_it(tmp_path: Path) -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 8)
    config, notes = ConsumerConfig(broadcast_dir=str(tmp_path / "offsets")), tmp_path / "notes"

    notes.mkdir()

    async def dies(worker: int) -> list[int]:
        """What this worker has called its handler for until it dies at the cause, or is done."""
        called, is_at_cause = list[int](), asyncio.Event()

        async def call(message: Message) -> None:
            called.append(message.offset)
            if worker == 2 and message.offset == CAUSE:
                is_at_cause.set()
                await asyncio.sleep(1e9)

        journal = Journal(notes, ClockAt(1000.0), lambda _: None)
        topic = replace(consumed(call, retries=0, start="first", concurrency=1), broadcast=True)
        member = await cluster.member(topic, config=config, worker=worker, journal=journal).start()
        await asyncio.sleep(10)
        if is_at_cause.is_set():
            (noted,) = notes.glob("*.hand")
            shutil.copy(noted, tmp_path / "noted")
        await member.consumer.stop(drain_timeout=0.0, cut=asyncio.Event())
        await member.client.stop()
        journal.close()
        if is_at_cause.is_set():  # as a kill leaves it: nobody holds a lock on the file
            shutil.copy(tmp_path / "noted", notes / "dead.hand")
        return called

    await dies(1)
    calls = [await dies(worker) for worker in (2, 1, 2, 1, 2)][::2]
    assert [CAUSE in called for called in calls] == [True, True, False]
    assert calls[-1][-1] == 7
    await cluster.stop()
