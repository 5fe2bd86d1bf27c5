"""Small files become larger ones some time after rows came."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rocketapp.plugin import Tasks
from rocketapp_lake.assembly import compacting
from rocketapp_lake.counts import Counts
from rocketapp_lake.declared import Sink
from rocketapp_lake.store import Compacted


class Table:
    """Counts, and compacts what it is told."""

    def __init__(self) -> None:
        self.targets: list[int] = []
        self.called = threading.Event()

    def compact(self, target_file_size: int) -> Compacted:
        self.targets.append(target_file_size)
        self.called.set()
        return Compacted(3, 1, 100)


async def test_the_schedule_begins_with_new_rows_and_waits_for_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "rocketapp.lake")
    tasks, table, came = Tasks(), Table(), asyncio.Event()
    sink = Sink(table="lake/one", name="one", compact_every=0.01, target_file_size=7)
    tasks.start(compacting(sink, [table], came, Counts()), "compacts")
    came.set()
    assert await asyncio.to_thread(table.called.wait, 30)
    came.set()
    await tasks.close()
    assert table.targets == [7]
