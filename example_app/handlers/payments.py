"""Payments: how a handler reports a failure, and what happens to its message."""

from __future__ import annotations

import logging

from example_app.model import Payment
from rocketapp import Context, DeadLetter, Retry, Router

log = logging.getLogger("shop.payments")
router = Router(prefix="shop-")

BUSY_BANK, STOLEN_CARD, BROKEN_CARD = "4111", "4222", "4333"


class CardUnreadableError(Exception):
    """The terminal does not understand the card."""


@router.subscribe("payments", retries=1)
async def charge(payment: Payment, context: Context) -> None:
    """Returning means paid. Raising means one retry later, and then a dead letter (%DLQ%shop)."""
    order = payment.order
    if order.card == STOLEN_CARD:
        # A retry cannot help: a person has to look at it.
        raise DeadLetter(f"order {order.id}: the card of {order.customer} is reported stolen")
    if order.card == BUSY_BANK and context.attempt == 1:
        log.info("order %s: the bank is busy, again in a second", order.id)
        raise Retry(after=1)
    if order.card == BROKEN_CARD:
        # Any other exception would be retried in 10 s; a customer at the till does not wait that long.
        raise Retry(after=1) from CardUnreadableError(f"order {order.id}: card of {order.customer}")
    log.info("order %s: %.2f paid at attempt %d", order.id, payment.cents / 100, context.attempt)
    await context.publish("shop-orders", order, tag="paid", keys=[order.id], order_key=order.id)
