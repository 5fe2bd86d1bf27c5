"""Handlers are plain functions: no broker is needed to test them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from example_app.app import app
from example_app.handlers import orders, payments, stock
from example_app.model import Movement, Order, Payment
from rocketapp import Context, DeadLetter, Message, Retry


class Published:
    """Stands in for `app.publish`."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any, dict[str, Any]]] = []

    async def __call__(self, topic: str, body: Any, **options: Any) -> None:
        self.sent.append((topic, body, options))


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Published:
    published = Published()
    monkeypatch.setattr(orders, "publish", published)
    monkeypatch.setattr(payments, "publish", published)
    return published


def order(card: str = "4000") -> Order:
    return Order(id="1", customer="Ada", item="tea", count=2, card=card)


def attempt(number: int) -> Context:
    return cast(Context, SimpleNamespace(attempt=number))


async def test_an_order_reserves_goods_and_asks_for_money(published: Published) -> None:
    await orders.place(order(), cast(Message, SimpleNamespace(keys=["1"])))
    assert published.sent == [
        ("shop-stock", Movement("1", "tea", 2), {"order_key": "tea", "keys": ["1"]}),
        ("shop-payments", Payment(order(), 700), {"keys": ["1"]}),
    ]


async def test_a_paid_order_goes_on_to_be_shipped(published: Published) -> None:
    await payments.charge(Payment(order(), 700), attempt(1))
    assert published.sent == [("shop-orders", order(), {"tag": "paid", "keys": ["1"], "order_key": "1"})]


async def test_a_busy_bank_is_asked_again(published: Published) -> None:
    payment = Payment(order(payments.BUSY_BANK), 700)
    with pytest.raises(Retry) as caught:
        await payments.charge(payment, attempt(1))
    assert caught.value.after == 1
    await payments.charge(payment, attempt(2))
    assert [sent[0] for sent in published.sent] == ["shop-orders"]


async def test_a_stolen_card_is_a_dead_letter_and_a_broken_one_is_tried_again(published: Published) -> None:
    with pytest.raises(DeadLetter, match="reported stolen"):
        await payments.charge(Payment(order(payments.STOLEN_CARD), 700), attempt(1))
    with pytest.raises(Retry):
        await payments.charge(Payment(order(payments.BROKEN_CARD), 700), attempt(2))
    assert published.sent == []


async def test_stock_goes_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(stock.shelf, "tea", 10)
    await stock.move(Movement("1", "tea", 2))
    assert stock.shelf["tea"] == 8


def test_the_app_has_every_handler() -> None:
    assert app.name == "shop"
    assert "4 subscriptions" in repr(app)
