"""Stock: movements of one item are handled in the order in which they were sent."""

from __future__ import annotations

import logging

from example_app.model import Movement
from example_app.shelf import Shelf
from rocketapp import Router

log = logging.getLogger("shop.stock")
router = Router(prefix="shop-", group="shop-stock")


@router.subscribe("stock", orderly=True)
async def move(movement: Movement, shelf: Shelf) -> None:
    """One message after the other per queue, across all workers. Equal order keys (the item) share a queue."""
    left = shelf.take(movement.item, movement.count)
    log.info("stock: %d %s for order %s, %d left", movement.count, movement.item, movement.order_id, left)
