from __future__ import annotations

from typing import Any

import pytest

from rocketapp import Breaker, Message, Policy, RocketApp
from rocketapp.app.settings import Settings
from rocketapp.cli.settings import subscriptions_of
from rocketapp.errors import RocketAppError
from rocketapp.plugin import Override, PluginError, Subscription, hookimpl


class Cautious:
    """Gives every handler of `orders` a breaker."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @hookimpl
    def failure_policy(self, subscription: Subscription) -> Policy | None:
        self.asked.append(subscription.topic)
        return Policy(breaker=Breaker()) if subscription.topic == "orders" else None


class Fixed:
    """Answers the same to everyone."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    @hookimpl
    def failure_policy(self) -> Any:
        return self._answer


class Fixed2(Fixed):
    """Another one."""


async def handle(message: Message) -> None: ...


def policies(*plugins: object, **options: Any) -> dict[str, Policy | None]:
    app = RocketApp("shop", plugins=plugins, **options)
    app.subscribe("orders")(handle)
    app.subscribe("stock", retry=Policy([5]))(handle)
    app.subscribe("carts")(handle)
    return {one.topic: one.retry for one in subscriptions_of(app, Settings())}


def test_a_plugin_is_asked_for_handlers_without_a_policy_and_the_first_answer_holds() -> None:
    cautious = Cautious()
    found = policies(cautious, Fixed(Policy([60])))
    assert found == {"orders": Policy(breaker=Breaker()), "stock": Policy([5]), "carts": Policy([60])}
    assert cautious.asked == ["orders", "stock", "carts"]


def test_a_policy_of_the_app_comes_before_those_of_plugins() -> None:
    assert set(policies(Cautious(), retry=Policy([9])).values()) == {Policy([9]), Policy([5])}


def test_an_override_holds_over_the_code_and_leaves_what_it_does_not_say() -> None:
    app = RocketApp("shop", plugins=[Fixed(Override(retries=3, said_by="night shift")), Fixed2(Policy([60]))])
    app.subscribe("stock", retry=Policy([5]), retries=9)(handle)
    (stock,) = subscriptions_of(app, Settings())
    assert (stock.retries, stock.retry, stock.retry_from) == (3, Policy([5]), "handler")
    assert stock.retries_from.startswith("night shift (plugin ")


def test_overrides_that_differ_within_one_topic_are_refused() -> None:
    class OnlyPaid:
        @hookimpl
        def failure_policy(self, subscription: Subscription) -> Override | None:
            return Override(retries=1) if subscription.tags else None

    app = RocketApp("shop", plugins=[OnlyPaid])
    app.subscribe("orders", tags="paid")(handle)
    app.subscribe("orders")(handle)
    with pytest.raises(
        RocketAppError,
        match=r"topic 'orders' of group 'shop': retries=16 contradicts retries=1 \(plugin ",
    ):
        subscriptions_of(app, Settings())


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (3, "return a Policy, an Override, or None to decline"),
        (Policy([9000]), "9000 s is longer than RocketMQ's longest delay"),
        (Override(retry=Policy([9000])), "9000 s is longer than RocketMQ's longest delay"),
        (Override(retries=-1), "retries=-1 (unlimited) needs orderly=True"),
        (Override(retries=2.5), "retries=2.5: give a whole number"),  # type: ignore[arg-type]
    ],
)
def test_an_answer_that_a_handler_cannot_have_names_the_plugin_and_the_handler(answer: Any, problem: str) -> None:
    with pytest.raises(PluginError) as caught:
        policies(Fixed(answer))
    assert "Fixed" in str(caught.value)
    assert f"{__name__.rpartition('.')[2]}" in str(caught.value)
    assert problem in str(caught.value)


def test_a_policy_of_the_settings_that_cannot_be_names_its_place_there() -> None:
    answer = Override(retry=Policy([9000]), said_by="failures.rules[0]")
    with pytest.raises(RocketAppError, match=r"failures\.rules\[0\] for \S+:handle \(\S+:\d+\): retry=Policy.* 9000 s"):
        policies(Fixed(answer))
