"""Stock: parcels of one item one after the other, those of different items at the same time."""

from __future__ import annotations

import logging

from sqlalchemy.orm import Session

from example_app.books import Shelf
from example_app.model import PARCELS, STOCK, Parcel
from example_app.storage import database, outbox
from rocketapp import Message, Router

log = logging.getLogger("shop.stock")
# A group of its own: its queues are locked, and that is a matter of all topics of a group.
router = Router(group="shop-stock")


def outbox_id(message: Message) -> str:
    """What an outbox sends may be sent twice; both copies have this."""
    return message.properties["outbox_id"]


@router.subscribe(STOCK, order_by="item", concurrency=4, idempotent=database.once_by(outbox_id))
def pack(parcel: Parcel, session: Session, shelf: Shelf) -> None:
    """One that fails is tried again in place, and only what has the same item waits for it."""
    left = shelf.take(session, parcel.item, parcel.count)
    outbox.publish(session, PARCELS.name, parcel, keys=[parcel.order_id])
    log.info("order %s: %d %s packed, %d left", parcel.order_id, parcel.count, parcel.item, left)
