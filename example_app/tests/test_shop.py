"""The whole shop, on an embedded broker in memory and in virtual time: minutes of retries pass at once."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy.orm import Session

from example_app import demo
from example_app.app import app
from example_app.books import Shelf
from example_app.demo import DemoCarrier
from example_app.model import ORDERS, PARCELS, STOCK, Parcel
from example_app.parts import parts
from example_app.tests.conftest import CountingBank
from rocketapp.testing import TestApp, TestedApp


def handled(t: TestedApp, handler: str) -> list[str]:
    """The keys of the messages that this handler is done with, in its order."""
    return [" ".join(one.message.keys) for one in t.handled if one.handler.endswith(f":{handler}")]


def test_every_order_is_on_its_way_or_at_the_desk(shop: TestedApp, bank: CountingBank, session: Session) -> None:
    placed = list(demo.orders(6))
    for order in placed:
        shop.publish(ORDERS, order, keys=[order.id])
    shop.advance(minutes=1)
    ada, ben, cho, _dia, _eve, fay = (order.id for order in placed)
    assert sorted(handled(shop, "send")) == [ada, ben, cho, fay]
    assert [retried.delay for retried in shop.retried] == [1]  # the bank was busy
    reasons = " | ".join(sorted(dead.reason for dead in shop.dead))
    assert ["has no price" in reasons, "reported stolen" in reasons, len(shop.dead)] == [True, True, 2]
    assert len(handled(shop, "tell")) == 2
    assert parts.ledger().total(session) == sum(bank.charged.values()) == 3 * 350 + 420 + 510
    assert parts.shelf().pieces(session) == {"tea": 7, "coffee": 9, "cocoa": 9}
    assert shop.unmatched == 0


def test_the_shop_places_as_many_orders_with_itself_as_the_settings_say() -> None:
    with TestApp(app, settings={"shop": {"demo_orders": 2}}) as t:
        t.settle()
        assert [one.topic for one in t.published].count(ORDERS.name) == 2


class ShakyShelf(Shelf):
    """Cannot be reached once, when tea is wanted."""

    has_failed = False

    def take(self, session: Session, item: str, count: int) -> int:
        if item == "tea" and not self.has_failed:
            self.has_failed = True
            raise ConnectionError("the shelf cannot be reached")
        return super().take(session, item, count)


def test_parcels_of_an_item_keep_their_order_and_those_of_another_do_not_wait() -> None:
    with TestApp(app, overrides={"shelf": ShakyShelf()}) as t:
        for number, item in enumerate(["tea", "tea", "coffee", "tea", "coffee"]):
            key = f"{item}-{number}"
            properties = {"item": item, "outbox_id": key}
            # One queue for all of them: what keeps them apart is the item.
            t.publish(STOCK, Parcel(key, "Ada", item, 1), order_key="1", properties=properties, keys=[key])
        t.settle()
        assert [retried.delay for retried in t.retried] == [1]
        packed = handled(t, "pack")
        assert [one for one in packed if "tea" in one] == ["tea-0", "tea-1", "tea-3"]
        assert packed[:2] == ["coffee-2", "coffee-4"]


def test_a_breaker_keeps_away_from_a_carrier_that_is_down(
    shop: TestedApp, carrier: DemoCarrier, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    carrier.down_for = 100
    for number in range(3):
        shop.publish(PARCELS, Parcel(str(number), "Ada", "tea", 1), keys=[str(number)])
    shop.advance(1)
    shop.publish(PARCELS, Parcel("3", "Ada", "tea", 1), keys=["3"])
    shop.advance(3)
    assert carrier.calls == 3
    assert "circuit breaker of example_app.handlers.parcels:send" in caplog.text
    carrier.down_for = 0
    shop.settle()
    assert sorted(handled(shop, "send")) == ["0", "1", "2", "3"]
    assert shop.dead == []
