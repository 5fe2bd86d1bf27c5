"""What the topics carry, as JSON: the one place that publishers and handlers agree on."""

from __future__ import annotations

import msgspec

from rocketapp import Topic


class Order(msgspec.Struct, frozen=True):
    """A customer orders an item."""

    id: str
    customer: str
    item: str
    count: int
    card: str


class Payment(msgspec.Struct, frozen=True):
    """A request to charge the card of an order."""

    order: Order
    cents: int


class Parcel(msgspec.Struct, frozen=True):
    """Goods of a paid order: they leave the shelf, and then the house."""

    order_id: str
    customer: str
    item: str
    count: int


# A handler or a publish of another type is an error of mypy and pyright, and is refused at run time.
ORDERS = Topic("shop-orders", Order)
PAYMENTS = Topic("shop-payments", Payment)
STOCK = Topic("shop-stock", Parcel)
PARCELS = Topic("shop-parcels", Parcel)
