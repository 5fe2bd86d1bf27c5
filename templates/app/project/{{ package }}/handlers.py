"""What the app does with a message."""

from __future__ import annotations

import logging

from rocketapp import DeadLetter, Policy, Publisher, Router

from .model import BILLS, ORDERS, Bill, Order
from .prices import Prices, UnknownItemError

log = logging.getLogger(__name__)
router = Router()


# Again after 1 s, 10 s, then each minute: 16 times, unless retries= says how often.
@router.subscribe(ORDERS, retry=Policy(delays=[1, 10, 60], on={UnknownItemError: DeadLetter}))
async def make_bill(order: Order, prices: Prices, publisher: Publisher) -> None:
    """Returning means done; raising means again later. A message may come twice: its bill has the same key then."""
    cents = order.count * await prices.of(order.item)
    await publisher.publish(BILLS, Bill(order.id, cents), keys=[order.id])
    log.info("order %s: %d %s for %.2f", order.id, order.count, order.item, cents / 100)


@router.subscribe(BILLS)
def send_bill(bill: Bill) -> None:
    """A sync handler runs in a thread, so it may block: on a mail server, say."""
    log.info("bill of order %s: %.2f", bill.order_id, bill.cents / 100)
