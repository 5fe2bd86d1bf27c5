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
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from rocketapp import ConfigError
from rocketapp.plugin import CLAIMED, DONE, Answer, Claim, MarkState

T = TypeVar("T")
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


Job = tuple[Future[Any], Callable[[], Any]]
"""What the thread calls, and where it answers."""


class SQLiteStore:
    """An IdempotencyStore in a file."""

    def __init__(self, path: str | Path, now: Callable[[], float] | None = None) -> None:
        """`now()`: seconds since 1970. Leases of other processes have to be understood, so it is the time of day."""
        self._path, self._now = Path(path), now or _time_of_day
        self._waiting: list[tuple[Work, asyncio.Future[Any]]] = []
        """What is asked for while the thread writes."""
        self._is_open = False
        self._writing: asyncio.Future[list[Any]] | None = None
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        """What the thread does next; None ends it."""
        self._connection: sqlite3.Connection | None = None
        self._next_sweep = 0.0

    def __repr__(self) -> str:
        return f"<SQLiteStore {self._path}>"

    async def open(self) -> None:
        """Open or create the file. Raises ConfigError when that is not possible."""
        # A daemon, and no executor's thread: a disk that hangs does not keep a process that wants to end.
        name = f"idempotency {self._path}"
        threading.Thread(target=_work_off, args=(self._jobs,), name=name, daemon=True).start()
        try:
            await self._in_thread(self._connect)
        except (OSError, ValueError, sqlite3.Error) as error:
            self._jobs.put(None)
            problem = f"{self._path} cannot be used: {error}: name a file that this process may write to, and that "
            problem += "holds marks or is new"
            raise ConfigError("idempotency.path", problem) from error
        self._is_open = True

    async def close(self) -> None:
        """Wait until everything that was asked for is written."""
        if self._is_open:
            self._is_open = False
            while self._writing is not None:  # also what a cancelled caller has asked for
                await asyncio.wait([self._writing])
            await self._in_thread(self._close)
            self._jobs.put(None)

    async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
        answers: list[Answer] = await self._ask(
            lambda connection, now: [_claimed(connection, one, lease, now) for one in claims]
        )
        return answers

    async def done(self, keys: Sequence[str], *, expiry: float) -> None:
        # A cursor must not leave the thread: where it is freed, the connection would be used as well.
        def work(connection: sqlite3.Connection, now: float) -> None:
            connection.executemany(_DONE, [(key, now, now + expiry) for key in keys])

        await self._ask(work)

    async def release(self, claims: Sequence[Claim]) -> None:
        def work(connection: sqlite3.Connection, _now: float) -> None:
            connection.executemany(_RELEASE, claims)

        await self._ask(work)

    async def _ask(self, work: Work) -> Any:
        if not self._is_open:
            raise sqlite3.ProgrammingError("the store is closed")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, answer))
        if self._writing is None:
            self._write()
        return await answer

    def _write(self) -> None:
        """Have the thread process all waiting requests in one transaction."""
        calls, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
        self._writing = self._in_thread(self._serve, [work for work, _ in calls]) if calls else None
        if self._writing is not None:
            self._writing.add_done_callback(partial(self._written, [answer for _, answer in calls]))

    def _written(self, asked: Sequence[asyncio.Future[Any]], writing: asyncio.Future[list[Any]]) -> None:
        """A caller that was cancelled hears nothing."""
        error = writing.exception()
        for number, answer in enumerate(asked):
            if error is None and not answer.done():
                answer.set_result(writing.result()[number])
            elif not answer.done():
                kind = "" if isinstance(error, sqlite3.OperationalError) else f"{type(error).__name__}: "
                # One exception for each caller: a raised exception collects the traceback of its caller.
                answer.set_exception(sqlite3.OperationalError(f"{kind}{error}"))
        self._write()

    def _in_thread(self, call: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        answer: Future[T] = Future()
        self._jobs.put((answer, partial(call, *arguments)))
        return asyncio.wrap_future(answer)

    # In the thread.

    def _connect(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = connection = sqlite3.connect(self._path, timeout=_BUSY, isolation_level=None)
        try:
            _use_wal(connection)
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(_TABLE)
            connection.execute(_INDEX)
            connection.execute(_CHECK)
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        """Rolls back what is open, and ends whatever is wrong with the connection: the next call gets a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _serve(self, works: Sequence[Work]) -> list[Any]:
        """All of them in one transaction: what is answered is written."""
        try:
            if self._connection is None:
                self._connect()
            connection, now = self._connection, self._now()
            assert connection is not None, "it is connected"
            connection.execute("BEGIN IMMEDIATE")
            answers = [work(connection, now) for work in works]
            if now >= self._next_sweep:
                removed = connection.execute(_EXPIRE, (now, _MOST_SWEPT)).rowcount
                self._next_sweep = now if removed == _MOST_SWEPT else now + _SWEEP
            connection.execute("COMMIT")
        except Exception:
            self._close()
            raise
        return answers


def _work_off(jobs: SimpleQueue[Job | None]) -> None:
    """The main function of a store's thread."""
    while (job := jobs.get()) is not None:
        answer, call = job
        if answer.set_running_or_notify_cancel():
            try:
                answer.set_result(call())
            except Exception as error:
                answer.set_exception(error)


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
