"""Calling a handler as its app would, and the messages and contexts that tests make."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from dependency_injector import containers, providers
from dependency_injector.wiring import Provide

from rocketapp import (
    ConfigError,
    Context,
    DeadLetter,
    Message,
    Outcomes,
    Publisher,
    Pull,
    Retry,
    RocketApp,
    SetupError,
    Skip,
)
from rocketapp.app.run.container import Container
from rocketapp.model.message_queue import MessageQueue
from rocketapp.plugin import Surface, hookimpl, option
from rocketapp.testing import Done, Published, TestApp, call, call_sync, make_message


class Order(msgspec.Struct, frozen=True):
    id: str
    amount: int


class Shop(containers.DeclarativeContainer):
    database = providers.Object("orders.db")


async def test_a_payload_is_decoded_arguments_are_injected_and_the_outcome_is_a_value() -> None:
    app = RocketApp("shop", container=Shop)

    @app.subscribe("orders", tags="paid")
    async def settle(order: Order, message: Message, context: Context, database: str = Provide["database"]) -> object:
        return order, message.topic, message.tag, context.group, context.attempt, database

    assert await call(settle, Order("1", 5), app=app) == Done((Order("1", 5), "orders", "paid", "shop", 1, "orders.db"))


async def test_every_outcome_is_returned_and_an_exception_is_the_cause_of_a_retry() -> None:
    async def settle(message: Message) -> object:
        match message.text():
            case "raise":
                raise ValueError("no stock")
            case "retry":
                raise Retry(after=5)
            case "skip":
                return Skip("a test")
        return DeadLetter("stolen")

    failed = await call(settle, "raise")
    assert isinstance(failed, Retry)
    assert isinstance(failed.__cause__, ValueError)
    again, skipped, dead = await call(settle, "retry"), await call(settle, "skip"), await call(settle, "dead")
    assert isinstance(again, Retry)
    assert again.after == 5
    assert isinstance(skipped, Skip)
    assert isinstance(dead, DeadLetter)
    assert (skipped.reason, dead.reason) == ("a test", "stolen")


async def test_a_body_that_cannot_be_read_is_a_dead_letter() -> None:
    async def settle(order: Order) -> None: ...

    outcome = await call(settle, b"{")
    assert isinstance(outcome, DeadLetter)
    assert "cannot be read as Order" in outcome.reason


def test_a_test_without_a_loop_calls_async_handlers_in_virtual_time() -> None:
    async def settle(order: Order) -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert call_sync(settle, Order("1", 5)) == Done(3600)


async def test_a_sync_handler_runs_in_a_thread_and_may_publish() -> None:
    app, published, threads = RocketApp("shop"), list[Published](), list[int]()

    @app.subscribe("orders")
    def settle(order: Order, publisher: Publisher) -> None:
        threads.append(threading.get_ident())
        publisher.publish_sync("stock", order, tag="out")

    assert await call(settle, Order("1", 5), app=app, published=published) == Done()
    assert call_sync(settle, Order("2", 5), app=app, published=published) == Done()
    assert [(one.topic, one.tag, one.payload(Order).id) for one in published] == [
        ("stock", "out", "1"),
        ("stock", "out", "2"),
    ]
    assert threading.get_ident() not in threads


async def test_a_batch_is_called_with_a_list_and_answers_with_one() -> None:
    async def count(orders: list[Order], messages: list[Message]) -> Outcomes:
        return Outcomes({message: Retry() for message, order in zip(messages, orders, strict=True) if order.amount < 0})

    done, again = await call(count, [Order("1", 5), Order("2", -5)])
    assert isinstance(done, Done)
    assert isinstance(again, Retry)


async def test_a_function_that_is_no_handler_of_the_app_is_refused() -> None:
    with pytest.raises(LookupError, match="is not a handler of <RocketApp shop"):
        await call(print, b"", app=RocketApp("shop"))


async def test_a_handler_in_several_clusters_is_called_as_it_is() -> None:
    app, published = RocketApp("shop", clusters={"eu": "192.0.2.1:9876"}), list[Published]()

    @app.subscribe("orders")
    @app.subscribe("orders", cluster="eu")
    async def settle(message: Message, publisher: Publisher) -> None:
        await publisher.publish("bills", message.body)

    assert await call(settle, b"5", app=app, published=published) == Done()
    assert [one.topic for one in published] == ["bills"]


async def test_one_of_two_groups_that_a_handler_is_in_is_chosen() -> None:
    app, handled = RocketApp("shop"), list[str]()

    @app.subscribe("orders")
    @app.subscribe("orders", group="audit")
    async def settle(context: Context) -> None:
        handled.append(context.group)

    assert await call(settle, b"", app=app, topic="orders", group="audit") == Done()
    assert handled == ["audit"]
    with pytest.raises(LookupError, match="subscribes orders in group audit, orders in group shop: choose one with"):
        await call(settle, b"", app=app)


async def test_a_polled_handler_is_refused_with_what_to_use() -> None:
    app = RocketApp("shop")

    @app.poll("orders", every=1.0)
    async def work(pull: Pull) -> None: ...

    with pytest.raises(LookupError, match="work pulls its messages, and is called with none: use TestApp"):
        await call(work, b"1", app=app)


async def test_a_method_is_the_handler_that_was_subscribed_by_its_object() -> None:
    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        async def settle(self, message: Message) -> str:
            return self.name

    app, first, second = RocketApp("shop"), Shop("first"), Shop("second")
    app.subscribe("orders")(first.settle)
    app.subscribe("returns")(second.settle)
    assert await call(first.settle, b"1", app=app) == Done("first")
    assert await call(second.settle, b"1", app=app) == Done("second")


async def test_a_cluster_that_the_app_does_not_name_is_refused_as_by_a_running_app() -> None:
    app = RocketApp("shop", clusters={"eu": "h:1"})

    @app.subscribe("orders")
    async def settle(message: Message, publisher: Publisher) -> None:
        await publisher.publish("bills", message.body, cluster=message.text())

    published: list[Published] = []
    assert await call(settle, b"eu", app=app, published=published) == Done()
    outcome = await call(settle, b"us", app=app, published=published)
    assert isinstance(outcome.__cause__, SetupError)
    assert "cluster='us' is unknown: RocketApp(clusters=...) names eu" in str(outcome.__cause__)
    assert [one.cluster for one in published] == ["eu"]


async def test_a_misspelt_keyword_is_refused_instead_of_collecting_nothing() -> None:
    with pytest.raises(TypeError, match=r"call\(\) takes no keyword 'publised': it takes app, topic, group, published"):
        await call(print, b"", publised=[])  # type: ignore[call-overload]


def test_a_keyword_of_no_message_is_refused_by_what_was_called_with_those_it_takes() -> None:
    _, *keywords = inspect.signature(Message.make).parameters
    said = f"make_message() takes no keyword 'topc': it takes {', '.join(keywords)}"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        make_message(b"", topc="orders")  # type: ignore[call-arg]
    assert [name for name in keywords if name not in inspect.getdoc(make_message)] == []


def test_a_message_is_what_a_pull_would_bring() -> None:
    queue, now = MessageQueue("orders", "broker-b", 3), datetime(2027, 1, 2, tzinfo=UTC)
    message = make_message(
        Order("1", 5),
        topic="orders",
        tag="paid",
        keys=["1", "a"],
        properties={"shop": "eu"},
        attempt=3,
        queue=queue,
        offset=17,
        message_id="AB",
        born_at=now,
    )
    assert (message.json(), message.tag, message.keys) == ({"id": "1", "amount": 5}, "paid", ["1", "a"])
    assert (message.properties["shop"], message.attempt, message.queue) == ("eu", 3, queue)
    assert (message.offset, message.message_id, message.born_at) == (17, "AB", now)
    assert {message: 1}[message] == 1
    assert make_message().message_id != make_message().message_id


async def test_a_context_is_made_for_a_handler_that_is_called_directly() -> None:
    context = Context.make(make_message(attempt=2), group="shop")
    assert (context.attempt, context.group, {context: 1}[context]) == (2, "shop", 1)
    context.logger.info("is not handled by anything")
    with pytest.raises(RuntimeError, match=r"give Context.make\(publisher="):
        await context.publish("stock", b"")


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_an_idempotent_handler_is_called_like_any_other(is_async: bool) -> None:
    app = RocketApp("shop")

    async def settle(message: Message) -> str:
        return message.text()

    def settle_in_thread(message: Message) -> str:
        return message.text()

    handler = settle if is_async else settle_in_thread
    app.subscribe("orders", idempotent=True)(handler)
    assert await call(handler, "5", app=app) == Done("5")
    assert await asyncio.gather(*(call(handler, text, app=app) for text in "ab")) == [Done("a"), Done("b")]


class Seeing:
    """A plugin that sees the settings, starts and stops."""

    def __init__(self) -> None:
        self.told: list[str] = []

    @hookimpl
    def app_setup(self, app: Surface) -> None:
        self.told.append(f"settings of {app.name}")

    @hookimpl
    async def app_startup(self, app: Surface) -> None:
        self.told.append(f"started with {len(app.subscriptions)}")

    @hookimpl
    def app_shutdown(self) -> None:
        self.told.append("stopped")


async def test_plugins_know_the_settings_and_are_started_for_the_call() -> None:
    seeing = Seeing()
    app = RocketApp("shop", plugins=[seeing])

    @app.subscribe("orders")
    async def settle(message: Message) -> None:
        seeing.told.append("called")
        raise ValueError("no stock")

    outcome = await call(settle, b"", app=app)
    assert isinstance(outcome, Retry)
    assert "no stock" in str(outcome.__cause__)
    assert seeing.told == ["settings of shop", "started with 1", "called", "stopped"]


async def test_the_clock_of_plugins_is_that_of_the_messages_and_of_a_container() -> None:
    class Aging:
        @hookimpl
        def app_setup(self, app: Surface) -> None:
            self.now = app.now

        @hookimpl
        def message_filter(self) -> Callable[[Message], bool]:
            return lambda message: self.now() - message.born_at < timedelta(hours=1)

    @dataclass
    class Noon:
        def now(self) -> float:
            return datetime(2030, 1, 1, 12, tzinfo=UTC).timestamp()

    class Parts(Container):
        clock = providers.Singleton(Noon)

    aging = Aging()
    app = RocketApp("shop", plugins=[aging])

    @app.subscribe("orders")
    async def settle(message: Message) -> None: ...

    fresh = make_message()
    assert await call(settle, fresh, app=app) == Done()
    old = await call(settle, make_message(born_at=fresh.born_at - timedelta(hours=2)), app=app)
    assert isinstance(old, Skip)
    assert old.reason == "filtered"
    with TestApp(app) as t:
        t.publish("orders", b"1", delay=7200)
        t.settle()
        assert (t.filtered, t.handled) == (1, [])
    with TestApp(RocketApp("shop", plugins=[aging], container=Parts())):
        assert aging.now() == datetime(2030, 1, 1, 12, tzinfo=UTC)


async def test_plugins_of_an_app_that_runs_are_not_started_again() -> None:
    seeing = Seeing()
    app = RocketApp("shop", plugins=[seeing])

    @app.subscribe("orders")
    async def settle(message: Message) -> None: ...

    async with TestApp(app):
        assert await call(settle, b"", app=app) == Done()
    assert seeing.told == ["settings of shop", "started with 1", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopOptions:
    currency: str = option("EUR", "What prices are in.")


def test_the_apps_own_settings_are_there_during_the_call_alone() -> None:
    app = RocketApp("shop", options=ShopOptions)

    @app.subscribe("orders")
    async def settle(message: Message, options: ShopOptions) -> str:
        return options.currency + app.options(ShopOptions).currency

    assert call_sync(settle, b"", app=app) == Done("EUREUR")
    with pytest.raises(SetupError, match="is not running"):
        app.options(ShopOptions)


async def test_settings_of_a_call_come_before_those_of_the_app_and_are_refused_beside_others() -> None:
    app = RocketApp("shop", options=ShopOptions)

    @app.subscribe("orders")
    async def settle(message: Message, options: ShopOptions) -> str:
        return options.currency

    dollars = {"shop": {"currency": "USD"}}
    assert await call(settle, b"", app=app, settings=dollars) == Done("USD")
    async with TestApp(app):
        with pytest.raises(RuntimeError, match="shop runs with other settings"):
            await call(settle, b"", app=app, settings=dollars)
    with pytest.raises(ConfigError, match="currencies"):
        await call(settle, b"", app=app, settings={"shop": {"currencies": "USD"}})


class Complex:
    """Bodies of complex numbers."""

    content_type = "text/x-complex"

    def claims(self, kind: type[Any]) -> bool:
        return kind is complex

    def decoder(self, kind: Any) -> Callable[[bytes], Any] | None:
        return (lambda body: complex(body.decode())) if kind is complex else None

    def encode(self, body: Any) -> bytes:
        return str(body).encode()


class ComplexPlugin:
    @hookimpl
    def payload_codec(self) -> Complex:
        return Complex()


async def test_payloads_are_encoded_and_read_with_the_codecs_and_upcasters_of_the_app() -> None:
    app, published = RocketApp("shop", plugins=[ComplexPlugin()]), list[Published]()

    @app.upcaster(Order, version=1)
    def from_euros(old: dict[str, Any]) -> dict[str, Any]:
        return {"id": old["id"], "amount": old["euros"] * 100}

    @app.subscribe("orders")
    async def settle(order: Order, publisher: Publisher) -> int:
        await publisher.publish("paid", order)
        await publisher.publish("impedance", 1 + 2j)
        return order.amount

    assert await call(settle, Order("1", 5), app=app, published=published) == Done(5)
    assert await call(settle, make_message(Order("1", 5), app=app), app=app) == Done(5)
    assert await call(settle, make_message({"id": "1", "euros": 5}), app=app) == Done(500)
    paid, impedance = published
    assert (paid.properties["payload-version"], paid.payload(Order)) == ("2", Order("1", 5))
    assert (impedance.properties["content-type"], impedance.payload(complex)) == ("text/x-complex", 1 + 2j)
    with TestApp(app) as t:
        t.publish("orders", Order("2", 7))
        t.settle()
        assert [one.payload(Order) for one in t.published if one.topic == "paid"] == [Order("2", 7)]


async def test_an_unreadable_outcome_of_one_message_says_nothing_of_the_others() -> None:
    async def settle(messages: list[Message]) -> dict[Message, object]:
        again = Retry()
        again.after = "soon"  # type: ignore[assignment]
        return {messages[0]: again, messages[1]: Skip("a test")}

    again, skipped, done = await call(settle, [b"1", b"2", b"3"])
    assert isinstance(again, Retry)
    assert isinstance(skipped, Skip)
    assert done == Done()


async def test_messages_for_two_clusters_at_once_are_told_apart() -> None:
    app, published = RocketApp("shop", clusters={"eu": "h:1", "us": "h:2"}), list[Published]()

    @app.subscribe("orders", cluster="eu")
    async def copy(message: Message, publisher: Publisher) -> None:
        await asyncio.gather(publisher.publish("copies", b"", cluster="us"), publisher.publish("copies", b""))

    assert await call(copy, b"", app=app, published=published) == Done()
    assert sorted(one.cluster for one in published) == ["eu", "us"]


@pytest.mark.parametrize("runs", [True, False])
def test_what_a_called_handler_does_by_its_app_is_collected_whether_that_runs_or_not(runs: bool) -> None:
    app = RocketApp("shop")
    bills = app.publisher("bills", dict)

    @app.subscribe("orders")
    async def settle(message: Message) -> None:
        await app.publish("paid", message.body)
        await bills.publish({"id": 1})
        app.pause("orders")

    @app.subscribe("returns")
    def take_back(message: Message) -> None:
        app.publish_sync("refunds", message.body)

    async def both() -> list[Published]:
        published: list[Published] = []
        for handler in (settle, take_back):
            message = make_message(b"5", message_id="first")
            assert await call(handler, message, app=app, published=published) == Done()
        return published

    if runs:
        with TestApp(app) as t:
            found, sent = t.run(both()), list(t.published)
            t.publish("orders", b"6")
            t.advance()
            assert len(t.handled) == 1, "it is not paused"
    else:
        found, sent = asyncio.run(both()), []
    assert [(one.topic, one.properties["rocketapp.correlation_id"]) for one in found] == [
        ("paid", "first"),
        ("bills", "first"),
        ("refunds", "first"),
    ]
    assert sent == []
