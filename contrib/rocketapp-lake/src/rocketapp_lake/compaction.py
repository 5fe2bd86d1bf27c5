"""When the files of a sink are put together: some time after rows came, in a thread of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from rocketapp_lake.counts import Counts
from rocketapp_lake.store import Compacts
from rocketapp_lake.worker import Worker

log = logging.getLogger("rocketapp.lake")


async def compacting(
    name: str,
    tables: Sequence[Compacts],
    rows_came: asyncio.Event,
    *,
    every: float,
    target_file_size: int,
    counts: Counts,
) -> None:
    """Of one sink, as long as its app runs. While nothing is written nothing happens.

    `rows_came`: there is a new file; those that come while a compaction runs wait for the next one. `every`: seconds
    from the first rows behind a compaction to the next one. One that is under way as the process ends is completed or
    undone by the next owner.
    """
    worker = Worker(f"sink {name} compacts")
    try:
        while True:
            await rows_came.wait()
            await asyncio.sleep(every)
            rows_came.clear()
            try:
                for table in tables:
                    done = await worker.run(partial(table.compact, target_file_size))
                    counts.compacted += done.before
                    if done.before:
                        facts = {"sink": name, "before": done.before, "after": done.after, "bytes": done.bytes}
                        text = "sink %(sink)s: %(before)d files are %(after)d now, of %(bytes)d bytes"
                        log.info(text, facts, extra=facts)
            except Exception as error:
                log.warning("sink %s: its files cannot be put together: %s: %s", name, type(error).__name__, error)
    finally:
        worker.stop()
