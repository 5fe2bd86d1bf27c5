"""What the kit costs: everyday tests are many, so each must be cheap."""

from __future__ import annotations

import time

import pytest

from rocketapp import Message, RocketApp
from rocketapp.testing import TestApp
from tests.unit.cpu import cheapest


@pytest.mark.parametrize("number", range(10))
def test_an_everyday_test(number: int) -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    async def settle(message: Message) -> None: ...

    with TestApp(app) as t:
        t.publish("orders", b"%d" % number)
        t.settle()
        assert [handled.message.body for handled in t.handled] == [b"%d" % number]


def test_two_hundred_everyday_tests_take_less_than_ten_seconds() -> None:
    def ten_tests() -> float:
        began = time.process_time()
        for number in range(10):
            test_an_everyday_test(number)
        return time.process_time() - began

    assert cheapest(ten_tests, within=0.5) < 0.5  # 10 s / 20
