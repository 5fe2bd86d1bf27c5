"""Orders: two handlers of one topic and group, selected by tag."""

from __future__ import annotations

import logging

from example_app.model import Movement, Order, Payment
from rocketapp import Message, Publisher, Router

log = logging.getLogger("shop.orders")
router = Router(prefix="shop-")

CENTS = {"tea": 350, "coffee": 420, "cocoa": 510}


@router.subscribe("orders", tags="placed")
async def place(order: Order, message: Message, publisher: Publisher) -> None:
    """Reserve the goods and ask for the money. A message may arrive twice; the order's id lets others notice it."""
    log.info("order %s: %s wants %d %s", order.id, order.customer, order.count, order.item)
    movement = Movement(order.id, order.item, order.count)
    await publisher.publish("shop-stock", movement, order_key=order.item, keys=[order.id])
    await publisher.publish("shop-payments", Payment(order, order.count * CENTS[order.item]), keys=message.keys)


@router.subscribe("orders", tags="paid")
def ship(order: Order) -> None:
    """A sync handler runs in a thread, so it may block: on a label printer, say."""
    log.info("order %s: %d %s on the way to %s", order.id, order.count, order.item, order.customer)
