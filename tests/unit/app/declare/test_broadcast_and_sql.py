"""`broadcast=` and `sql=`: what may be declared together."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from rocketapp import Message, Policy, RocketApp, Router, SetupError
from rocketapp.cli.commands.app import route_of
from rocketapp.model.subscription import SubscriptionData
from rocketapp.model.subscription_words import describe_failures, describe_run, describe_tags
from tests.cases import cases
from tests.unit.app.given import bound, plans


def handler() -> Callable[[Message], None]:
    def handle(message: Message) -> None: ...

    return handle


@pytest.mark.parametrize("first", [True, False])
def test_a_group_is_broadcast_or_not_as_a_whole(first: bool) -> None:
    app = RocketApp("shop")
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    app.subscribe("orders", broadcast=first)(handler())
    with pytest.raises(SetupError) as caught:
        app.subscribe("prices", broadcast=not first)(handler())
    assert caught.value.place == f"{__file__}:{line + 3}"
    assert f"broadcast={not first} contradicts broadcast={first}" in caught.value.problem
    assert "give this handler a group= of its own" in caught.value.problem
    assert caught.value.problem.endswith(f"at {__file__}:{line + 1}")
    app.subscribe("prices", broadcast=not first, group="prices")(handler())


def test_a_router_may_say_it_for_all_of_its_group() -> None:
    app, router = RocketApp("shop"), Router(group="caches", broadcast=True)
    router.subscribe("prices")(handler())
    router.subscribe("stock", orderly=True, retries=3)(handler())
    app.include(router)
    app.subscribe("orders")(handler())
    found = {
        one.subscription.topic: one.subscription
        for plan in plans(app)
        for topic in plan.topics
        for one in topic.handlers
    }
    assert [found[topic].broadcast for topic in ("prices", "stock", "orders")] == [True, True, False]
    # Without order a failed message is dropped at once; in order it is tried again in place.
    assert [found[topic].retries for topic in ("prices", "stock", "orders")] == [0, 3, 16]


def test_routes_say_what_becomes_of_a_failed_message() -> None:
    app = RocketApp("shop", broadcast=True)
    app.subscribe("prices")(handler())
    app.subscribe("stock", orderly=True, retries=3)(handler())
    prices, stock = (topic.handlers[0].subscription for topic in plans(app)[0].topics)
    assert describe_run(prices).startswith("concurrently, 20 at once, broadcast: each process gets every message; ")
    assert describe_failures(prices, suspend=1.0) == "dropped: logged once, and counted"
    assert describe_failures(stock, suspend=1.0) == "in place, 1 s apart, 3 times; the queue waits, then dropped"
    assert route_of(prices, suspend=1.0)["broadcast"] is True


@cases(
    "options, problem",
    [
        ({"broadcast": 1}, "broadcast=1: give True or False"),
        ({"broadcast": True, "retries": 3}, "remove retries=, or add orderly=True"),
        ({"broadcast": True, "retry": Policy([1])}, "remove the delays of retry="),
        ({"broadcast": True, "idempotent": True}, "every member handles every message"),
        ({"sql": ""}, "sql='': give an expression such as"),
        ({"sql": 5}, "sql=5: give an expression such as"),
        ({"sql": "a > 5", "tags": "paid"}, "sql= and tags= exclude each other"),
    ],
)
def test_what_cannot_be_kept_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SetupError) as caught:
        RocketApp("shop").subscribe("orders", **options)(handler())
    assert problem in caught.value.problem


def test_an_inherited_idempotent_is_refused_with_both_places() -> None:
    app = RocketApp("shop", idempotent=True)
    with pytest.raises(SetupError, match=r"from the RocketApp at .*: give this handler idempotent=False"):
        app.subscribe("prices", group="caches", broadcast=True)(handler())


def test_sql_is_told_to_brokers_as_it_is() -> None:
    app = RocketApp("shop")
    app.subscribe("orders", sql="amount > 5 AND TAGS = 'paid'")(handler())
    (topic,) = plans(app)[0].topics
    assert topic.data == SubscriptionData(
        "orders", "amount > 5 AND TAGS = 'paid'", frozenset(), topic.data.version, "SQL92"
    )
    assert describe_tags(bound(app).subscription) == "sql amount > 5 AND TAGS = 'paid'"


@pytest.mark.parametrize(
    ("one", "other"),
    [({"sql": "a > 5"}, {"sql": "a < 5"}), ({"sql": "a > 5"}, {"tags": "paid"}), ({"tags": "paid"}, {"sql": "a > 5"})],
)
def test_a_topic_with_sql_has_one_handler_in_a_group(one: dict[str, Any], other: dict[str, Any]) -> None:
    app = RocketApp("shop")
    app.subscribe("orders", **one)(handler())
    with pytest.raises(SetupError, match=r"one sql= to a topic and group, for one handler.*; the other is "):
        app.subscribe("orders", **other)(handler())
    app.subscribe("orders", **other, group="other")(handler())
