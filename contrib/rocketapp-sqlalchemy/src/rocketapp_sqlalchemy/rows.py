"""The statements of the outbox: which slots have something, who may send a slot, what is in it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, exists, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from rocketapp_sqlalchemy.marking import clock_of
from rocketapp_sqlalchemy.tables import outbox, slots

_MOST_ROWS = 100
_MOST_BYTES = 4 * 1024 * 1024
"""What is read of one slot at a time; one row may be larger."""


class Row(NamedTuple):
    """One message that waits."""

    id: int
    topic: str
    body: bytes
    options: dict[str, Any]

    @property
    def order(self) -> tuple[str, str] | None:
        """Messages that have this in common are sent in the order of writing; None: it has no order."""
        key = self.options.get("order_key")
        return (self.topic, key) if key else None


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


def next_rows(connection: Connection, slot: int, above: int, without: Collection[str]) -> Sequence[Row]:
    """Some rows of a slot with higher numbers, in order; none of these topics."""
    size = (func.datalength if connection.dialect.name == "mssql" else func.length)(outbox.c.body)
    statement = (
        select(outbox.c.id, size)
        .where(outbox.c.slot == slot, outbox.c.id > above, outbox.c.problem.is_(None))
        .order_by(outbox.c.id)
        .limit(_MOST_ROWS)
    )
    if without:
        statement = statement.where(outbox.c.topic.not_in(without))
    numbers, total = list[int](), 0
    for number, length in connection.execute(statement):
        total += length
        if numbers and total > _MOST_BYTES:
            break
        numbers.append(number)
    if not numbers:
        return []
    rows = select(outbox.c.id, outbox.c.topic, outbox.c.body, outbox.c.options)
    return [Row(*row) for row in connection.execute(rows.where(outbox.c.id.in_(numbers)).order_by(outbox.c.id))]


def remove(connection: Connection, numbers: Sequence[int]) -> None:
    """These are sent."""
    connection.execute(delete(outbox).where(outbox.c.id.in_(numbers)))


def give_up_on(connection: Connection, number: int, problem: str) -> None:
    """This one can never be sent."""
    connection.execute(update(outbox).where(outbox.c.id == number).values(problem=problem))


def give_up_slots(connection: Connection, name: str) -> None:
    """Others need not wait for our leases."""
    connection.execute(update(slots).where(slots.c.holder == name).values(holder="", until=0.0))
