"""A small shop. Run it with `make run`, or `rocketapp run example_app.app:app`.

At every start it places six orders with itself, and the log shows what happens to them:

    orders   → placed by a handler with a typed payload; paid ones are shipped (selected by tag)
    stock    → moved in order, one after the other per queue (orderly)
    payments → one is retried after a second because the bank is busy; one card is stolen, one is unreadable:
               both become dead letters, at once and after one retry
"""

from __future__ import annotations

import logging
import secrets

from example_app.handlers import orders, payments, stock
from example_app.model import Order
from example_app.shelf import Shop
from rocketapp import RocketApp

log = logging.getLogger("shop")

shop = Shop()
app = RocketApp("shop", version="1.0", container=shop)
app.include(orders.router)
app.include(payments.router)
app.include(stock.router)

CUSTOMERS = [
    ("Ada", "tea", 2, "4000"),
    ("Ben", "coffee", 1, "4000"),
    ("Cho", "tea", 1, payments.BUSY_BANK),
    ("Dia", "cocoa", 3, payments.STOLEN_CARD),
    ("Eve", "coffee", 2, payments.BROKEN_CARD),
    ("Fay", "cocoa", 1, "4000"),
]


@app.on_startup
async def open_shop() -> None:
    """Place the orders. The handlers receive them, because start positions are fixed before startup functions run."""
    day = secrets.token_hex(2)
    for number, (customer, item, count, card) in enumerate(CUSTOMERS, start=1):
        order = Order(id=f"{day}-{number}", customer=customer, item=item, count=count, card=card)
        await app.publish("shop-orders", order, tag="placed", keys=[order.id], order_key=order.id)
    log.info("the shop is open: orders %s-1 to %s-%d are placed", day, day, len(CUSTOMERS))


@app.on_shutdown
def close_shop() -> None:
    log.info("the shop is closed; stock: %s", shop.shelf())
