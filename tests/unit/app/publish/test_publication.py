"""`@app.publishes`: what a handler returns is published before its message is done."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rocketapp import Message, Retry, RocketApp, Router, SendUnknown, SetupError, Skip, Topic
from rocketapp.app.publishing import CORRELATION_ID, Publishing
from rocketapp.testing import TestApp
from tests.cases import cases
from tests.unit.app.given import call_of, message
from tests.unit.app.parts import Diary, container_of, lifecycle_of
from tests.unit.app.publish.test_publishing import Written


class Invoice(msgspec.Struct):
    id: str


def call_with(app: RocketApp, written: Written) -> Callable[[Any], Any]:
    """The callable of the app's only handler."""
    return call_of(app, Publishing(lambda: written))


async def test_what_a_handler_returns_is_published_and_follows_its_message() -> None:
    app, written, handled = RocketApp("shop", clusters={"eu": "h:1"}), Written(), message()

    @app.subscribe("orders", cluster="eu")
    @app.publishes("invoices", tag="new", keys=["k"])
    async def bill(message: Message) -> Invoice:
        return Invoice("1")

    assert await call_with(app, written)(handled) is None
    ((cluster, sent),) = written.sent
    assert (cluster, sent.topic, sent.body, sent.tag, sent.keys) == ("eu", "invoices", b'{"id":"1"}', "new", ("k",))
    assert sent.properties == {CORRELATION_ID: handled.message_id}
    assert await bill(handled) == Invoice("1")  # the function itself is unchanged


async def test_a_sync_handler_s_value_is_published_from_its_thread() -> None:
    app, written = RocketApp("shop"), Written()

    @app.subscribe("orders")
    @app.publishes("invoices")
    def bill(message: Message) -> dict[str, int]:
        return {"cents": 1}

    assert await asyncio.to_thread(call_with(app, written), message()) is None
    assert [sent.body for _, sent in written.sent] == [b'{"cents":1}']


@pytest.mark.parametrize("is_async", [True, False])
async def test_of_a_list_each_item_is_published_in_its_order(is_async: bool) -> None:
    app, written, handled = RocketApp("shop"), Written(), message()

    async def bills(message: Message) -> list[Invoice]:
        return [Invoice("1"), Invoice("2")]

    def bills_in_a_thread(message: Message) -> list[Invoice]:
        return [Invoice("1"), Invoice("2")]

    publishes = app.publishes(Topic("invoices", Invoice), tag="new")
    app.subscribe("orders")(publishes(bills) if is_async else publishes(bills_in_a_thread))
    call = call_with(app, written)
    assert await (call(handled) if is_async else asyncio.to_thread(call, handled)) is None
    sent = [one for _, one in written.sent]
    assert [one.body for one in sent] == [b'{"id":"1"}', b'{"id":"2"}']
    assert {(one.tag, one.properties[CORRELATION_ID]) for one in sent} == {("new", handled.message_id)}


@pytest.mark.parametrize("is_async", [True, False])
async def test_of_a_list_with_an_item_that_has_no_form_nothing_is_published(is_async: bool) -> None:
    app, written = RocketApp("shop"), Written()

    async def bills(message: Message) -> list[Any]:
        return [Invoice("1"), object()]

    def bills_in_a_thread(message: Message) -> list[Any]:
        return [Invoice("1"), object()]

    publishes = app.publishes("invoices")
    app.subscribe("orders")(publishes(bills) if is_async else publishes(bills_in_a_thread))
    call = call_with(app, written)
    with pytest.raises(TypeError, match="a body of type object cannot be published"):
        await (call(message()) if is_async else asyncio.to_thread(call, message()))
    assert written.sent == []  # each attempt would send the first one again


async def test_a_topic_that_holds_lists_gets_a_list_and_an_empty_list_publishes_nothing() -> None:
    app, written = RocketApp("shop"), Written()

    @app.subscribe("orders")
    @app.publishes(Topic("sums", list[int]))
    async def add(message: Message) -> list[int]:
        return [1, 2]

    assert await call_with(app, written)(message()) is None
    assert [one.body for _, one in written.sent] == [b"[1,2]"]
    app, written = RocketApp("shop"), Written()

    @app.subscribe("orders")
    @app.publishes("sums")
    async def nothing(message: Message) -> list[int]:
        return []

    assert await call_with(app, written)(message()) is None
    assert written.sent == []


@pytest.mark.parametrize("value", [None, Skip("seen"), Retry(after=10)])
async def test_nothing_and_outcomes_are_not_published(value: Any) -> None:
    app, written = RocketApp("shop"), Written()

    @app.subscribe("orders")
    @app.publishes("invoices")
    async def bill(message: Message) -> Any:
        return value

    assert await call_with(app, written)(message()) is value
    assert written.sent == []


async def test_a_send_that_fails_fails_the_attempt() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    @app.publishes("invoices")
    async def bill(message: Message) -> str:
        return "1"

    class Failing(Written):
        def producer(self, cluster: str) -> Any:
            raise SendUnknown("invoices", "no answer")

    with pytest.raises(SendUnknown):
        await call_with(app, Failing())(message())


async def test_a_typed_topic_takes_its_type_only_and_no_prefix() -> None:
    app, router, written, values = RocketApp("shop"), Router(prefix="eu-"), Written(), iter([Invoice("1"), "text"])

    @router.subscribe("orders")
    @router.publishes(Topic("invoices", Invoice))
    async def bill(message: Message) -> Any:
        return next(values)

    app.include(router)
    call = call_with(app, written)
    await call(message())
    with pytest.raises(TypeError, match="topic 'invoices' holds Invoice, not str"):
        await call(message())
    assert [sent.topic for _, sent in written.sent] == ["invoices"]


async def test_a_router_s_prefix_is_the_topic_s() -> None:
    app, outer, inner, written = RocketApp("shop"), Router(prefix="a-"), Router(prefix="b-"), Written()

    @inner.subscribe("orders")
    @inner.publishes("invoices")
    async def bill(message: Message) -> str:
        return "1"

    outer.include(inner)
    app.include(outer)
    await call_with(app, written)(message())
    assert [sent.topic for _, sent in written.sent] == ["a-b-invoices"]


def test_a_router_s_prefix_that_no_topic_can_have_is_refused_where_publishes_stands() -> None:
    router = Router(prefix="a b-")
    with pytest.raises(SetupError, match=r"test_publication.py:\d+: publishes: topic 'a b-invoices'"):
        router.subscribe(Topic("orders", Invoice))(router.publishes("invoices")(nothing))


async def nothing(message: Message) -> None: ...


async def test_publishes_above_subscribe_stops_the_start() -> None:
    app = RocketApp("shop", container=container_of(Diary()))
    app.subscribe("orders")(nothing)
    app.publishes("invoices")(nothing)
    with pytest.raises(SetupError, match="write subscribe directly above it"):
        await lifecycle_of(app).start()


def test_a_second_publishes_is_refused_with_both_lines() -> None:
    app = RocketApp("shop")
    app.publishes("invoices")(nothing)
    with pytest.raises(SetupError, match=rf"said twice, first at {__file__}:\d+: ask for a Publisher"):
        app.publishes("receipts")(nothing)


@pytest.mark.parametrize("inside", [False, True])
async def test_publishes_without_subscribe_stops_the_start(inside: bool) -> None:
    app, router = RocketApp("shop", container=container_of(Diary())), Router()
    app.include(router)
    (router if inside else app).publishes("invoices")(nothing)
    with pytest.raises(SetupError, match="a function that is not subscribed here: write subscribe directly above it"):
        await lifecycle_of(app).start()


def test_publishing_to_a_cluster_that_the_app_does_not_have_is_refused_where_it_stands() -> None:
    app = RocketApp("shop", clusters={"eu": "h:1"})
    with pytest.raises(SetupError, match=r"publishes: cluster='us' is unknown: .* names eu") as caught:
        app.subscribe("orders")(app.publishes("invoices", cluster="us")(nothing))
    assert caught.value.place.startswith(__file__)


def test_a_batch_handler_publishes_with_a_publisher() -> None:
    app = RocketApp("shop")
    with pytest.raises(SetupError, match="a batch= handler returns outcomes: ask for a Publisher"):

        @app.subscribe("orders", batch=10)
        @app.publishes("invoices")
        async def bill(messages: list[Message]) -> str:
            return "1"


@cases(
    "topic, options, problem",
    [
        ("a b", {}, "only letters"),
        (5, {}, "give a topic, not 5"),
        (nothing, {}, r'write @app.publishes\("the-topic"\)'),
        ("invoices", {"tags": "new"}, "takes no keyword 'tags'"),
        ("invoices", {"delay": -7}, "give seconds above 0"),
        ("invoices", {"timeout": -1}, "give seconds above 0"),
        ("invoices", {"keys": 5}, "keys takes str, or several"),
    ],
)
def test_arguments_that_no_message_could_have_are_refused_at_their_line(topic: Any, options: Any, problem: str) -> None:
    with pytest.raises(SetupError, match=problem) as caught:
        RocketApp("shop").publishes(topic, **options)(nothing)
    assert caught.value.place.startswith(__file__)


def test_work_that_may_not_be_done_is_neither_published_nor_done() -> None:
    app, pool = RocketApp("shop"), concurrent.futures.ThreadPoolExecutor(1)

    @app.subscribe("orders", retries=0)
    @app.publishes("invoices")
    def bill(message: Message) -> Any:
        return pool.submit(lambda: "1")

    with pool, TestApp(app) as t:
        t.publish("orders", "1")
        t.settle()
        assert (t.published, t.handled) == ([], [])
        assert "work that may not be done, of type Future: await it" in t.dead[0].reason
