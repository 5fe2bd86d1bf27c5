"""One handler at a time, called as the app calls it: no broker is needed."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from example_app import demo
from example_app.app import app
from example_app.handlers import orders, payments, stock
from example_app.model import PAYMENTS, Order, Parcel, Payment
from example_app.parts import parts
from rocketapp import DeadLetter, Retry
from rocketapp.testing import Done, Published, call_sync, make_message


def order(card: str = demo.GOOD_CARD, item: str = "tea") -> Order:
    return Order(id="1", customer="Ada", item=item, count=2, card=card)


def test_an_order_asks_for_money() -> None:
    published: list[Published] = []
    outcome = call_sync(orders.place, order(), app=app, published=published)
    assert outcome == Done()
    assert [(one.topic, one.payload(Payment)) for one in published] == [(PAYMENTS.name, Payment(order(), 700))]


def test_an_item_without_a_price_is_a_dead_letter() -> None:
    outcome = call_sync(orders.place, order(item="gold"), app=app)
    assert isinstance(outcome, DeadLetter)
    assert "'gold' has no price" in outcome.reason


def test_a_payment_is_in_the_ledger(session: Session) -> None:
    assert call_sync(payments.charge, Payment(order(), 700), app=app) == Done()
    assert parts.ledger().total(session) == 700


def test_a_busy_bank_says_when_to_ask_again(session: Session) -> None:
    payment = Payment(order(demo.BUSY_CARD), 700)
    again = call_sync(payments.charge, payment, app=app)
    assert isinstance(again, Retry)
    assert again.after == 1
    assert parts.ledger().total(session) == 0
    assert call_sync(payments.charge, make_message(payment, attempt=2), app=app) == Done()


@pytest.mark.parametrize(
    ("body", "reason"),
    [(Payment(order(demo.STOLEN_CARD), 700), "reported stolen"), (b'{"order": 5}', "Expected `object`, got `int`")],
    ids=["a stolen card", "a body that is not a payment"],
)
def test_what_no_retry_mends_is_a_dead_letter_at_once(body: object, reason: str) -> None:
    outcome = call_sync(payments.charge, body, app=app)
    assert isinstance(outcome, DeadLetter)
    assert reason in outcome.reason


def test_what_is_sold_out_leaves_the_shelf_as_it_was(session: Session) -> None:
    parcel = make_message(Parcel("1", "Ada", "tea", 11), properties={"item": "tea", "outbox_id": "a"})
    assert isinstance(call_sync(stock.pack, parcel, app=app), DeadLetter)
    assert parts.shelf().pieces(session)["tea"] == 10
