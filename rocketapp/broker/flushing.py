"""Flushes the store, and holds back the replies that wait for it.

With `flush = "sync"` a reply leaves when everything that its request appended survives a loss of power. That is decided
here for all requests alike: a reply waits for a position of the log, replies leave in the order of positions, and one
sync serves all that wait when it begins. Only a pull or pop that was held is answered past them: without its
checkpoint, what it brought is handed out again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from rocketapp.broker.request_dispatch import Process, not_stored
from rocketapp.broker.store.consume_queues import Queues
from rocketapp.broker.store.flush import Flush
from rocketapp.broker.store.store import MessageStore
from rocketapp.errors import StoreError
from rocketapp.transport.connection import Connection
from rocketapp.wire.command import Command


class _Reply(NamedTuple):
    """A reply that waits for a position of the log."""

    position: int
    connection: Connection
    command: Command
    response: Command


class Flusher:
    """The flushes of one store: one at a time, in a thread if there is one."""

    def __init__(self, store: MessageStore, *, in_thread: bool) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(1, "rocketapp-broker-disk") if in_thread else None
        self.on_flushed: Callable[[], object] = bool
        """Called when more of the log is durable; the owner of who waits for that replaces it."""
        self._flushing = asyncio.Lock()
        self._waiting: deque[_Reply] = deque()
        self._are_waiting = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Flusher {len(self._waiting)} replies wait>"

    async def run(self, work: Callable[[], None]) -> None:
        """Run disk work, in the thread if there is one, so that the event loop does not wait for the disk."""
        if self._threads is None:
            work()
        else:
            await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def flush(self) -> None:
        """The flush of the log that comes from time to time; the queues take part in some of them."""
        async with self._flushing:
            await self._finish(self._store.begin_flush())

    async def log_first(self) -> bool:
        """Flush the log before a table is saved that describes it; whether all that was appended is durable now."""
        end = self._store.end_position
        await self._flush_to(end)
        return self._store.durable_position >= end

    async def end_delete(self, doomed: Queues, remove: Callable[[str], None]) -> None:
        """Delete what the store has forgotten. The event loop waits for no disk. Raises StoreError: it stays."""
        store = self._store
        async with self._flushing:
            store.distrust_hint()
            await self._finish(store.begin_flush(everything=True))
            paths = store.end_delete(doomed)

        def remove_all() -> None:
            for path in paths:
                remove(path)

        try:
            await self.run(remove_all)
        finally:
            store.deleted(doomed)

    def holding(self, table: Mapping[int, Process]) -> dict[int, Process]:
        """The same processors, whose replies wait until what they appended is durable."""
        return {code: self._hold(process) for code, process in table.items()}

    async def answer(self) -> None:
        """Flush whenever replies wait, and let them go; until cancelled."""
        while True:
            await self._are_waiting.wait()
            self._are_waiting.clear()
            await self._flush_to(self._waiting[-1].position)
            self._release()
            await asyncio.sleep(0)  # whatever the disk does, others have their turn

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    def _hold(self, process: Process) -> Process:
        store, waiting = self._store, self._waiting

        def processed(connection: Connection, command: Command) -> Command | None:
            before = store.end_position
            response = process(connection, command)
            if response is None or store.end_position == before:
                return response
            waiting.append(_Reply(store.end_position, connection, command, response))
            self._are_waiting.set()
            return None

        return processed

    def _release(self) -> None:
        store, waiting = self._store, self._waiting
        while waiting and (waiting[0].position <= store.durable_position or store.problem is not None):
            position, connection, command, response = waiting.popleft()
            if position > store.durable_position:
                response = not_stored(command, StoreError(store.problem or "", True))
            if not connection.is_closed:
                connection.reply(response)
        if waiting:
            self._are_waiting.set()

    async def _flush_to(self, position: int) -> None:
        async with self._flushing:
            if self._store.durable_position < position:
                await self._finish(self._store.begin_flush(log_only=True))

    async def _finish(self, flush: Flush | None) -> None:
        if flush is not None:
            await self.run(flush.run)
            self._store.end_flush(flush)
            self.on_flushed()
