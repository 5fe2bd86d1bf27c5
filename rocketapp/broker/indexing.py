"""Follows the log into the key index, behind the messages and never in their way.

A send pays nothing for its keys. While messages come, the index takes in some of them each second; who asks for a key
waits until it has the rest, in turns of the loop that leave time to others. Only what is durable is taken in, so that
the index never leads behind the end of a log that was cut.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import islice

from rocketapp.broker.store.key_index import KeyIndex
from rocketapp.broker.store.store import MessageStore
from rocketapp.broker.store.stored import Stored
from rocketapp.errors import BrokerError
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.wire.codes import ResponseCode

_SLICE = 200
"""Records that are taken in in one turn of the loop: some 3 ms."""
_A_ROUND, _FOR_A_QUESTION = 2000, 200_000
"""Records that are taken in between two questions, and most that a question, or a stop, waits for."""
_MOST_QUESTIONS = 1024

Run = Callable[[Callable[[], object]], Awaitable[None]]
"""Runs work where the event loop does not wait for the disk."""


class Indexing:
    """The index of one store, and the questions that wait for it. The owner of the timer calls `follow`."""

    def __init__(
        self,
        store: MessageStore,
        index: KeyIndex,
        *,
        observe: Observe,
        run: Run,
        log_first: Callable[[], Awaitable[bool]],
    ) -> None:
        self._store, self._index, self._observe = store, index, observe
        self._run, self._log_first = run, log_first
        self._position = min(index.position, store.recovered_end)
        self._records: Iterator[Stored] = iter(())
        self._limit = 0
        self._questions: deque[Callable[[], None]] = deque()
        self._are_asked = asyncio.Event()
        self._taking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Indexing {self._store.end_position - self._position} bytes behind, {len(self._questions)} questions>"

    def ask(self, question: Callable[[], None]) -> None:
        """Call this when the index has what is stored now. Raises BrokerError when too many wait."""
        if len(self._questions) >= _MOST_QUESTIONS:
            raise BrokerError(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{_MOST_QUESTIONS} questions wait already")
        self._questions.append(question)
        self._are_asked.set()

    async def follow(self) -> None:
        """Take in some of what is new."""
        await self._take(_A_ROUND)

    async def answer(self) -> None:
        """Answer questions, until cancelled."""
        while True:
            await self._are_asked.wait()
            self._are_asked.clear()
            count = len(self._questions)
            try:
                await self._log_first()
                await self._take(_FOR_A_QUESTION)
            except OSError as error:  # what was taken in before is found
                self._observe(LoopFailed("index", str(error)))
            for _ in range(count):
                self._questions.popleft()()
                await asyncio.sleep(0)

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Positions of messages that may have this key and time, the newest first."""
        return self._index.find(topic, key, begin_ms, end_ms)

    def begin_at(self, position: int) -> list[str]:
        """The log begins here; return the index files that nobody needs any more."""
        return self._index.begin_at(position)

    def close(self) -> None:
        """Take in the rest: called before the store is closed."""
        left = _FOR_A_QUESTION
        try:
            while left > 0 and (count := self._take_slice()):
                left -= count
            self._index.sync(self._index.to_sync())
        except OSError as error:
            self._observe(LoopFailed("index", str(error)))
        self._index.close()

    async def _take(self, most: int) -> None:
        async with self._taking:
            while most > 0 and (count := self._take_slice()):
                most -= count
                await asyncio.sleep(0)
            taken = self._index.to_sync()
            if taken:
                await self._run(partial(self._index.sync, taken))
                self._index.synced(taken)
                self._store.indexed(self._index.last_ms)

    def _take_slice(self) -> int:
        """Take in some records, and return how many; 0: there are no more."""
        store = self._store
        if self._position < store.begin_position:
            self._position, self._limit = store.begin_position, 0
        if self._position >= self._limit:
            if self._position >= store.durable_position:
                return 0
            self._limit = store.durable_position
            self._records = store.records(self._position, self._limit)
        count = self._index.follow(islice(self._records, _SLICE))
        self._position = self._index.position if count == _SLICE else self._limit
        return max(count, 1)
