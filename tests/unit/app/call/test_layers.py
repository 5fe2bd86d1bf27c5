"""The order of layers around a handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rocketapp import Message, RocketApp
from rocketapp.plugin import Subscription, Wrapper, hookimpl
from tests.unit.app.call.test_chain import plugins_of
from tests.unit.app.given import NOWHERE, bound


class In:
    """A plugin that stands in one layer, and notes who passes."""

    def __init__(self, layer: Any, passed: list[str]) -> None:
        self.layer, self.passed = layer, passed

    @hookimpl
    def handler_wrapper(self, subscription: Subscription) -> Wrapper:
        def for_async(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
            async def around(handed: Any) -> Any:
                self.passed.append(self.layer)
                return await call(handed)

            return around

        return Wrapper(for_async=for_async, layer=self.layer)


def test_the_order_of_registration_does_not_change_the_order_of_layers() -> None:
    app, passed = RocketApp("shop"), list[str]()

    @app.middleware
    async def audit(message: Message, call_next: Callable[[Message], Any]) -> Any:
        return await call_next(message)

    @app.exception_handler(KeyError)
    def known(message: Message, error: KeyError) -> None: ...

    @app.subscribe("orders", timeout=5)
    async def settle(message: Message) -> dict[str, int]:
        return {}

    layers = ("telemetry", "idempotency", "database", "middleware")
    for order in (layers, layers[::-1]):
        found = bound(app).layers(NOWHERE, plugins_of(*(In(layer, passed) for layer in order)))
        assert [layer.name for layer in found] == [
            "telemetry",
            "idempotency",
            "answer",
            "exceptions",
            "database",
            "middleware",
            "middleware",
            "arguments",
            "timeout",
        ]
        assert found[5].plugin
        assert [layer.of.rpartition(".")[2] for layer in found[6:]] == ["audit", "message", "5 s"]


def test_a_layer_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="stands in one of the layers telemetry, idempotency, database, middleware"):
        Wrapper(for_async=lambda call: call, layer="outside")  # type: ignore[arg-type]
