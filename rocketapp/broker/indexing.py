"""Builds the key index from the log, and serves look-ups by key.

At a start the index is behind: it reads the log in turns of the loop that leave time to others. Afterwards it indexes
each record as it is stored, and look-ups are answered at once. Its files are written from time to time, and contain
nothing that is not durable, so that the index never points behind the end of a log that was cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

from rocketapp.broker.flushing import Flusher
from rocketapp.broker.store.key_index import KeyIndex
from rocketapp.broker.store.store import MessageStore
from rocketapp.broker.store.stored import Stored
from rocketapp.errors import BrokerError
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.wire.codes import ResponseCode

_SLICE = 200
"""Records that are read in one turn of the loop, or fewer with many keys: some 2 ms."""
_PATIENCE = 10.0
"""Seconds that a question waits for an index that is behind. Then it is answered from what is there."""
_LOOK = 0.1
"""Seconds between looks of such a question whether there is room for more keys."""
_MOST_AT_A_STOP = 200_000
"""Records that a stop reads, so that the next start need not."""
_MOST_UNSAVED = 524_288
"""Keys in memory above which the index falls behind, because the disk is slower than they come."""
_MOST_QUESTIONS = 1024

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs work where the event loop does not wait for the disk."""


class Indexing:
    """The key index of one store, and the look-ups that wait for it. The owner of the timer calls `save`."""

    def __init__(self, store: MessageStore, index: KeyIndex, flusher: Flusher, observe: Observe) -> None:
        self._store, self._index, self._flusher, self._observe = store, index, flusher, observe
        index.position = min(index.position, store.recovered_end)
        self._is_current = False
        """Whether it has all that is stored."""
        self._questions = 0
        """How many wait."""
        self._answering = asyncio.Lock()
        self._reading, self._saving = asyncio.Lock(), asyncio.Lock()
        store.followers.append(self._follow)

    def __repr__(self) -> str:
        behind = 0 if self._is_current else self._store.end_position - self._index.position
        return f"<Indexing {behind} bytes behind, {self._questions} questions>"

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[None]:
        """Context manager in which the index is up to date and no other look-up runs.

        Raises BrokerError when too many wait.
        """
        if self._questions >= _MOST_QUESTIONS:
            raise BrokerError(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{_MOST_QUESTIONS} questions wait already")
        self._questions += 1
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._catch_up()
                while not self._is_current:  # there is room when what is in memory is written
                    await asyncio.sleep(_LOOK)
                    await self._catch_up()
        except OSError as error:  # also TimeoutError: what was taken in before is found
            self._observe(LoopFailed("index", str(error) or "it is far behind the log"))
        finally:
            self._questions -= 1
        async with self._answering:
            await asyncio.sleep(0)
            yield

    async def save(self) -> None:
        """Write what was indexed. Raises OSError; the next call tries again."""
        async with self._saving:
            await self._catch_up()
            steps, last_ms = self._index.saving(), self._index.last_ms
            if self._index.unsaved and await self._flusher.log_first():
                # First: after a kill Apache RocketMQ deletes files that go farther.
                self._store.checkpoint.say_indexed(last_ms)
                for step in steps:
                    await self._flusher.run(step)
                    await asyncio.sleep(0)  # in memory no thread does it

    def close(self) -> None:
        """Index the rest: called before the store is closed."""
        left = _MOST_AT_A_STOP
        try:
            while left > 0 and not self._is_current:
                left -= self._read_slice()
            if self._store.durable_position >= self._store.end_position:
                self._store.checkpoint.say_indexed(self._index.last_ms)
                for step in self._index.saving():
                    step()
        except OSError as error:
            self._observe(LoopFailed("index", str(error)))
        self._index.close()

    def _follow(self, records: Sequence[Stored]) -> None:
        """Records were stored: index them, unless it is still behind and will read them anyway."""
        if not self._is_current:
            return
        problem = ""
        try:
            self._is_current = self._index.follow(records) == len(records)
        except OSError as error:  # costs no send: it is tried again
            problem = str(error)
        if self._index.unsaved > _MOST_UNSAVED:
            problem = f"{_MOST_UNSAVED} keys wait for the disk"
        if problem:
            self._is_current = False
            self._observe(LoopFailed("index", problem))

    async def _catch_up(self) -> None:
        """Read what is stored, as far as there is room for its keys. Others have half of the time."""
        loop = asyncio.get_running_loop()
        async with self._reading:
            while not self._is_current and self._index.unsaved <= _MOST_UNSAVED:
                began = loop.time()
                self._read_slice()
                await asyncio.sleep(loop.time() - began)

    def _read_slice(self) -> int:
        """Take in some records of the log; return how many there were, at least 1."""
        index, end = self._index, self._store.end_position
        records = self._store.records(max(index.position, self._store.begin_position), end)
        count = index.follow(islice(records, _SLICE))
        if count < _SLICE and next(records, None) is None:
            index.position, self._is_current = end, True
        return max(count, 1)
