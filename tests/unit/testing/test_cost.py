"""What the kit costs: everyday tests are many, so each must be cheap."""

from __future__ import annotations

import time

import pytest

from rocketapp import Message, RocketApp
from rocketapp.testing import TestApp


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
    spent = []
    for _ in range(5):
        began = time.process_time()  # this process alone: machines of CI are shared
        for number in range(5):
            test_an_everyday_test(number)
        spent.append(time.process_time() - began)
    assert min(spent) * 40 < 10
