from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from rocketapp import Message, Policy, Pull, RocketApp, Router, SetupError
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.model.subscription import Subscription, SubscriptionData
from tests.cases import cases
from tests.unit.app.given import bound, plans


def handler() -> Callable[[Message], None]:
    def handle(message: Message) -> None: ...

    return handle


def async_handler() -> Any:
    async def handle(message: Message) -> None: ...

    return handle


# Contradictions.


def test_a_policy_that_a_concurrent_handler_cannot_have_is_refused_wherever_it_comes_from() -> None:
    app = RocketApp("shop", retry=Policy([7201]))
    app.subscribe("stock", orderly=True)(handler())
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    with pytest.raises(SetupError) as caught:
        app.subscribe("orders")(handler())
    assert "7201 s is longer than RocketMQ's longest delay, 7200 s (2 h): give" in caught.value.problem
    assert caught.value.place == f"{__file__}:{line + 2}"
    app.subscribe("orders", retry=None)(handler())
    assert [topic.handlers[0].subscription.retry for topic in plans(app)[0].topics] == [Policy([7201]), None]


@cases(
    "options, problem",
    [
        ({"order_by": "k", "orderly": True}, "remove one of them"),
        ({"order_by": "k", "batch": 5}, "one by one: remove batch=, or order_by="),
        ({"rate": 0}, "give messages per second, more than 0"),
        ({"rate": "5/s"}, "give messages per second, more than 0"),
        ({"order_by": 5}, "give a function of the message that returns its key, or the name of a property"),
        ({"order_by": ""}, "give a function of the message"),
        ({"order_by": str}, "give a function of the message"),
        ({"order_by": async_handler()}, "a plain `def`"),
        ({"order_by": lambda: "k"}, "<lambda> cannot be called with (message)"),
        ({"idempotent": lambda one, two: "k"}, "<lambda> cannot be called with (message)"),
        ({"idempotent": lambda message: (yield)}, "is a generator: its code would never run"),
        ({"rate": 10**400}, "give messages per second, more than 0"),
        ({"timeout": 10**400}, "give seconds, more than 0"),
    ],
)
def test_an_option_that_cannot_be_kept_is_refused(options: dict[str, Any], problem: str) -> None:
    function = handler() if "batch" not in options else (lambda messages: None)
    with pytest.raises(SetupError) as caught:
        RocketApp("shop").subscribe("orders", **options)(function)
    assert problem in caught.value.problem


def test_order_by_replaces_an_inherited_orderly_and_may_be_retried_without_end() -> None:
    app = RocketApp("shop", orderly=True, retries=-1)
    app.subscribe("orders", order_by="customer", retry=Policy([10_000]))(handler())
    one = bound(app).subscription
    assert (one.orderly, one.order_by, one.retries) == (False, "customer", -1)


@cases(
    "first, second, what",
    [
        ({"tags": "paid || refunded"}, {"tags": "shipped||paid"}, "tag 'paid' has two handlers"),
        ({}, {}, "two handlers take every tag"),
        ({"tags": "*"}, {"tags": ""}, "two handlers take every tag"),
        ({"tags": "a", "orderly": True}, {"tags": "b"}, "orderly=False contradicts orderly=True"),
        ({"tags": "a", "start": "first"}, {"tags": "b"}, "start='last' contradicts start='first'"),
        ({"tags": "a", "retries": 3}, {"tags": "b"}, "retries=16 contradicts retries=3"),
        ({"tags": "a", "order_by": "k"}, {"tags": "b"}, "one has order_by= and the other has not"),
    ],
)
def test_a_contradiction_names_both_places(first: dict[str, Any], second: dict[str, Any], what: str) -> None:
    app = RocketApp("shop")
    app.subscribe("orders", **first)(handler())
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    with pytest.raises(SetupError) as caught:
        app.subscribe("orders", **second)(handler())
    assert caught.value.place == f"{__file__}:{line + 2}"
    assert f"{__file__}:{line - 1}" in caught.value.problem
    assert what in caught.value.problem


def test_what_was_refused_is_not_registered() -> None:
    app = RocketApp("shop")
    app.subscribe("orders")(handler())
    with pytest.raises(SetupError):
        app.subscribe("orders")(handler())
    assert len(plans(app)[0].topics[0].handlers) == 1


@pytest.mark.parametrize("apart", [{"group": "other"}, {"cluster": "eu"}])
def test_another_group_or_cluster_is_another_consumer(apart: dict[str, Any]) -> None:
    app = RocketApp("shop", clusters={"eu": "h:1"})
    app.subscribe("orders")(handler())
    app.subscribe("orders", retries=3, orderly=True, **apart)(handler())
    assert {(plan.cluster, plan.group) for plan in plans(app)} == {
        ("", "shop"),
        (apart.get("cluster", ""), apart.get("group", "shop")),
    }


def test_brokers_hear_the_union_of_tags() -> None:
    app = RocketApp("shop")
    app.subscribe("orders", tags="refunded || paid")(handler())
    app.subscribe("orders", tags="shipped")(handler())
    (topic,) = plans(app)[0].topics
    expected = SubscriptionData("orders", "paid || refunded || shipped", frozenset({"paid", "refunded", "shipped"}))
    assert topic.data == expected


def test_topics_of_a_group_share_a_consumer() -> None:
    app = RocketApp("shop")
    app.subscribe("orders")(handler())
    app.subscribe("stock", orderly=True)(async_handler())
    (plan,) = plans(app)
    assert [topic.topic for topic in plan.topics] == ["orders", "stock"]


# One declaration alone.


@cases(
    "options, what",
    [
        ({"topic": ""}, "a topic needs a name"),
        ({"topic": "or ders"}, "only letters, digits"),
        ({"topic": "x" * 128}, "at most 127"),
        ({"topic": None}, "give a topic, not None: write @app.subscribe"),
        ({"topic": "%DLQ%"}, "lacks the group's name"),
        ({"group": ""}, "a group needs a name"),
        ({"group": "x" * 121}, "at most 120"),
        ({"group": "DEFAULT_CONSUMER"}, "reserved"),
        ({"tags": "||"}, "names no tag"),
        ({"tags": [5]}, "give a list of tags"),
        ({"tags": "a\nb"}, "control character"),
        ({"tags": "a\x01b"}, "control character"),
        ({"tags": "a || b\x7f"}, "control character"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "subscribe the topic that its messages are sent to"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, "subscribe the topic that its messages are sent to"),
        ({"group": "CID_RMQ_SYS_TRANS"}, "choose another"),
        ({"retry": 3}, "write retries= for the number of attempts"),
        ({"retry": [1, 5]}, "give a Policy"),
        ({"retry": "x"}, "give a Policy("),
        ({"orderly": "yes"}, "give True or False"),
        ({"batch": 0}, "from 1 to 65535"),
        ({"batch": 65_536}, "from 1 to 65535"),
        ({"batch": True}, "give a whole number"),
        ({"batch_wait": 1.0}, "means nothing without batch="),
        ({"batch": 2, "batch_wait": -1}, "give seconds, 0 or more"),
        ({"batch": 2, "batch_wait": True}, "batch_wait=True: give seconds, 0 or more"),
        ({"batch": 2, "batch_wait": float("inf")}, "give seconds, 0 or more"),
        ({"concurrency": 0}, "from 1 to 1000 for a sync handler"),
        ({"concurrency": 1001}, "from 1 to 1000 for a sync handler"),
        ({"concurrency": "8"}, "give a whole number"),
        ({"retries": -2}, "from -1"),
        ({"retries": 1.5}, "give a whole number"),
        ({"retries": True}, "retries=True: give a whole number"),
        ({"rate": True}, "rate=True: give messages per second"),
        ({"concurrency": True}, "concurrency=True: give a whole number"),
        ({"timeout": True}, "timeout=True: give seconds"),
        ({"retries": -1}, "needs orderly=True"),
        ({"timeout": 3}, "needs an async handler"),
        ({"timeout": 0}, "more than 0"),
        ({"start": "now"}, 'give "first", "last" or an aware datetime'),
        ({"start": datetime(2026, 1, 1)}, "has no time zone"),
        ({"cluster": "eu"}, "is unknown: RocketApp(clusters=...) names none"),
        ({"cluster": 3}, "is not a name"),
        ({"topic": "%RETRY%shop"}, "the group's own retry topic"),
        ({"topic": "%RETRY%other", "group": "other"}, "the group's own retry topic"),
    ],
)
@cases("enabled", [True, False])
def test_a_declaration_that_cannot_work_is_refused(options: dict[str, Any], what: str, enabled: bool) -> None:
    arguments = {"topic": "orders", **options, "enabled": enabled}
    with pytest.raises(SetupError) as caught:
        RocketApp("shop").subscribe(**arguments)(batch_handler() if "batch" in options else handler())
    assert what in str(caught.value)
    assert caught.value.place.startswith(f"{__file__}:")


def batch_handler() -> Any:
    def handle(messages: list[Message]) -> None: ...

    return handle


def test_an_async_handler_may_have_more_at_once_and_a_timeout() -> None:
    app = RocketApp("shop")
    app.subscribe("orders", concurrency=65_535, timeout=0.5)(async_handler())
    assert bound(app).subscription.timeout == 0.5
    with pytest.raises(SetupError, match="from 1 to 65535 for an async handler"):
        app.subscribe("stock", concurrency=65_536)(async_handler())


def test_unlimited_retries_are_for_orderly_handlers() -> None:
    app = RocketApp("shop")
    app.subscribe("orders", orderly=True, retries=-1)(handler())
    assert bound(app).subscription.retries == -1


@pytest.mark.parametrize(
    ("declare", "problem"),
    [
        (
            lambda: RocketApp("shop").subscribe("orders", tag="paid"),
            "subscribe takes no keyword 'tag': did you mean tags?",
        ),
        (lambda: Router(retriez=2), "Router takes no keyword 'retriez': did you mean retries?"),
        (lambda: Router(prfix="shop-"), "Router takes no keyword 'prfix': did you mean prefix?"),
        (lambda: Router(tags="a"), "Router takes no keyword 'tags': known are broadcast, cluster, concurrency, group"),
        (lambda: RocketApp("shop", cluster_s={}), "RocketApp takes no keyword 'cluster_s': did you mean cluster"),
    ],
)
def test_an_unknown_keyword_is_refused_with_its_line_and_the_nearest_name(
    declare: Callable[[], object], problem: str
) -> None:
    with pytest.raises(SetupError) as caught:
        declare()
    assert caught.value.problem.startswith(problem)
    assert caught.value.place.startswith(f"{__file__}:")


# What is left out is inherited.


def subscription_of(app: RocketApp, consumer: ConsumerConfig | None = None, *, group: str = "") -> Subscription:
    ((topic,),) = (plan.topics for plan in plans(app, consumer, group=group))
    return topic.handlers[0].subscription


@cases(
    "name, values, last",
    [
        ("group", ("a", "b", "c", "d"), "set"),
        ("cluster", ("eu", "us", "eu", "us"), ""),
        ("retries", (1, 2, 3, 4), 9),
        ("concurrency", (1, 2, 3, 4), 7),
        ("start", ("first", "last", "first", "last"), "last"),
        ("timeout", (1.0, 2.0, 3.0, 4.0), None),
        ("orderly", (True, False, True, False), False),
        ("idempotent", (True, False, True, False), False),
    ],
)
@cases("outermost", range(5))
def test_an_option_comes_from_the_innermost_that_says_it(
    name: str, values: tuple[Any, ...], last: object, outermost: int
) -> None:
    handler_says, inner_says, outer_says, app_says = (
        {name: value} if number >= outermost else {} for number, value in enumerate(values)
    )
    app = RocketApp("shop", clusters={"eu": "h:1", "us": "h:2"}, **app_says)
    outer, inner = Router(**outer_says), Router(**inner_says)
    inner.subscribe("orders", **handler_says)(async_handler())
    outer.include(inner)
    app.include(outer)
    found = subscription_of(app, ConsumerConfig(retries=9, concurrency=7), group="set")
    assert getattr(found, name) == (values[outermost] if outermost < len(values) else last)


def test_what_a_sync_handler_cannot_inherit_is_refused_with_where_it_comes_from() -> None:
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    router = Router(timeout=3)
    with pytest.raises(SetupError, match=rf"from the Router at {re.escape(__file__)}:{line + 1}.*timeout=None"):
        router.subscribe("orders")(handler())
    router.subscribe("orders", timeout=None)(handler())
    threads = RocketApp("shop", concurrency=2000)
    with pytest.raises(SetupError, match=r"from 1 to 1000 for a sync handler \(from the RocketApp at"):
        threads.subscribe("orders")(handler())


@pytest.mark.parametrize("options", [{"retries": "2"}, {"group": ""}, {"timeout": 0}, {"concurrency": 0}])
def test_a_router_and_an_app_are_refused_what_no_handler_could_have(options: dict[str, Any]) -> None:
    for make in (lambda: Router(**options), lambda: RocketApp("shop", **options)):
        with pytest.raises(SetupError) as caught:
            make()
        assert next(iter(options)) in str(caught.value)
        assert caught.value.place.startswith(f"{__file__}:")


def test_many_handlers_of_one_topic_are_compared_with_their_own_tags_alone() -> None:
    app = RocketApp("shop")
    for number in range(300):
        app.subscribe("orders", tags=f"t{number} || u{number}")(handler())
    app.subscribe("orders")(handler())
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    with pytest.raises(SetupError, match="tag 'u7' has two handlers") as caught:
        app.subscribe("orders", tags="u7")(handler())
    assert f"{__file__}:{line - 3}" not in caught.value.problem
    assert len(plans(app)[0].topics[0].handlers) == 301


def test_a_disabled_handler_is_left_out_and_contradicts_no_other() -> None:
    app = RocketApp("shop")
    app.subscribe("orders")(handler())
    app.subscribe("orders", enabled=False)(handler())
    assert len(plans(app)[0].topics[0].handlers) == 1


def test_the_name_of_an_app_is_a_legal_group() -> None:
    with pytest.raises(SetupError, match="only letters, digits") as caught:
        RocketApp("my shop")
    assert caught.value.place.startswith(f"{__file__}:")


# What settings complete.


def test_settings_fill_in_what_was_not_written_down() -> None:
    app = RocketApp("shop")
    app.subscribe("a")(handler())
    app.subscribe("b")(async_handler())
    app.subscribe("c", retries=16, concurrency=2, group="own")(handler())
    consumer = ConsumerConfig(retries=4, threads=7, concurrency=9)
    found = {
        one.subscription.topic: (one.subscription.group, one.subscription.retries, one.subscription.concurrency)
        for plan in plans(app, consumer, group="from-settings")
        for topic in plan.topics
        for one in topic.handlers
    }
    assert found == {"a": ("from-settings", 4, 7), "b": ("from-settings", 4, 9), "c": ("own", 16, 2)}


def test_what_settings_make_contradictory_is_refused_at_start() -> None:
    app = RocketApp("shop")
    app.subscribe("orders", tags="a")(handler())
    app.subscribe("orders", tags="b", retries=16)(handler())
    assert len(plans(app)) == 1
    with pytest.raises(SetupError, match="retries=16 contradicts retries=3"):
        plans(app, ConsumerConfig(retries=3))
    app = RocketApp("shop")
    app.subscribe("orders")(handler())
    app.subscribe("orders", group="billing")(handler())
    with pytest.raises(SetupError, match="two handlers take every tag"):
        plans(app, group="billing")


def test_unlimited_retries_of_settings_are_refused_for_concurrent_handlers() -> None:
    app = RocketApp("shop")
    app.subscribe("orders")(handler())
    with pytest.raises(SetupError, match=r"retries=-1 .*needs orderly=True.* \(from consumer.retries\)"):
        plans(app, ConsumerConfig(retries=-1))
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    router = Router(retries=-1)
    router.subscribe("orders")(handler())
    with pytest.raises(SetupError, match=rf"needs orderly=True.* \(from Router at {re.escape(__file__)}:{line + 1}\)"):
        RocketApp("shop").include(router)


def test_a_subscription_is_complete() -> None:
    app = RocketApp("shop")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    app.subscribe("orders", tags="paid", start=start, batch=5)(batch_handler())
    subscription = bound(app).subscription
    assert (subscription.group, subscription.batch, subscription.batch_wait, subscription.start) == (
        "shop",
        5,
        0.1,
        start,
    )
    assert (subscription.concurrency, subscription.retries, subscription.is_async) == (20, 16, False)
    assert subscription.handler_name == f"{__name__}:batch_handler.<locals>.handle"


# Routers.


def test_a_router_lends_prefix_group_and_cluster() -> None:
    app = RocketApp("shop", clusters={"eu": "h:1"})
    router = Router(prefix="billing-", group="billing", cluster="eu")
    router.subscribe("orders")(handler())
    router.subscribe("stock", group="own")(handler())
    app.include(router)
    found = {(plan.cluster, plan.group, topic.topic) for plan in plans(app) for topic in plan.topics}
    assert found == {("eu", "billing", "billing-orders"), ("eu", "own", "billing-stock")}


def test_prefixes_of_nested_routers_add_up_and_the_innermost_group_decides() -> None:
    app = RocketApp("shop")
    inner, middle, outer = Router(prefix="c-"), Router(prefix="b-", group="middle"), Router(prefix="a-", group="outer")
    inner.subscribe("orders")(handler())
    middle.include(inner)
    outer.include(middle)
    app.include(outer)
    (plan,) = plans(app)
    assert (plan.group, plan.topics[0].topic) == ("middle", "a-b-c-orders")


def test_dead_letters_get_no_prefix() -> None:
    app, router = RocketApp("shop"), Router(prefix="billing-")
    router.subscribe("%DLQ%billing")(handler())
    app.include(router)
    assert plans(app)[0].topics[0].topic == "%DLQ%billing"


def test_what_is_added_to_a_router_after_it_was_included_counts_as_well() -> None:
    app, outer, inner = RocketApp("shop"), Router(), Router(prefix="a-")
    app.include(outer)
    outer.include(inner)
    inner.subscribe("orders")(handler())
    assert plans(app)[0].topics[0].topic == "a-orders"


def test_names_are_checked_with_their_prefix() -> None:
    router = Router(prefix="x" * 127)
    with pytest.raises(SetupError, match="at most 127"):
        router.subscribe("orders")(handler())
    with pytest.raises(SetupError, match="only letters"):
        Router(prefix="a b").subscribe("orders")(handler())
    outer, inner = Router(prefix="x" * 100), Router(prefix="y" * 20)
    inner.subscribe("orders-and-more")(handler())
    with pytest.raises(SetupError, match="at most 127"):
        outer.include(inner)


def test_a_contradiction_across_routers_names_both_places() -> None:
    app, one, other = RocketApp("shop"), Router(), Router()
    one.subscribe("orders")(handler())
    other.subscribe("orders")(handler())
    app.include(one)
    with pytest.raises(SetupError, match=r"the other is .* at .*test_registry.py:\d+"):
        app.include(other)


def test_a_router_cannot_include_itself() -> None:
    one, other = Router(), Router()
    one.include(other)
    with pytest.raises(SetupError, match="cannot include itself"):
        other.include(one)
    with pytest.raises(SetupError, match="cannot include itself"):
        one.include(one)
    with pytest.raises(SetupError, match="include takes a Router"):
        one.include("billing")  # type: ignore[arg-type]


# How tags are said.


@cases("tags", ["*", "", "a||b", "*||a", "two words || b", "ä", ["a", "b"], ["a|b", "c,d"], ["*"], ("a",)])
def test_tags_that_may_be_meant_are_taken(tags: Any) -> None:
    app = RocketApp("shop")
    app.subscribe("orders", tags=tags)(handler())
    assert len(plans(app)) == 1


@cases(
    "tags, problem",
    [
        ("paid|refunded", 'write tags=["paid", "refunded"]'),
        ("paid,refunded", 'write tags=["paid", "refunded"]'),
        ("paid | refunded", 'write tags=["paid", "refunded"]'),
        ("paid, refunded || lost", 'write tags=["paid", "refunded", "lost"]'),
        (["paid || refunded"], "give a list of tags"),
        (["paid", 5], "give a list of tags"),
        ([" paid"], "give a list of tags"),
        (["*", "paid"], "give a list of tags"),
        ([], "give a list of tags"),
        (5, 'tags=["paid", "refunded"]'),
    ],
)
def test_several_tags_are_a_list_and_what_looks_like_one_names_it(tags: Any, problem: str) -> None:
    with pytest.raises(SetupError, match=re.escape(problem)):
        RocketApp("shop").subscribe("orders", tags=tags)(handler())


def test_a_list_of_tags_is_united_and_told_apart_as_a_string_is() -> None:
    app = RocketApp("shop")
    app.subscribe("orders", tags=["paid", "a|b"])(handler())
    app.poll("stock", every=5, tags=["moved"])(polled)
    first, second = plans(app)[0].topics
    assert (first.data.expression, first.data.tags) == ("a|b || paid", {"a|b", "paid"})
    assert second.data.tags == {"moved"}


async def polled(pull: Pull) -> None: ...
