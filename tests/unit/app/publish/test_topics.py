"""Topics with a type: publisher and handler agree."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec
import pytest

from rocketapp import Context, Message, Publisher, RocketApp, Router, SetupError, Topic
from tests.unit.app.given import line_of, plans
from tests.unit.app.publish.test_publishing import Written, handler, message


class Order(msgspec.Struct):
    id: str


class Paid(Order):
    cents: int = 0


class Row(TypedDict):
    id: str


orders = Topic("orders", Order)


async def one(order: Order) -> None: ...


async def beside(context: Context, order: Order) -> None: ...


async def raw(message: Message) -> None: ...


@pytest.mark.parametrize("function", [one, beside, raw])
def test_a_topic_takes_handlers_of_its_type_and_of_messages(function: Any) -> None:
    app = RocketApp("shop")
    app.subscribe(orders, tags="paid")(function)
    assert [topic.topic for plan in plans(app) for topic in plan.topics] == ["orders"]


async def other(order: Paid) -> None: ...


async def text(order: str) -> None: ...


@pytest.mark.parametrize("function", [other, text])
def test_a_handler_of_another_type_is_refused_with_its_line(function: Any) -> None:
    with pytest.raises(
        SetupError, match=r"argument 'order' is a \w+, but topic 'orders' holds Order: annotate"
    ) as caught:
        RocketApp("shop").subscribe(orders)(function)
    assert caught.value.place == line_of(function)


def test_a_batch_of_a_topic_is_a_list_of_its_type() -> None:
    app = RocketApp("shop")

    @app.subscribe(orders, batch=10)
    async def many(payloads: list[Order]) -> None: ...

    with pytest.raises(SetupError, match="holds Order"):

        @app.subscribe(orders, batch=10, group="other")
        async def texts(payloads: list[str]) -> None: ...


def test_a_topic_is_named_in_full_also_in_a_router() -> None:
    app, router = RocketApp("shop"), Router(prefix="billing-")
    router.subscribe(orders)(one)
    app.include(router)
    assert [topic.topic for plan in plans(app) for topic in plan.topics] == ["orders"]


@pytest.mark.parametrize("name", ["", "a b", 5])
def test_a_topic_needs_a_legal_name(name: Any) -> None:
    with pytest.raises(ValueError, match="Topic: "):
        Topic(name, Order)
    with pytest.raises(SetupError, match="Topic: ") as caught:
        RocketApp("shop").publisher(name, Order)
    assert caught.value.place.startswith(__file__)


@pytest.mark.parametrize(
    ("kind", "mend"), [("Order", "give the type itself, not its name"), (5, "give the type of its payload")]
)
def test_a_topic_needs_a_type(kind: Any, mend: str) -> None:
    with pytest.raises(TypeError, match=mend):
        Topic("orders", kind)
    with pytest.raises(SetupError, match=mend):
        RocketApp("shop").publisher("orders", kind)


def test_a_publisher_needs_its_type_once() -> None:
    app: Any = RocketApp("shop")
    for arguments in (("orders",), (orders, Order)):
        with pytest.raises(SetupError, match="publisher needs one type"):
            app.publisher(*arguments)


async def test_a_topic_is_published_by_its_name_and_takes_its_type_only() -> None:
    async def publishes(publisher: Publisher) -> None:
        await publisher.publish(orders, Paid("1", 5), tag="paid")
        await publisher.publish(Topic("rows", Row), {"id": "2"})
        wrong: Any = {"id": "3"}
        with pytest.raises(TypeError, match="topic 'orders' holds Order, not dict"):
            await publisher.publish_many(orders, [Order("3"), wrong])

    written = Written()
    await handler(written, publishes)(message())
    assert [(sent.topic, sent.body, sent.tag) for _, sent in written.sent] == [
        ("orders", b'{"id":"1","cents":5}', "paid"),
        ("rows", b'{"id":"2"}', None),
    ]
