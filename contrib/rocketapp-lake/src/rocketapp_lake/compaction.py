"""When the files of a sink are put together: some time after rows came, in a thread of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from rocketapp.plugin import Tasks
from rocketapp_lake.counts import Counts
from rocketapp_lake.store import Compacts
from rocketapp_lake.worker import Worker

log = logging.getLogger("rocketapp.lake")


class Compaction:
    """Of one sink. While nothing is written nothing happens."""

    def __init__(
        self,
        name: str,
        tables: Sequence[Compacts],
        *,
        every: float,
        target_file_size: int,
        tasks: Tasks,
        counts: Counts,
    ) -> None:
        """Needs a running loop. `every`: seconds from the first rows behind a compaction to the next one.

        `tasks` end it. One that is under way is completed or undone by the next owner if the process ends.
        """
        self._name, self._tables, self._counts = name, tables, counts
        self._every, self._target = every, target_file_size
        self._worker = Worker(f"sink {name} compacts")
        self._rows_came = asyncio.Event()
        tasks.start(self._run(), f"sink {name} compacts")

    def rows_came(self) -> None:
        """There is a new file. Those that come while a compaction runs wait for the next one."""
        self._rows_came.set()

    async def _run(self) -> None:
        try:
            while True:
                await self._rows_came.wait()
                await asyncio.sleep(self._every)
                self._rows_came.clear()
                await self._compact()
        finally:
            self._worker.stop()

    async def _compact(self) -> None:
        try:
            for table in self._tables:
                done = await self._worker.run(partial(table.compact, self._target))
                self._counts.compacted += done.before
                if done.before:
                    log.info(
                        "sink %s: %d files are %d now, of %d bytes",
                        self._name,
                        done.before,
                        done.after,
                        done.bytes,
                        extra={"sink": self._name, "before": done.before, "after": done.after, "bytes": done.bytes},
                    )
        except Exception as error:
            log.warning("sink %s: its files cannot be put together: %s: %s", self._name, type(error).__name__, error)
