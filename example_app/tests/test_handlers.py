"""One handler at a time, called as the app calls it: no broker is needed."""

from __future__ import annotations

from example_app.app import app
from example_app.handlers import orders, payments
from example_app.model import Movement, Order, Payment
from rocketapp import DeadLetter, Retry
from rocketapp.testing import Done, Published, call, make_message


def order(card: str = "4000") -> Order:
    return Order(id="1", customer="Ada", item="tea", count=2, card=card)


async def test_an_order_reserves_goods_and_asks_for_money() -> None:
    published: list[Published] = []
    message = make_message(order(), tag="placed", keys=["1"])
    assert await call(orders.place, message, app=app, published=published) == Done()
    stock, payment = published
    assert (stock.topic, stock.order_key, stock.payload(Movement)) == ("shop-stock", "tea", Movement("1", "tea", 2))
    assert (payment.topic, payment.keys, payment.payload(Payment)) == ("shop-payments", ("1",), Payment(order(), 700))


async def test_a_paid_order_goes_on_to_be_shipped() -> None:
    published: list[Published] = []
    assert await call(payments.charge, Payment(order(), 700), app=app, published=published) == Done()
    assert [(one.topic, one.tag, one.payload(Order)) for one in published] == [("shop-orders", "paid", order())]
    assert await call(orders.ship, order(), app=app) == Done()


async def test_a_busy_bank_is_asked_again() -> None:
    payment = Payment(order(payments.BUSY_BANK), 700)
    again = await call(payments.charge, payment, app=app)
    assert isinstance(again, Retry)
    assert again.after == 1
    assert await call(payments.charge, make_message(payment, attempt=2), app=app) == Done()


async def test_a_stolen_card_is_a_dead_letter_and_a_broken_one_is_tried_again() -> None:
    stolen = await call(payments.charge, Payment(order(payments.STOLEN_CARD), 700), app=app)
    assert isinstance(stolen, DeadLetter)
    assert "reported stolen" in stolen.reason
    broken = await call(payments.charge, Payment(order(payments.BROKEN_CARD), 700), app=app)
    assert isinstance(broken.__cause__ if isinstance(broken, Retry) else None, payments.CardUnreadableError)
