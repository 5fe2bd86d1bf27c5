"""Orders: a typed payload comes in, and what the handler returns is published."""

from __future__ import annotations

import logging

from example_app.model import ORDERS, PAYMENTS, Order, Payment
from example_app.prices import Prices
from rocketapp import Router

log = logging.getLogger("shop.orders")
router = Router()


@router.subscribe(ORDERS)
@router.publishes(PAYMENTS)
async def place(order: Order, prices: Prices) -> Payment:
    """Done when the payment is stored. A copy of the order asks a second time: `charge` knows it by the order's id."""
    cents = order.count * prices.of(order.item)
    log.info("order %s: %s wants %d %s for %.2f", order.id, order.customer, order.count, order.item, cents / 100)
    return Payment(order, cents)
