"""The shop's own plugin: it notes the handlers that the settings name, and no others."""

from __future__ import annotations

import logging

import pytest

from example_app import demo
from example_app.app import app
from example_app.model import ORDERS, PAYMENTS, Order, Payment
from rocketapp.testing import TestApp


def paying(card: str) -> Payment:
    return Payment(Order(card, "Ada", "tea", 2, card), 700)


@pytest.mark.parametrize(
    ("payments", "notes"),
    [
        ([paying(demo.GOOD_CARD)] * 2, ["charge, attempt 1: done", "charge, attempt 1: Skip"]),
        ([paying(demo.BUSY_CARD)], ["charge, attempt 1: Retry", "charge, attempt 2: done"]),
        ([paying(demo.STOLEN_CARD)], ["charge, attempt 1: DeadLetter"]),
    ],
    ids=["a copy", "a busy bank", "a stolen card"],
)
def test_each_attempt_has_a_line(caplog: pytest.LogCaptureFixture, payments: list[Payment], notes: list[str]) -> None:
    caplog.set_level(logging.INFO, logger="shop.audit")
    with TestApp(app, settings={"audit": {"handlers": ["charge"]}}) as t:
        t.publish_many(PAYMENTS, payments)
        t.advance(5)
    lines = [one.getMessage().split(", ") for one in caplog.records if one.name == "shop.audit"]
    assert [", ".join(line[:2]) for line in lines] == notes


def test_a_handler_that_the_settings_do_not_name_has_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="shop.audit")
    with TestApp(app, settings={"audit": {"handlers": ["charge"], "slow": 0}}) as t:
        t.publish(ORDERS, Order("1", "Ada", "tea", 2, demo.GOOD_CARD))
        t.advance(5)
    found = [one for one in caplog.records if one.name == "shop.audit"]
    assert [(one.levelname, one.getMessage().partition(",")[0]) for one in found] == [("WARNING", "charge")]
