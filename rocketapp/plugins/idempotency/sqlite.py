"""Marks in one file: they survive the process, also when it is killed, and the processes of a machine share them.

One thread owns the connection. What handlers ask for while it writes goes into its next
transaction: sixty-four handlers at once cost one commit, not sixty-four.

Write-ahead log, `synchronous=NORMAL`: a killed process loses nothing that was answered; a power
cut may lose the last marks, which can repeat an effect and never lose a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from rocketapp import ConfigError
from rocketapp.plugin import CLAIMED, DONE, Answer, Claim, MarkState

_BUSY = 5.0
"""Seconds to wait for another process that writes."""
_MOST_AT_ONCE = 256
"""Calls in one transaction."""
_SWEEP = 60.0
"""Seconds between two looks for marks that have expired, when the last one has removed them all."""
_MOST_SWEPT = 1_000
"""Marks removed in one transaction: more than it can add, and few, because handlers wait for it."""
_TABLE = """
CREATE TABLE IF NOT EXISTS marks (
    key TEXT PRIMARY KEY,
    holder TEXT,  -- NULL: done
    since REAL NOT NULL,  -- seconds since 1970
    until REAL NOT NULL
) WITHOUT ROWID
"""
_INDEX = "CREATE INDEX IF NOT EXISTS marks_until ON marks (until)"
_CHECK = "SELECT key, holder, since, until FROM marks LIMIT 0"
_CLAIM = """
INSERT INTO marks (key, holder, since, until) VALUES (:key, :holder, :now, :until)
ON CONFLICT (key) DO UPDATE SET holder = excluded.holder, since = excluded.since, until = excluded.until
WHERE marks.until <= :now OR marks.holder = excluded.holder
"""
_BEGIN_AGAIN = "UPDATE marks SET until = until - since + :now, since = :now WHERE key = :key"
_DONE = "INSERT OR REPLACE INTO marks (key, holder, since, until) VALUES (?, NULL, ?, ?)"
_RELEASE = "DELETE FROM marks WHERE key = ? AND holder = ?"
_EXPIRE = "DELETE FROM marks WHERE key IN (SELECT key FROM marks WHERE until <= ? ORDER BY until LIMIT ?)"

Work = Callable[[sqlite3.Connection, float], Any]
"""What one call does within a transaction, given the time of day."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of the store, on its way to the thread and back."""

    work: Work
    answer: asyncio.Future[Any]


class SQLiteStore:
    """An IdempotencyStore in a file."""

    def __init__(self, path: str | Path, now: Callable[[], float] | None = None) -> None:
        """`now()`: seconds since 1970. Leases of other processes have to be understood, so it is the time of day."""
        self._path, self._now = Path(path), now or _time_of_day
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Event
        self._next_sweep = 0.0

    def __repr__(self) -> str:
        return f"<SQLiteStore {self._path}>"

    async def open(self) -> None:
        """Open or create the file. Raises ConfigError when that is not possible."""
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        opened: asyncio.Future[None] = self._loop.create_future()
        # A daemon, so that a disk that hangs does not keep a process that wants to end.
        thread = threading.Thread(target=self._main, args=(opened,), name=f"idempotency {self._path}", daemon=True)
        thread.start()
        try:
            await opened
        except (OSError, ValueError, sqlite3.Error) as error:
            problem = f"{self._path} cannot be used: {error}: name a file that this process may write to, and that "
            problem += "holds marks or is new"
            raise ConfigError("idempotency.path", problem) from error
        self._thread = thread

    async def close(self) -> None:
        """Wait until everything that was asked for is written."""
        if self._thread is not None:
            self._thread = None
            self._calls.put(None)
            await self._ended.wait()

    async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
        answers: list[Answer] = await self._ask(
            lambda connection, now: [_claimed(connection, one, lease, now) for one in claims]
        )
        return answers

    async def done(self, keys: Sequence[str], *, expiry: float) -> None:
        await self._ask(
            lambda connection, now: connection.executemany(_DONE, [(key, now, now + expiry) for key in keys])
        )

    async def release(self, claims: Sequence[Claim]) -> None:
        await self._ask(lambda connection, _now: connection.executemany(_RELEASE, claims))

    async def _ask(self, work: Work) -> Any:
        if self._thread is None:
            raise sqlite3.ProgrammingError("the store is closed")
        call = _Call(work, self._loop.create_future())
        self._calls.put(call)
        return await call.answer

    # In the thread.

    def _main(self, opened: asyncio.Future[None]) -> None:
        connection: sqlite3.Connection | None
        try:
            connection = self._connect()
        except Exception as error:
            self._on_loop(_settle, [(opened, None, error)])
            return
        self._on_loop(_settle, [(opened, None, None)])
        while (calls := self._next_calls()) is not None:
            try:
                connection = connection or self._connect()
                self._serve(connection, calls)
            except Exception as error:
                # This thread must not end: every handler would wait for it for ever.
                _closed(connection)
                connection = None
                said = f"{type(error).__name__}: {error}"
                # One exception for each caller: a raised exception collects the traceback of its caller.
                self._on_loop(_settle, [(call.answer, None, sqlite3.OperationalError(said)) for call in calls])
        _closed(connection)
        self._on_loop(self._ended.set)

    def _connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=_BUSY, isolation_level=None)
        try:
            _use_wal(connection)
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(_TABLE)
            connection.execute(_INDEX)
            connection.execute(_CHECK)
        except BaseException:
            connection.close()
            raise
        return connection

    def _next_calls(self) -> list[_Call] | None:
        """Wait for a call and take those behind it; None at the end."""
        first = self._calls.get()
        if first is None:
            return None
        calls = [first]
        while len(calls) < _MOST_AT_ONCE:
            try:
                call = self._calls.get_nowait()
            except Empty:
                break
            if call is None:
                self._calls.put(None)
                break
            calls.append(call)
        return calls

    def _serve(self, connection: sqlite3.Connection, calls: list[_Call]) -> None:
        """All of them in one transaction: what is answered is written."""
        now = self._now()
        connection.execute("BEGIN IMMEDIATE")
        answers = [(call.answer, call.work(connection, now), None) for call in calls]
        if now >= self._next_sweep:
            removed = connection.execute(_EXPIRE, (now, _MOST_SWEPT)).rowcount
            self._next_sweep = now if removed == _MOST_SWEPT else now + _SWEEP
        connection.execute("COMMIT")
        self._on_loop(_settle, answers)

    def _on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            return  # the loop is closed, and the callers with it


def _use_wal(connection: sqlite3.Connection) -> None:
    """Readers then do not wait for the writer. The file keeps the mode."""
    try:
        connection.execute("PRAGMA journal_mode=WAL")
    except sqlite3.OperationalError as error:
        # Refused at once, without waiting, while another process makes the same file. Without it marks are as safe.
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise


def _time_of_day() -> float:
    return datetime.now(UTC).timestamp()


def _claimed(connection: sqlite3.Connection, claim: Claim, lease: float, now: float) -> Answer:
    key, holder = claim
    taken = connection.execute(_CLAIM, {"key": key, "holder": holder, "until": now + lease, "now": now})
    if taken.rowcount:
        return CLAIMED
    has, since, until = connection.execute("SELECT holder, since, until FROM marks WHERE key = ?", (key,)).fetchone()
    if since > now:
        # The clock went back: an hour must not make a lease an hour longer.
        connection.execute(_BEGIN_AGAIN, {"key": key, "now": now})
        until = until - since + now
    return DONE if has is None else Answer(MarkState.RUNNING, has, until - now)


def _closed(connection: sqlite3.Connection | None) -> None:
    """Rolls back what is open, and ends whatever is wrong with the connection: the next call gets a new one."""
    if connection is not None:
        with contextlib.suppress(sqlite3.Error):
            connection.close()


def _settle(outcomes: Sequence[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    """Each with its answer, or what is raised in its place. A caller that was cancelled hears nothing."""
    for future, value, error in outcomes:
        if future.done():
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
