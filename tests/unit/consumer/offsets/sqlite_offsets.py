"""An offset store in a SQLite file: an example of what an author writes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rocketapp import MessageQueue
from rocketapp.plugin import Taken

T = TypeVar("T")
_TABLE = """
    create table if not exists offsets (
        group_name text, topic text, broker text, queue integer, epoch integer not null, position integer,
        primary key (group_name, topic, broker, queue)
    ) without rowid
"""
_WHERE = "where group_name = ? and topic = ? and broker = ? and queue = ?"


class SQLiteOffsets:
    """One connection in one thread. Processes of one machine share the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1)

    async def open(self) -> None:
        await self._run(self._open)

    async def close(self) -> None:
        if self._opened is not None:
            await self._run(self._opened.close)
        self._thread.shutdown()

    async def take(self, group: str, queue: MessageQueue) -> Taken:
        def take() -> Taken:
            with self._database as database:
                row = database.execute(
                    "insert into offsets values (?, ?, ?, ?, 1, null)"
                    " on conflict do update set epoch = epoch + 1 returning epoch, position",
                    (group, *queue),
                ).fetchall()[0]
            return Taken(*row)

        return await self._run(take)

    async def read(self, group: str, queue: MessageQueue) -> int | None:
        def read() -> int | None:
            row = self._database.execute(f"select position from offsets {_WHERE}", (group, *queue)).fetchone()
            return None if row is None else row[0]

        return await self._run(read)

    async def write(self, group: str, queue: MessageQueue, offset: int, epoch: int) -> bool:
        def write() -> bool:
            with self._database as database:
                if epoch == 0:
                    statement = "insert into offsets values (?, ?, ?, ?, 0, ?) on conflict do nothing"
                    return database.execute(statement, (group, *queue, offset)).rowcount == 1
                statement = f"update offsets set position = ? {_WHERE} and epoch = ?"
                return database.execute(statement, (offset, group, *queue, epoch)).rowcount == 1

        return await self._run(write)

    @property
    def _database(self) -> sqlite3.Connection:
        assert self._opened is not None
        return self._opened

    def _open(self) -> None:
        self._opened = sqlite3.connect(self._path, timeout=5.0)
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = full")
        with self._database as database:
            database.execute(_TABLE)

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
