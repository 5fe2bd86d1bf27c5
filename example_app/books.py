"""The shop's tables, and the two repositories that read and write them.

Each call gets the session of its caller: so a handler decides what is one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Column, Integer, MetaData, String, Table, func, insert, select, update
from sqlalchemy.orm import Session

from example_app.failures import RefusedError

metadata = MetaData()
payments = Table(
    "payments",
    metadata,
    Column("order_id", String, primary_key=True),
    Column("cents", Integer, nullable=False),
    Column("receipt", String, nullable=False),
)
stock = Table(
    "stock",
    metadata,
    Column("item", String, primary_key=True),
    Column("pieces", Integer, nullable=False),
)


class SoldOutError(RefusedError):
    """The shelf has less than was ordered: a person has to buy, or to pay back."""


class Ledger:
    """Which orders are paid."""

    def add(self, session: Session, order_id: str, cents: int, receipt: str) -> None:
        """Raises IntegrityError when the order is paid already, whatever message asks for it."""
        session.execute(insert(payments).values(order_id=order_id, cents=cents, receipt=receipt))

    def total(self, session: Session) -> int:
        """Cents of all orders."""
        return session.scalar(select(func.coalesce(func.sum(payments.c.cents), 0))) or 0


class Shelf:
    """How many pieces of each item are there."""

    def take(self, session: Session, item: str, count: int) -> int:
        """Returns how many are left. Raises SoldOutError, and then nothing is taken."""
        taken = update(stock).where(stock.c.item == item, stock.c.pieces >= count)
        left: int | None = session.scalar(taken.values(pieces=stock.c.pieces - count).returning(stock.c.pieces))
        if left is None:
            raise SoldOutError(f"{count} {item} are not on the shelf")
        return left

    def fill(self, session: Session, pieces: Mapping[str, int]) -> None:
        """Have at least these pieces."""
        there = self.pieces(session)
        for item, least in pieces.items():
            if item not in there:
                session.execute(insert(stock).values(item=item, pieces=least))
            elif there[item] < least:
                session.execute(update(stock).where(stock.c.item == item).values(pieces=least))

    def pieces(self, session: Session) -> dict[str, int]:
        """All items."""
        found = session.execute(select(stock.c.item, stock.c.pieces))
        return {row.item: row.pieces for row in found}
