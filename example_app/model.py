"""What the shop's messages carry: JSON on the wire, checked types in the handlers."""

from __future__ import annotations

import msgspec


class Order(msgspec.Struct, frozen=True):
    """A customer orders an item."""

    id: str
    customer: str
    item: str
    count: int
    card: str


class Payment(msgspec.Struct, frozen=True):
    """A request to charge a card for an order."""

    order: Order
    cents: int


class Movement(msgspec.Struct, frozen=True):
    """Items leave the shelf. A negative count brings them back."""

    order_id: str
    item: str
    count: int
