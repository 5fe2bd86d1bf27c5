"""One session of one queue of a sink: takes messages for the writer, and waits for it when the queue is given back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketapp.plugin import QueueSession, StoredRecords
from rocketapp_pyspark.lanes import Lane

if TYPE_CHECKING:
    from rocketapp_pyspark.writer import Writer

log = logging.getLogger("rocketapp.spark")


class SinkIntake:
    """One session of one queue (rocketapp.plugin.RecordsIntake)."""

    def __init__(self, writer: Writer, lane: Lane, session: QueueSession, start: int) -> None:
        self._writer, self.lane, self.session = writer, lane, session
        self.next = start
        """Everything below was taken, or is in the table."""
        self.is_over = False
        self.is_stopped = False
        """Too much of it is bad: nothing of it is taken, and its messages stay unacknowledged."""
        self._drain_until: float | None = None

    @property
    def is_alive(self) -> bool:
        """Whether its rows are still to be written."""
        return not self.is_over and not self.is_stopped

    def take(self, records: Sequence[StoredRecords]) -> None:
        self._writer.take(self, records)

    async def drain(self) -> None:
        """May be cancelled and called again: the time limit counts from the first call."""
        loop = asyncio.get_running_loop()
        if self._drain_until is None:
            self._drain_until = loop.time() + self._writer.drain_seconds
        try:
            async with asyncio.timeout_at(self._drain_until):
                await self._writer.drained(self)
        except TimeoutError:
            log.warning(
                "sink %s: %s is given back before its batch is written: it comes again", self._writer.name, self.lane
            )

    def discard(self) -> None:
        self.is_over = True
        self._writer.forget(self)
