"""Sends what is in the outbox: takes slots, sends their rows in order, removes what was sent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, delete, exists, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from rocketapp import SendRefused
from rocketapp_sqlalchemy.marking import clock_of
from rocketapp_sqlalchemy.tables import outbox, slots
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
            await self._run(partial(add_slot, slot=slot))

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
                waiting = await self._run(waiting_slots)
            except Exception as error:
                log.warning("the outbox cannot be read: %s", _said(error))
                waiting = []
            if not any(await asyncio.gather(*(self._serve(slot) for slot in waiting))):
                await self._rest()

    async def leave(self) -> None:
        """Give up every slot, so that others need not wait for the leases."""
        try:
            await self._sent.remove()
            await self._run(partial(give_up_slots, name=self._name))
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
        await self._run(partial(remove, numbers=numbers))

    async def _serve(self, slot: int) -> bool:
        """Send a part of a slot. True when something was sent; raises nothing: the other slots go on."""
        # Measured from before the lease was taken: a process that stood still then sends nothing more.
        visit = _Visit(slot, self._loop.time() + self._lease - _SEND_TIMEOUT)
        try:
            try:
                if await self._run(lambda c: take_slot(c, slot, self._name, self._lease)):
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
            lambda c: next_rows(c, visit.slot, left_out, destinations=visit.without, orders=visit.held)
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
                await self._run(partial(give_up_on, number=row.id, problem=str(error)))
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


# Statements: which slots have something, who may send a slot, what is in it.


_MOST_ROWS = 100
_DEPTHS = (_MOST_ROWS, 1_000, 10_000)
"""How many of the first rows are looked through for some that can be sent."""
_MOST_BYTES = 4 * 1024 * 1024
"""What is read of one slot at a time; one row may be larger."""


Destination = tuple[str, str]
Order = tuple[str, str, str]


class Row(NamedTuple):
    """One message that waits."""

    id: int
    topic: str
    body: bytes
    options: dict[str, Any]

    @property
    def destination(self) -> Destination:
        """The cluster and the topic to which it is sent."""
        return self.options.get("cluster", ""), self.topic

    @property
    def order(self) -> Order | None:
        """Messages that have this in common are sent in the order of writing; None: it has no order."""
        key = self.options.get("order_key")
        return (*self.destination, key) if key else None


def add_slot(connection: Connection, slot: int) -> None:
    """Have a row for this slot."""
    if connection.execute(select(slots.c.slot).where(slots.c.slot == slot)).first() is None:
        try:
            with connection.begin_nested():
                connection.execute(insert(slots).values(slot=slot, holder="", until=0.0))
        except IntegrityError:
            return  # another process was first


def waiting_slots(connection: Connection) -> list[int]:
    """Slots with messages. Looks for one message in each slot, and not at all of them."""
    waits = exists().where(outbox.c.slot == slots.c.slot, outbox.c.problem.is_(None))
    return sorted(slot for (slot,) in connection.execute(select(slots.c.slot).where(waits)))


def take_slot(connection: Connection, slot: int, name: str, lease: float) -> bool:
    """Whether the slot is ours from now on, for `lease` seconds; otherwise another relay has it."""
    clock = clock_of(connection)
    is_free = or_(slots.c.holder == name, slots.c.until < clock)
    taken = connection.execute(
        update(slots).where(slots.c.slot == slot, is_free).values(holder=name, until=clock + lease)
    )
    return bool(taken.rowcount)


def next_rows(
    connection: Connection,
    slot: int,
    numbers: Collection[int] = (),
    *,
    destinations: Collection[Destination] = (),
    orders: Collection[Order] = (),
) -> Sequence[Row]:
    """The first rows of a slot, in order, without these numbers, destinations and orders.

    They are chosen by one statement from the beginning: it sees the messages of a key up to some commit. With several
    statements, each above the last row of the one before, the later of two messages could be seen, and not the earlier.
    """
    size = (func.datalength if connection.dialect.name == "mssql" else func.length)(outbox.c.body)
    statement = (
        select(outbox.c.id, outbox.c.topic, outbox.c.options, size)
        .where(outbox.c.slot == slot, outbox.c.problem.is_(None))
        .order_by(outbox.c.id)
    )
    cluster_of_row = func.coalesce(outbox.c.options["cluster"].as_string(), "")
    for cluster, topic in destinations:
        statement = statement.where(or_(outbox.c.topic != topic, cluster_of_row != cluster))
    chosen, total = list[int](), 0
    for depth in _DEPTHS:
        found = connection.execute(statement.limit(depth)).all()
        for number, topic, options, length in found:
            if number in numbers or Row(number, topic, b"", options).order in orders:
                continue
            total += length
            if chosen and (total > _MOST_BYTES or len(chosen) == _MOST_ROWS):
                break
            chosen.append(number)
        if chosen or len(found) < depth:
            break
    if not chosen:
        return []
    rows = select(outbox.c.id, outbox.c.topic, outbox.c.body, outbox.c.options)
    return [Row(*row) for row in connection.execute(rows.where(outbox.c.id.in_(chosen)).order_by(outbox.c.id))]


def remove(connection: Connection, numbers: Sequence[int]) -> None:
    """These are sent."""
    connection.execute(delete(outbox).where(outbox.c.id.in_(numbers)))


def give_up_on(connection: Connection, number: int, problem: str) -> None:
    """This one can never be sent."""
    connection.execute(update(outbox).where(outbox.c.id == number).values(problem=problem))


def give_up_slots(connection: Connection, name: str) -> None:
    """Others need not wait for our leases."""
    connection.execute(update(slots).where(slots.c.holder == name).values(holder="", until=0.0))
