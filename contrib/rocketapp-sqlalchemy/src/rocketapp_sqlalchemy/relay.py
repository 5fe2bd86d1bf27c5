"""Sends what is in the outbox: takes slots, sends their rows in order, removes what was sent."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from rocketapp import RocketAppError
from rocketapp_sqlalchemy.marking import now
from rocketapp_sqlalchemy.tables import outbox, slots

log: logging.Logger = logging.getLogger("rocketapp_sqlalchemy")
_PART = 100
"""Rows of one slot that are read, sent and removed at a time."""
_SEND_TIMEOUT = 3.0
"""Seconds for one send; a slot's lease has to last that long before a send begins."""

Run = Callable[[Callable[[Connection], Any]], Awaitable[Any]]


class Row(NamedTuple):
    """One message that waits."""

    id: int
    topic: str
    body: bytes
    options: dict[str, Any]


class Relay:
    """One process's share of the outbox."""

    def __init__(
        self, run: Run, publish: Callable[..., Awaitable[Any]], *, slots: int, lease: float, interval: float
    ) -> None:
        """`run`: does something in a transaction of its own. `publish`: as `RocketApp.publish`."""
        self._in_transaction, self._publish = run, publish
        # One connection at a time: SQLite has one writer, and a pool is there for handlers.
        self._one_at_a_time = asyncio.Lock()
        self._slots, self._lease, self._interval = slots, lease, interval
        self._name = uuid.uuid4().hex
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    async def prepare(self) -> None:
        """Have a row for each slot."""
        for slot in range(self._slots):
            await self._run(partial(_add_slot, slot=slot))

    def hurry(self, *_: Any) -> None:
        """Something was committed: look now. May be called from any thread."""
        self._loop.call_soon_threadsafe(self._news.set)

    async def run(self) -> None:
        """Send what is there, for ever."""
        while True:
            self._news.clear()
            try:
                waiting = await self._run(_waiting_slots)
                left = await asyncio.gather(*(self._send_slot(slot) for slot in waiting))
            except (SQLAlchemyError, OSError) as error:
                log.warning("the outbox cannot be read: %s", error)
                left = []
            if not any(left):
                await self._rest()

    async def leave(self) -> None:
        """Give up every slot, so that others need not wait for the leases."""
        try:
            await self._run(lambda connection: connection.execute(_give_up(self._name)))
        except (SQLAlchemyError, OSError) as error:
            log.warning("the outbox's slots stay until their leases end: %s", error)

    async def _run(self, work: Callable[[Connection], Any]) -> Any:
        async with self._one_at_a_time:
            return await self._in_transaction(work)

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._interval):
                await self._news.wait()
        except TimeoutError:
            return

    async def _send_slot(self, slot: int) -> bool:
        """Send one part of a slot. True when more of it is there and can be sent."""
        # Measured from before the lease was taken: a process that stood still then sends nothing more.
        end = self._loop.time() + self._lease - _SEND_TIMEOUT
        rows: Sequence[Row] | None = await self._run(lambda c: _take_slot(c, slot, self._name, self._lease))
        if not rows:
            return False
        sent, is_stuck = list[int](), False
        try:
            for row in rows:
                if self._loop.time() >= end:
                    break
                try:
                    await self._publish(row.topic, row.body, timeout=_SEND_TIMEOUT, **row.options)
                except RocketAppError as error:
                    # Perhaps it is stored, perhaps its broker is away: what is behind it must not overtake it.
                    log.warning("outbox message %d to %s is not sent yet: %s", row.id, row.topic, error)
                    is_stuck = True
                    break
                except (TypeError, ValueError) as error:
                    log.error("outbox message %d to %s can never be sent: %s", row.id, row.topic, error)
                    await self._run(partial(_give_up_on, number=row.id, problem=str(error)))
                else:
                    sent.append(row.id)
        finally:
            if sent:
                await self._run(lambda connection: connection.execute(delete(outbox).where(outbox.c.id.in_(sent))))
        return not is_stuck


def _add_slot(connection: Connection, slot: int) -> None:
    if connection.execute(select(slots.c.slot).where(slots.c.slot == slot)).first() is None:
        try:
            with connection.begin_nested():
                connection.execute(insert(slots).values(slot=slot, holder="", until=0.0))
        except IntegrityError:
            return  # another process was first


def _waiting_slots(connection: Connection) -> list[int]:
    statement = select(outbox.c.slot).where(outbox.c.problem.is_(None)).distinct()
    return sorted(slot for (slot,) in connection.execute(statement))


def _take_slot(connection: Connection, slot: int, name: str, lease: float) -> list[Row] | None:
    """The slot's first rows, when it is ours from now on; None when another relay has it."""
    is_free = or_(slots.c.holder == name, slots.c.until < now())
    taken = connection.execute(
        update(slots).where(slots.c.slot == slot, is_free).values(holder=name, until=now() + lease)
    )
    if not taken.rowcount:
        return None
    rows = (
        select(outbox.c.id, outbox.c.topic, outbox.c.body, outbox.c.options)
        .where(outbox.c.slot == slot, outbox.c.problem.is_(None))
        .order_by(outbox.c.id)
        .limit(_PART)
    )
    return [Row(*row) for row in connection.execute(rows)]


def _give_up(name: str) -> Any:
    return update(slots).where(slots.c.holder == name).values(holder="", until=0.0)


def _give_up_on(connection: Connection, number: int, problem: str) -> None:
    connection.execute(update(outbox).where(outbox.c.id == number).values(problem=problem))
