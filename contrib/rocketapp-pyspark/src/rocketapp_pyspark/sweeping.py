"""What was staged and never published is removed: behind the first commit of a run, and then once a day."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from rocketapp_pyspark.counts import Counts
from rocketapp_pyspark.store import Store
from rocketapp_pyspark.worker import Worker

log = logging.getLogger("rocketapp.spark")

SWEEP_AFTER = 86_400.0
"""Seconds after which it is removed."""
SWEEP_EVERY = 86_400.0
"""Seconds from one look for it to the next one."""


class Sweeping:
    """Of one sink."""

    def __init__(self, name: str, store: Store, worker: Worker, counts: Counts) -> None:
        self._name, self._store, self._worker, self._counts = name, store, worker, counts
        self._due_at = 0.0

    async def committed(self) -> None:
        """There is a new commit."""
        now = asyncio.get_running_loop().time()
        if now < self._due_at:
            return
        self._due_at = now + SWEEP_EVERY
        try:
            swept = await self._worker.run(partial(self._store.sweep, SWEEP_AFTER))
        except Exception as error:
            log.warning("sink %s: what was never published cannot be removed: %s", self._name, error)
        else:
            self._counts.swept += swept
            if swept:
                log.info("sink %s: removed %d batches that were never published", self._name, swept)
