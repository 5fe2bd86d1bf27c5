"""Flushes the store, writes changed topics and groups, and holds back the replies that wait for either.

With `flush = "sync"` a reply leaves when everything that its request appended survives a loss of power. While a change
of topics or groups is not written, no reply leaves that may count on it. That is decided here for all requests alike:
a reply waits for a position of the log and for a change, replies leave in their order, and one sync serves all that
wait when it begins. A send to a topic that is on disk counts on no other one. Pulls are answered past them, and so is
a pop that was held: without its checkpoint, what it brought is handed out again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from rocketapp.broker.core import Tell, ended
from rocketapp.broker.request_dispatch import check_answer
from rocketapp.broker.saving import Saving
from rocketapp.broker.store.consume_queues import Queues
from rocketapp.broker.store.flush import Flush
from rocketapp.broker.store.store import MessageStore
from rocketapp.errors import BrokerError, StoreError
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.transport.answers import Process, Served, response_of
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.command import Command

MOST_UNFLUSHED = 33_554_432
"""Bytes that wait for the disk with `flush = "sync"`, and what is kept for their answers; above it sends are refused.
Until then bodies stay in memory."""
_Result = TypeVar("_Result")
Answer = Callable[[int, Connection, Command, Command], None]
"""Sends the reply to a command, when all of the log up to this position is durable."""


def reply(position: int, connection: Connection, command: Command, response: Command) -> None:
    """Send it at once."""
    connection.reply(response)


class DiskThread:
    """A thread for disk work, so that the event loop does not wait for the disk. Files in memory need none."""

    def __init__(self, name: str, *, in_thread: bool) -> None:
        self._threads = ThreadPoolExecutor(1, name) if in_thread else None

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Do this work, also when the caller is cancelled: `close` waits for it."""
        if self._threads is None:
            return work()
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._threads, work))

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()


class _Waiting(NamedTuple):
    """Who is told when the log is durable up to a position, and the names with a change; 0 is always there."""

    position: int
    change: int
    tell: Tell


class Flusher(DiskThread):
    """The flushes of one store: one at a time, in a thread if there is one."""

    def __init__(
        self, store: MessageStore, saving: Saving, *, observe: Observe, is_sync: bool, in_thread: bool
    ) -> None:
        super().__init__("rocketapp-broker-disk", in_thread=in_thread)
        self._store, self._saving, self._observe, self._is_sync = store, saving, observe, is_sync
        self.on_flushed: Callable[[], object] = bool
        """Called when more of the log is durable; the owner of who waits for that replaces it."""
        self.answered: Answer = reply
        """Sends a reply that has waited; who makes it wait for slaves as well replaces it."""
        self._flushing = asyncio.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._changes = self._written = 0
        """Changes of topics and groups, and how many of them are written."""
        self._is_again = False
        """Whether to write them once more: a change was taken back, and the file may contain a part of it."""
        self._are_waiting = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Flusher {len(self._waiting)} replies wait>"

    async def flush(self) -> None:
        """The flush of the log that comes from time to time; the queues take part in some of them."""
        async with self._flushing:
            await self._finish(self._store.begin_flush())

    async def log_first(self) -> bool:
        """Flush the log before a table is saved that describes it; whether all that was appended is durable now."""
        end = self._store.end_position
        await self._flush_to(end)
        return self._store.durable_position >= end

    def save_names(self, tell: Tell | None) -> None:
        """Topics or groups have changed: write them soon, once for all changes that come meanwhile.

        `tell` is called when they are on disk, or with the error: then no change since the last write remains.
        """
        self._changes += 1
        if tell is not None:
            self._waiting.append(_Waiting(0, self._changes, tell))
        self._are_waiting.set()

    def save_names_again(self) -> None:
        """Write what could not be written when it changed. It was taken back, so no reply waits for it."""
        self._is_again = True
        self._are_waiting.set()

    async def end_delete(self, doomed: Queues) -> None:
        """Delete what the store has forgotten, when its name is gone. The event loop waits for no disk.

        Raises StoreError: it stays.
        """
        store = self._store
        try:
            await ended(self.save_names)
            async with self._flushing:
                store.distrust_hint()
                await self._finish(store.begin_flush(everything=True))
                paths = store.end_delete(doomed)
        except StoreError:
            store.cancel_delete(doomed)
            raise
        try:
            await self.run(lambda: deque(map(store.files.remove, paths), maxlen=0))
        except OSError as error:
            raise StoreError(str(error)) from error
        finally:
            store.deleted(doomed)

    def holding(self, table: Mapping[int, Served]) -> dict[int, Served]:
        """The same processors, whose replies wait until what they appended or changed is durable."""
        return {code: row._replace(process=self._hold(row.process)) for code, row in table.items()}

    async def answer(self) -> None:
        """Flush whenever replies wait, and let them go; until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._are_waiting.wait()
            self._are_waiting.clear()
            while self._is_again or self._written < self._changes:
                whole, self._is_again = self._is_again, False
                await self._write_names(whole=whole)
            if self._waiting:
                await self._flush_to(max(position for position, _, _ in self._waiting))
            loop.call_soon(self._release)  # while the next sync is under way

    def _hold(self, process: Process) -> Process:
        store = self._store

        def processed(connection: Connection, command: Command) -> Command | None:
            before = store.end_position
            response = process(connection, command)
            end, is_sync = store.end_position, self._is_sync and store.end_position != before
            if response is None or command.is_one_way or not self.waits(has_appended=is_sync):
                return response
            check_answer(response)
            answer = self.answered if is_sync else reply

            def tell(error: StoreError | None) -> None:
                if error is None:
                    answer(end, connection, command, response)
                else:
                    connection.reply(response_of(command, StoreError(error.problem, end != before)))

            self.wait(tell, has_appended=is_sync)
            return None  # it is sent later, because something of it has to be durable first

        return processed

    def check_room(self, kept_bytes: int) -> None:
        """Raises BrokerError when so much waits for the disk that nothing more is taken. `kept_bytes`: for answers."""
        store = self._store
        unflushed = store.end_position - store.durable_position if self._is_sync else 0
        if unflushed + kept_bytes > MOST_UNFLUSHED and not store.problem:
            behind = f"[OVERLOAD]{MOST_UNFLUSHED >> 20} MiB wait for the disk already"
            raise BrokerError(ResponseCode.SYSTEM_BUSY, behind)

    def waits(self, *, has_appended: bool, topics: Iterable[str] | None = None) -> bool:
        """Whether a response has to wait until something is durable. `topics`: it counts on no other ones."""
        if self._is_sync and has_appended:
            return True
        return self._changes != self._written and (topics is None or not all(map(self._saving.is_written, topics)))

    def wait(self, tell: Tell, *, has_appended: bool, topics: Iterable[str] | None = None) -> None:
        """Call `tell` when what was appended and changed until now is durable. `topics`: it counts on no other ones."""
        position = self._store.end_position if self._is_sync and has_appended else 0
        change = self._changes if self.waits(has_appended=False, topics=topics) else 0
        self._waiting.append(_Waiting(position, change, tell))
        self._are_waiting.set()

    def _release(self) -> None:
        store, waiting = self._store, self._waiting
        while waiting and waiting[0].change <= self._written:
            position, _, tell = waiting[0]
            is_durable = position <= store.durable_position
            if not is_durable and store.problem is None:
                break
            waiting.popleft()
            self._tell(tell, None if is_durable else StoreError(store.problem or ""))

    def _tell(self, tell: Tell, error: StoreError | None) -> None:
        try:
            tell(error)
        except Exception as failure:  # costs that one, and not those that wait behind it
            self._observe(LoopFailed("replies", f"{type(failure).__name__}: {failure}"))

    async def _write_names(self, *, whole: bool) -> None:
        """Write the topics and groups as they are now. After an error all that has changed since is taken back."""
        changes = self._changes
        try:
            saves = self._saving.names_to_save(whole=whole)
            await self.run(lambda: [save() for save in saves])
        except Exception as error:  # also what cannot be rendered: no reply may wait for ever
            self._saving.undo_names()
            undone = [waits for waits in self._waiting if waits.change > self._written]
            self._waiting = deque(waits for waits in self._waiting if waits.change <= self._written)
            self._written = self._changes
            for waits in undone:
                self._tell(waits.tell, StoreError(f"topics and groups cannot be written: {error}"))
        else:
            self._saving.names_written()
            self._written = changes

    async def _flush_to(self, position: int) -> None:
        async with self._flushing:
            if self._store.durable_position < position:
                await self._finish(self._store.begin_flush(log_only=True))

    async def _finish(self, flush: Flush | None) -> None:
        if flush is not None:
            try:
                await self.run(flush.run)
            except Exception as error:  # a flush that does not end lets none begin
                flush.fatal = error
            self._store.end_flush(flush)
            self.on_flushed()
