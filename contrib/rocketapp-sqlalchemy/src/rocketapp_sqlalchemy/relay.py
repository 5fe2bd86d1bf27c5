"""Sends what is in the outbox: takes slots, sends their rows in order, removes what was sent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from rocketapp import SendRefused
from rocketapp_sqlalchemy import rows as statements
from rocketapp_sqlalchemy.rows import Destination, Order, Row
from rocketapp_sqlalchemy.traces import trace_of

log: logging.Logger = logging.getLogger("rocketapp.sqlalchemy")
WRITTEN: Final = "rocketapp_sqlalchemy.outbox"
"""In a session's `info`: its transaction has messages in it."""
_PART = 100
"""Messages of one slot that are sent before the others have their turn again."""
_UNREMOVED = 32
"""Messages that are sent and still in the table, over all slots: as many as a kill sends twice."""
_SEND_TIMEOUT = 3.0
"""Seconds for one send; a slot's lease has to last that long before a send begins."""
_AWAY = 5.0
"""Seconds for which a topic of a cluster is left alone that several messages could not be sent to."""

Run = Callable[[Callable[[Connection], Any]], Awaitable[Any]]


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
        # More than one for each slot: those have one under way at a time.
        self._sent = Sent(self._remove, most=max(_UNREMOVED, slots * 2))
        self._away: dict[Destination, float] = {}
        """Topics of clusters that are left alone, and until when by the loop's time."""

    async def prepare(self) -> None:
        """Have a row for each slot."""
        for slot in range(self._slots):
            await self._run(partial(statements.add_slot, slot=slot))

    def committed(self, session: Session) -> None:
        """A session has committed: look now, if there were messages in it. May be called from any thread."""
        # A savepoint does not commit: what was written in it waits for the transaction.
        if not session.in_nested_transaction() and session.info.pop(WRITTEN, None):
            # What is committed must not fail because the app has ended.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._news.set)

    async def run(self) -> None:
        """Send what is there, for ever."""
        while True:
            self._news.clear()
            try:
                waiting = await self._run(statements.waiting_slots)
            except Exception as error:
                log.warning("the outbox cannot be read: %s", _said(error))
                waiting = []
            if not any(await asyncio.gather(*(self._serve(slot) for slot in waiting))):
                await self._rest()

    async def leave(self) -> None:
        """Give up every slot, so that others need not wait for the leases."""
        try:
            await self._sent.remove()
            await self._run(partial(statements.give_up_slots, name=self._name))
        except Exception as error:
            log.warning("the outbox's slots stay until their leases end: %s", _said(error))

    async def _run(self, work: Callable[[Connection], Any]) -> Any:
        async with self._one_at_a_time:
            return await self._in_transaction(work)

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._interval):
                await self._news.wait()
        except TimeoutError:
            return

    async def _remove(self, numbers: Sequence[int]) -> None:
        await self._run(partial(statements.remove, numbers=numbers))

    async def _serve(self, slot: int) -> bool:
        """Send a part of a slot. True when something was sent; raises nothing: the other slots go on."""
        # Measured from before the lease was taken: a process that stood still then sends nothing more.
        visit = _Visit(slot, self._loop.time() + self._lease - _SEND_TIMEOUT)
        try:
            try:
                if await self._run(lambda c: statements.take_slot(c, slot, self._name, self._lease)):
                    while await self._send_some(visit):
                        pass
            finally:
                await self._sent.remove()
        except Exception as error:
            log.warning("slot %d of the outbox is not sent: %s", slot, _said(error))
            return False
        return visit.count > 0

    async def _send_some(self, visit: _Visit) -> bool:
        """Send the next rows of the slot. True when there may be more for this visit."""
        self._away = {place: until for place, until in self._away.items() if until > self._loop.time()}
        # For the whole visit: what is behind a message that was passed over must not overtake it.
        visit.without.update(self._away)
        # From the beginning: a lower number may be committed after a higher one, and goes before the next of its key.
        left_out = visit.failed | self._sent.numbers
        rows = await self._run(
            lambda c: statements.next_rows(c, visit.slot, left_out, destinations=visit.without, orders=visit.held)
        )
        for row in rows:
            await self._sent.room()
            if self._loop.time() >= visit.end:
                return False
            if row.destination not in visit.without and row.order not in visit.held and await self._send(row, visit):
                visit.count += 1
        return bool(rows) and visit.count < _PART

    async def _send(self, row: Row, visit: _Visit) -> bool:
        """Whether it is sent. What has an order with it must not overtake it when it is perhaps sent later."""
        try:
            with self._sent.sending(row.id), trace_of(row.options.get("properties", {})):
                await self._publish(row.topic, row.body, timeout=_SEND_TIMEOUT, **row.options)
        except Exception as error:
            if isinstance(error, TypeError | ValueError) or (isinstance(error, SendRefused) and error.is_permanent):
                log.error("outbox message %d to %s can never be sent: %s", row.id, row.topic, error)
                await self._run(partial(statements.give_up_on, number=row.id, problem=str(error)))
                return False
            log.warning("outbox message %d to %s is not sent yet: %s", row.id, row.topic, error)
            visit.failed.add(row.id)
            if row.order is not None:
                visit.held.add(row.order)
            visit.failures[row.destination] += 1
            if visit.failures[row.destination] > 1:
                # One may be to blame itself; with several it is the topic, and messages of others go on.
                self._away[row.destination] = self._loop.time() + _AWAY
                visit.without.add(row.destination)
            return False
        return True


class _Visit:
    """What happens while a slot is sent from."""

    def __init__(self, slot: int, end: float) -> None:
        """`end`: by the loop's time; no send begins after it."""
        self.slot, self.end = slot, end
        self.count = 0
        """Rows that were sent."""
        self.failed: set[int] = set()
        """Numbers of messages that could not be sent."""
        self.held: set[Order] = set()
        """Orders in which a message could not be sent."""
        self.without: set[Destination] = set()
        """Topics of clusters that are left alone."""
        self.failures: Counter[Destination] = Counter()
        """Messages that could not be sent, by topic and cluster."""


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class Sent:
    """Numbers of messages that are sent and still in the table. Those of all slots are removed together."""

    def __init__(self, remove: Callable[[Sequence[int]], Awaitable[None]], *, most: int) -> None:
        """`remove`: takes rows out of the table. `most`: messages, with those that are being sent."""
        self._remove, self._most = remove, most
        self._numbers: set[int] = set()
        self._under_way = 0
        self._removing = asyncio.Lock()

    @property
    def numbers(self) -> frozenset[int]:
        """They may still be read from the table, and must not be sent again."""
        return frozenset(self._numbers)

    async def room(self) -> None:
        """Return when one more may be sent; then `sending` has to follow without another await.

        Raises what removing raises: while nothing can be removed, nothing more is sent.
        """
        # Remove at half of the limit: the other slots can go on meanwhile.
        if len(self._numbers) * 2 >= self._most and not self._removing.locked():
            await self.remove()
        while self._is_full:
            async with self._removing:
                if self._is_full:
                    await self._remove_all()

    @contextmanager
    def sending(self, number: int) -> Iterator[None]:
        """While it is sent. What raises is not sent."""
        self._under_way += 1
        try:
            yield
            self._numbers.add(number)
        finally:
            self._under_way -= 1

    async def remove(self) -> None:
        """Remove from the table what is sent."""
        async with self._removing:
            await self._remove_all()

    @property
    def _is_full(self) -> bool:
        return len(self._numbers) + self._under_way >= self._most

    async def _remove_all(self) -> None:
        numbers = sorted(self._numbers)
        if numbers:
            await self._remove(numbers)
            self._numbers.difference_update(numbers)
