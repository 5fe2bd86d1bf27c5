"""Payments: each order is paid once, however often its message comes and wherever the process dies."""

from __future__ import annotations

import logging

import msgspec
from dependency_injector.wiring import Provide
from sqlalchemy.orm import Session

from example_app.books import Ledger
from example_app.model import PAYMENTS, STOCK, Parcel, Payment
from example_app.outside import Bank
from example_app.storage import database, outbox
from rocketapp import Message, Router

log = logging.getLogger("shop.payments")
router = Router()


def order_id(message: Message) -> str:
    """Messages that ask for the money of one order are copies of each other."""
    return msgspec.json.decode(message.body, type=Payment).order.id


# SQLite has one writer, and the mark is written first: more calls at once would only wait for each other.
@router.subscribe(PAYMENTS, idempotent=database.once_by(order_id), concurrency=1)
def charge(payment: Payment, session: Session, ledger: Ledger, bank: Bank = Provide["bank"]) -> None:
    """The mark, the line in the ledger and the message to the shelf are committed together when this returns.

    The bank is outside of the transaction. When the process dies between the two, the message comes again, and the bank
    is asked again with the same key: so it is the bank that takes the money once.
    """
    order = payment.order
    receipt = bank.charge(order.id, order.card, payment.cents)
    ledger.add(session, order.id, payment.cents, receipt)
    parcel = Parcel(order.id, order.customer, order.item, order.count)
    # The order key leads all parcels of an item into one queue, and the property tells the items of a queue apart.
    outbox.publish(session, STOCK.name, parcel, keys=[order.id], order_key=order.item, properties={"item": order.item})
    log.info("order %s: %.2f paid, %s", order.id, payment.cents / 100, receipt)
