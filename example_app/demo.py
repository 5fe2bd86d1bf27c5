"""Imitations of what is outside of the shop, for development and for tests: a bank, a carrier, and customers."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import cycle, islice

from example_app.model import Order
from example_app.outside import BankBusyError, CardRefusedError

GOOD_CARD, BUSY_CARD, STOLEN_CARD = "4000", "4111", "4222"
CUSTOMERS = [
    ("Ada", "tea", 2, GOOD_CARD),
    ("Ben", "coffee", 1, GOOD_CARD),
    ("Cho", "tea", 1, BUSY_CARD),
    ("Dia", "cocoa", 3, STOLEN_CARD),
    ("Eve", "gold", 1, GOOD_CARD),
    ("Fay", "cocoa", 1, GOOD_CARD),
]
"""The fourth and the fifth end in the dead letters."""


def orders(count: int) -> Iterator[Order]:
    """Orders of these customers in turn, with ids that are new every time."""
    day = secrets.token_hex(4)
    for number, (customer, item, pieces, card) in enumerate(islice(cycle(CUSTOMERS), count), start=1):
        yield Order(id=f"{day}-{number}", customer=customer, item=item, count=pieces, card=card)


class DemoBank:
    """Knows cards that behave badly. As a good bank does, it takes the money of an order once."""

    def __init__(self) -> None:
        self.charged: dict[str, int] = {}
        """Cents by order."""
        self._were_told: set[str] = set()

    def charge(self, order_id: str, card: str, cents: int) -> str:
        if card == STOLEN_CARD:
            raise CardRefusedError(f"order {order_id}: the card is reported stolen")
        if card == BUSY_CARD and order_id not in self._were_told:
            self._were_told.add(order_id)
            raise BankBusyError(1)
        self.charged.setdefault(order_id, cents)
        return f"receipt-{order_id}"


class DemoCarrier:
    """Is down for its first calls."""

    def __init__(self, down_for: int = 3) -> None:
        self.down_for, self.calls = down_for, 0

    def fetch(self, order_id: str, customer: str) -> str:
        self.calls += 1
        if self.calls <= self.down_for:
            raise ConnectionRefusedError("the carrier does not answer")
        return f"track-{order_id}"
