"""Reads the whole log again once in a while, slowly: damage is found and mended before anybody wants the message.

The log is read in its order, and the disk's thread brings what is not in memory. In turns of the loop each queue is
then read as for a consumer, which checks every record together with its entry, makes bad entries again from the log,
and reports what is lost. Java has nothing like it.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from rocketapp.broker.indexing import Run
from rocketapp.broker.store.reading import MOST_BYTES, MOST_MESSAGES, ReadStatus
from rocketapp.broker.store.store import MessageStore
from rocketapp.config.broker import BrokerConfig
from rocketapp.errors import StoreError
from rocketapp.model.event import LoopFailed, Observe

FIRST = 10.0
"""Seconds after the start: what clients do then comes first."""
_SLICE_BYTES = 65_536
"""Bytes of the log that are parsed in one turn of the loop: some 2 ms where records are small."""
_AHEAD_BYTES = 1 << 20
_MENDING, _MOST_LOOKS = 0.1, 600
"""Seconds between two looks at a queue that is being made again, and how many there are at most."""


class Scrub:
    """The search for damage in one store."""

    def __init__(self, store: MessageStore, config: BrokerConfig, *, observe: Observe, run: Run) -> None:
        self._store, self._config, self._observe, self._run = store, config, observe, run
        self._next: dict[tuple[str, int], int] = {}
        """By queue: the offset at which its next reading begins."""
        self._brought = 0
        self.position: int = 0
        """Where the log is read next, or was read last."""
        self.damaged: int = 0
        """Messages that were found damaged since the start. Each reading of the log counts them again."""

    def __repr__(self) -> str:
        return f"<Scrub at {self.position}: {self.damaged} damaged>"

    async def run(self) -> None:
        """Read the log again and again, until cancelled."""
        await asyncio.sleep(FIRST)
        while self._config.scrub_rate:
            try:
                await self._read_log()
            except Exception as error:
                # The next round tries again.
                self._observe(LoopFailed("scrub", f"{type(error).__name__}: {error}"))
            await asyncio.sleep(self._config.scrub_interval)

    async def _read_log(self) -> None:
        """Read what is there now."""
        store, end = self._store, self._store.end_position
        ends = {place: queue.max_offset for place, queue in store.queues.items()}
        store.log.begin_search()
        self.position = self._brought = store.begin_position
        self._next.clear()
        while self.position < end:
            before = max(self.position, store.begin_position)
            await self._bring(before, end)
            found: dict[tuple[str, int], int] = {}
            self.position = min(before + _SLICE_BYTES, end)
            for stored in store.records(before, self.position):
                if stored.is_queued:
                    found[stored.topic, stored.queue_id] = stored.queue_offset
                self.position = stored.physical + stored.size
            for queue, last in found.items():
                await self._read_queue(queue, last)
            await asyncio.sleep((self.position - before) / self._config.scrub_rate)
        if all([await self._read_queue(queue, max_offset - 1) for queue, max_offset in ends.items()]):
            store.log.end_search()

    async def _bring(self, position: int, end: int) -> None:
        """Let the disk bring what is parsed next. Where it cannot, that is seen then."""
        while self._brought < min(position + _AHEAD_BYTES, end):
            at, self._brought = self._brought, self._brought + _AHEAD_BYTES
            with contextlib.suppress(OSError):
                segment = self._store.log.open_segment(at)
                with contextlib.closing(segment.file):
                    await self._run(partial(segment.file.read, _AHEAD_BYTES, at - segment.start))

    async def _read_queue(self, queue: tuple[str, int], last: int) -> bool:
        """Go on in a queue up to this offset; False if it is being made again for too long."""
        await asyncio.sleep(0)
        store = self._store
        offset = max(self._next.get(queue, 0), store.min_offset(*queue))
        looks = 0
        while offset <= last and looks < _MOST_LOOKS:
            await asyncio.sleep(0)
            most = min(last + 1 - offset, MOST_MESSAGES)
            try:
                result = store.read(*queue, offset, max_messages=most, max_bytes=MOST_BYTES)
            except StoreError:
                looks += 1
                await asyncio.sleep(_MENDING)
                continue
            if result.next_offset <= offset:  # its topic was deleted
                break
            if result.status in (ReadStatus.FOUND, ReadStatus.NO_MATCHED_MESSAGE):
                self.damaged += result.next_offset - offset - result.count
            offset = result.next_offset
        self._next[queue] = offset
        return looks < _MOST_LOOKS
