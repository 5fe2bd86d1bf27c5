"""The statements of the outbox: which slots have something, who may send a slot, what is in it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, exists, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from rocketapp_sqlalchemy.marking import clock_of
from rocketapp_sqlalchemy.tables import outbox, slots

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
