"""The whole shop, on an embedded broker in memory and in virtual time."""

from __future__ import annotations

from example_app.app import CUSTOMERS, app
from example_app.model import Movement, Payment
from example_app.shelf import Shelf
from rocketapp.testing import TestApp


def test_every_customer_gets_goods_or_a_reason() -> None:
    shelf = Shelf(tea=10, coffee=10, cocoa=10)
    with TestApp(app, overrides={"shelf": shelf}) as t:
        t.settle()
        shipped = [handled for handled in t.handled if handled.handler.endswith("ship")]
        assert len(shipped) == len(CUSTOMERS) - 2
        reasons = sorted(dead.reason for dead in t.dead)
        assert ["CardUnreadableError" in reasons[1], "reported stolen" in reasons[0]] == [True, True]
        assert [retried.delay for retried in t.retried] == [1, 1]
        assert t.unmatched == 0
    assert str(shelf) == "cocoa 6, coffee 7, tea 7"


def test_movements_of_an_item_keep_their_order() -> None:
    shelf = Shelf(tea=10, coffee=10, cocoa=10)
    with TestApp(app, overrides={"shelf": shelf}) as t:
        t.settle()
        for count in range(1, 4):
            t.publish("shop-stock", Movement("x", "tea", count), order_key="tea")
        t.settle()
        counts = [one.message.json()["count"] for one in t.handled if one.message.json().get("order_id") == "x"]
        assert counts == [1, 2, 3]


async def test_what_is_published_carries_what_the_next_handler_needs() -> None:
    async with TestApp(app) as t:
        await t.settle()
        payments = [one.payload(Payment) for one in t.published if one.topic == "shop-payments"]
        assert sum(payment.cents for payment in payments) == 5 * 350 - 2 * 350 + 3 * 420 + 4 * 510
