"""What an app publishes inside its handlers follows the handled message, as a Publisher's messages do."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from rocketapp import Client, Context, Message, Publisher, Pull, RocketApp, SyncClient, SyncPull, Topic, TopicPublisher
from rocketapp.app.publishing import CORRELATION_ID
from rocketapp.model.current_call import CURRENT_CALL
from rocketapp.testing import TestApp, TestedApp
from tests.unit.app.given import bound

CALLS = {"publish", "publish_many", "publish_one_way", "request", "recall"}
PLACES = {"eu": "eu:9876"}


def followed(t: TestedApp, topic: str) -> list[tuple[str, str | None]]:
    """Where the copies went, and which message they say they follow."""
    return [(one.cluster, one.properties.get(CORRELATION_ID)) for one in t.published if one.topic == topic]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("options", [{}, {"orderly": True}, {"order_by": lambda message: message.text()}])
def test_the_app_s_messages_go_to_the_cluster_of_the_handled_one_and_carry_its_id(
    is_async: bool, options: dict[str, Any]
) -> None:
    app, ids = RocketApp("shop", clusters=PLACES), dict[str, str]()
    bills = app.publisher("bills", str)

    async def settle(message: Message) -> None:
        ids[message.text()] = message.message_id
        await asyncio.sleep(1)
        await asyncio.gather(app.publish("copies", message.text()), bills.publish(message.text()))

    def settle_in_a_thread(message: Message) -> None:
        ids[message.text()] = message.message_id
        app.publish_sync("copies", message.text())
        bills.publish_sync(message.text())

    function: Callable[[Message], Any] = settle if is_async else settle_in_a_thread
    app.subscribe("orders", cluster="eu", start="first", **options)(function)
    with TestApp(app) as t:
        for body in "123":
            t.publish("orders", body, cluster="eu")
        t.settle()
        for topic in ("copies", "bills"):
            found = {
                one.text(): (one.cluster, one.properties[CORRELATION_ID]) for one in t.published if one.topic == topic
            }
            assert found == {body: ("eu", ids[body]) for body in "123"}


def test_the_message_of_a_transaction_follows_the_handled_one_in_its_own_cluster() -> None:
    app = RocketApp("shop", clusters=PLACES)

    @app.transaction("bills")
    async def bill(order: str) -> bool:
        return True

    @bill.check
    async def known(message: Message) -> bool:
        return True

    @app.subscribe("orders", cluster="eu", start="first")
    async def settle(message: Message) -> None:
        await bill(message.text())

    with TestApp(app) as t:
        sent = t.publish("orders", "1", cluster="eu")
        t.settle()
        assert followed(t, "bills") == [("", sent.message_id)]


def test_a_batch_and_a_polled_call_have_a_cluster_and_no_message_to_follow() -> None:
    app = RocketApp("shop", clusters=PLACES)

    @app.subscribe("orders", cluster="eu", start="first", batch=5)
    async def settle(messages: list[Message]) -> None:
        await app.publish("copies", "x")

    @app.poll("stock", cluster="eu", start="first", every=5)
    async def move(pull: Pull) -> None:
        if await pull():
            await app.publish("moved", "x")

    @app.poll("returns", cluster="eu", start="first", every=5)
    def take_back(pull: SyncPull) -> None:
        if pull():
            app.publish_sync("taken", "x")

    with TestApp(app) as t:
        for topic in ("orders", "stock", "returns"):
            t.publish(topic, "1", cluster="eu")
        t.advance(30)
        for topic in ("copies", "moved", "taken"):
            assert followed(t, topic) == [("eu", None)]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_follows_its_message_also_beside_a_polled_one_of_its_group(is_async: bool) -> None:
    app = RocketApp("shop")

    async def poll(pull: Pull) -> None:
        await pull(10)

    def poll_in_a_thread(pull: SyncPull) -> None:
        pull(10)

    async def settle(message: Message) -> None:
        await app.publish("copies", "x")

    def settle_in_a_thread(message: Message) -> None:
        app.publish_sync("copies", "x")

    app.poll("counters", every=1.0)(poll if is_async else poll_in_a_thread)
    app.subscribe("orders")(settle if is_async else settle_in_a_thread)
    with TestApp(app) as t:
        ids = []
        for _ in range(5):
            t.publish("counters", "x")
            ids.append(t.publish("orders", "1").message_id)
            t.advance(1.3)
        assert followed(t, "copies") == [("", each) for each in ids]


def test_what_the_call_names_itself_comes_first() -> None:
    app = RocketApp("shop", clusters=PLACES)

    @app.subscribe("orders", cluster="eu", start="first")
    async def settle(message: Message) -> None:
        await app.publish("copies", "x", cluster=None, properties={CORRELATION_ID: "mine"})

    with TestApp(app) as t:
        t.publish("orders", "1", cluster="eu")
        t.settle()
        assert followed(t, "copies") == [("", "mine")]


def test_an_app_does_not_follow_what_another_one_handles() -> None:
    app, other = RocketApp("shop"), RocketApp("bank")

    @other.subscribe("orders")
    async def settle(message: Message) -> None: ...

    @app.on_startup
    async def publishes() -> None:
        CURRENT_CALL.set(lambda: (bound(other).subscription, Message.make(b"1", topic="orders")))
        await app.publish("copies", "x")

    with TestApp(app) as t:
        assert followed(t, "copies") == [("", None)]


@pytest.mark.parametrize("kind", [RocketApp, Context, Publisher, Client])
def test_everything_that_publishes_has_the_same_calls(kind: type[Any]) -> None:
    for name in CALLS:
        assert getattr(kind, name) is getattr(Publisher, name)
        assert getattr(kind, f"{name}_sync") is getattr(Publisher, f"{name}_sync")


def test_a_sync_client_and_the_publisher_of_a_topic_have_them_too() -> None:
    for name in CALLS:
        assert getattr(SyncClient, f"{name}_sync") is getattr(Publisher, f"{name}_sync")
        wanted = set(inspect.signature(getattr(SyncClient, name)).parameters)
        assert wanted <= set(inspect.signature(getattr(Publisher, name)).parameters)
    for name in CALLS - {"recall"}:
        for call in (name, f"{name}_sync"):
            wanted = set(inspect.signature(getattr(Publisher, call)).parameters) - {"topic", "body", "items"}
            assert wanted <= set(inspect.signature(getattr(TopicPublisher, call)).parameters)
    assert "recall" not in dir(TopicPublisher)


def test_many_are_published_from_a_thread() -> None:
    app = RocketApp("shop")
    topic = Topic("copies", str)

    @app.subscribe("orders", start="first")
    def settle(message: Message, context: Context, publisher: Publisher) -> None:
        publisher.publish_many_sync("copies", ["1", "2"])
        context.publish_one_way_sync("copies", "3")
        app.publisher(topic).publish_many_sync(["4"])

    with TestApp(app) as t:
        t.publish("orders", "1")
        t.settle()
        assert sorted(one.text() for one in t.published) == ["1", "2", "3", "4"]
