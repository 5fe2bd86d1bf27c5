"""A failed attempt names the plugin whose code raised, and no plugin when the handler did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rocketapp import Message, RocketApp
from rocketapp.app.run.wiring import handler_of
from rocketapp.consumer.modes.by_offset import ByOffset
from rocketapp.hooks.manager import Plugins
from rocketapp.plugin import Wrapper, hookimpl
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.testing import TestApp
from tests.unit.app.given import NOWHERE, QUEUE, bound, message


class Tenants:
    """A wrapper that fails before or after the handler."""

    def __init__(self, *, before: bool = False) -> None:
        self.before = before

    @hookimpl
    def handler_wrapper(self) -> Wrapper:
        def for_sync(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
            def around(handed: Any) -> Any:
                return {}["tenant"] if self.before else call(handed)

            return around

        def for_async(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
            async def around(handed: Any) -> Any:
                return {}["tenant"] if self.before else await call(handed)

            return around

        return Wrapper(for_sync=for_sync, for_async=for_async)


def failure_of(app: RocketApp, plugin: object, kind: type[Exception] = KeyError) -> str:
    """Why the only handler's attempt failed."""
    plugins = Plugins()
    plugins.register(plugin, "tenants")
    handler, queue = handler_of(bound(app), plugins, NOWHERE), ProcessQueue[Message](QUEUE, 17)
    one = message()
    queue.put([one])
    with pytest.raises(kind) as caught:
        result = handler.call(one)
        if handler.subscription.is_async:
            asyncio.run(result)
    ((_, failure),) = ByOffset(queue, handler).acknowledge(one, caught.value, True)
    return str(failure)


@pytest.mark.parametrize("is_async", [True, False])
def test_the_plugin_is_named_when_its_code_raised(is_async: bool) -> None:
    app = RocketApp("shop")

    async def settle(message: Message) -> None: ...

    app.subscribe("orders")(settle if is_async else lambda message: None)
    assert failure_of(app, Tenants(before=True)).startswith("KeyError: in plugin tenants: 'tenant'")


@pytest.mark.parametrize("is_async", [True, False])
def test_no_plugin_is_named_when_the_handler_raised(is_async: bool) -> None:
    app = RocketApp("shop")

    def settle_sync(message: Message) -> None:
        raise KeyError("order")

    async def settle(message: Message) -> None:
        raise KeyError("order")

    app.subscribe("orders")(settle if is_async else settle_sync)
    assert failure_of(app, Tenants()).startswith("KeyError: 'order'")


def test_no_plugin_is_named_when_what_the_handler_returned_cannot_be_published() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    @app.publishes("paid")
    async def settle(message: Message) -> object:
        return "1"

    assert failure_of(app, Tenants(), AssertionError).startswith("AssertionError: nothing is published here")


@pytest.mark.parametrize(
    ("key", "kind"),
    [(lambda message: message.properties["order_id"], KeyError), (lambda message: None, TypeError)],
    ids=["it raises", "it returns no text"],
)
def test_the_key_function_of_an_idempotent_handler_is_the_user_s_and_not_the_plugin_s(
    key: Any, kind: type[Exception]
) -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", idempotent=key)
    async def settle(message: Message) -> None: ...

    with TestApp(app) as t:
        t.publish("orders", b"1")
        t.advance()
        (retried,) = t.retried
    assert retried.reason.startswith(kind.__name__)
    assert "in plugin" not in retried.reason
