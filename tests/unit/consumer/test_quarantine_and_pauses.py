"""What may have ended a process: its dead letter, and a pause."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rocketapp.consumer.quarantine import PATIENCE
from tests.unit.consumer.fake_cluster import consumed
from tests.unit.consumer.test_quarantine import MODES, Watched, journal_with, quarantined, with_topic
from tests.unit.scripted import eventually, in_virtual_time


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("options", MODES)
@in_virtual_time
async def test_a_long_pause_lets_no_two_of_those_that_were_in_flight_together_start_together(
    options: dict[str, Any], beside: bool, tmp_path: Path
) -> None:
    cluster, watched = await with_topic(), Watched()
    journal = journal_with(tmp_path, quarantined("group", beside=beside))
    member = cluster.member(consumed(watched.call, retries=2, **options), journal=journal)
    member.consumer.pause("topic", "test")
    await member.start()
    await asyncio.sleep(1)
    member.consumer.resume("topic")
    await asyncio.sleep(0.2)
    member.consumer.pause("topic", "test")
    await asyncio.sleep(4 * PATIENCE)
    member.consumer.resume("topic")
    await eventually(lambda: member.consumer.counters.handled == 23, 60)
    assert (watched.overlaps, watched.quarantined) == (0, 8)
    assert await member.stop()
    journal.close()
    await cluster.stop()
