"""The document of an app: valid by the official schema, the same every time, and true."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from rocketapp import Message, RocketApp, Router, Topic
from rocketapp.app.declare.phases import TwoPhases, declared_of, read_settings
from rocketapp.asyncapi.document import UNVERSIONED, document_of
from rocketapp.errors import PluginError, SetupError
from rocketapp.testing import TestApp
from rocketapp.wire.body import encode_body
from tests.unit.asyncapi.everything import (
    Address,
    Cash,
    Category,
    Click,
    Colour,
    Later,
    Note,
    Order,
    Page,
    Shelf,
    everything,
)
from tests.unit.asyncapi.official import accepts, problems, references


def described(app: TwoPhases, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    return document_of(app, read_settings(app, environ or {}))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return described(everything())


def binding(document: Mapping[str, Any], operation: str) -> Any:
    return document["operations"][operation]["bindings"]["x-rocketmq"]


def test_a_document_of_everything_is_valid_by_the_official_schema(document: dict[str, Any]) -> None:
    assert problems(document) == []
    assert len(list(references(document))) > 100


def test_the_witness_refuses_what_is_wrong(document: dict[str, Any]) -> None:
    assert problems({**document, "asyncapi": "2.6.0"})
    assert problems({**document, "channels": {}})
    broken = {**document["operations"]["receive.stock.move"], "action": "take"}
    assert problems({**document, "operations": {"receive.stock.move": broken}})


@pytest.mark.parametrize("app", [RocketApp("empty"), RocketApp("empty", clusters={"eu": "192.0.2.1:9876"})])
def test_an_app_without_handlers_has_a_valid_document(app: RocketApp) -> None:
    assert problems(described(app)) == []


def test_an_address_server_is_a_server_of_another_protocol() -> None:
    document = described(
        RocketApp("shop"), {"ROCKETAPP_CLIENT__NAME_SERVER": "http://conf.example:8080/rocketmq/nsaddr"}
    )
    server = {"host": "conf.example:8080", "pathname": "/rocketmq/nsaddr", "protocol": "http"}
    assert document["servers"] == {"default": {**server, "description": "Address server: it names the name servers."}}
    assert problems(document) == []


def test_the_example_has_a_valid_document() -> None:
    document = described(importlib.import_module("example_app.app").app)
    assert problems(document) == []
    assert "receive.shop-orders.place" in document["operations"]


def test_an_operation_tells_the_group_how_it_runs_and_what_becomes_of_failures(document: dict[str, Any]) -> None:
    settle = document["operations"]["receive.orders.settle"]
    assert (settle["title"], settle["summary"], settle["tags"]) == ("settle", "Take the money.", [{"name": "shop"}])
    assert settle["description"] == "Take the money.\n\nIt is taken once, with `charge`."
    assert binding(document, "receive.orders.settle") == {
        "group": "shop",
        "tags": ["changed", "new"],
        "handler": "tests.unit.asyncapi.everything:everything.<locals>.settle",
        "order": "concurrent",
        "concurrency": 64,
        "timeout": 5,
        "idempotent": "message id, tag and body",
        "start": "last",
        "runs": "concurrently, 64 at once; async; timeout 5 s",
        "retry": {
            "retries": 16,
            "delays": [1, 5, 30],
            "on": {"BusyError": "retry after 1 min", "ValueError": "dead letter", "KeyError": "skip"},
            "breaker": {"failures": 5, "within": 60, "pause": 10, "share": 0.5},
            "failures": "again after 1 s, 5 s, 30 s: 16 times, then to %DLQ%shop",
        },
        "deadLetterTopic": "%DLQ%shop",
    }


def test_order_batches_and_starts_are_told(document: dict[str, Any]) -> None:
    assert binding(document, "receive.clicks.count")["batch"] == {"size": 500, "wait": 0.2}
    stock = binding(document, "receive.stock.move")
    assert (stock["order"], stock["start"], stock["rate"]) == ("orderly", "2026-01-01T00:00:00+00:00", 10)
    assert stock["retry"]["retries"] == "unlimited"
    assert "deadLetterTopic" not in stock
    assert "tags" not in stock
    by_function, by_property = binding(document, "receive.notes.answer"), binding(document, "receive.eu.notes.keep")
    assert (by_function["order"], by_function["orderBy"]) == ("by key", "by_customer")
    assert (by_property["order"], by_property["orderBy"]) == ("by key", "property customer")
    assert binding(document, "receive.us.shop-pages.turn")["retry"]["retries"] == 3


def test_what_is_published_is_told_where_it_was_declared(document: dict[str, Any]) -> None:
    sends = {name: one for name, one in document["operations"].items() if one["action"] == "send"}
    assert sorted(sends) == [
        "send.answers.answer",
        "send.eu.shop-weights.turn",
        "send.orders.Order",
        "send.paid.Order",
        "send.paid.pay",
        "send.paid.settle",
        "send.shop-bookings.book",
    ]
    assert binding(document, "send.paid.settle") == {
        "handler": "tests.unit.asyncapi.everything:everything.<locals>.settle",
        "tag": "paid",
        "delay": 10,
        "orderKey": "1",
    }
    assert sends["send.answers.answer"]["messages"] == [{"$ref": "#/channels/answers/messages/Note"}]


def test_a_transaction_is_a_send(document: dict[str, Any]) -> None:
    sent = document["operations"]["send.shop-bookings.book"]
    assert (sent["title"], sent["summary"]) == ("book", "Book it, and tell everybody.")
    assert sent["messages"] == [{"$ref": "#/channels/shop-bookings/messages/Order"}]
    handler = "tests.unit.asyncapi.everything:everything.<locals>.book"
    assert sent["bindings"] == {"x-rocketmq": {"handler": handler, "transaction": True}}
    assert document["operations"]["send.paid.pay"]["summary"] == "Published if the function says so."


def test_what_a_handler_answers_is_its_reply(document: dict[str, Any]) -> None:
    operations = document["operations"]
    assert operations["receive.prices.price"]["reply"] == {
        "address": {
            "location": "$message.header#/properties/REPLY_TO_CLIENT",
            "description": "The client that asked, if it did.",
        },
        "channel": {"$ref": "#/channels/reply.prices"},
        "messages": [{"$ref": "#/channels/reply.prices/messages/Note"}],
    }
    channel = document["channels"]["reply.prices"]
    assert (channel["address"], channel["title"]) == (None, "Replies to prices")
    assert operations["receive.eu.prices.tell"]["reply"]["messages"] == [
        {"$ref": "#/channels/reply.eu.prices/messages/Message"}
    ]
    # What is returned for publication answers nobody, nor does None or an outcome.
    without = ("receive.prices.guess", "receive.notes.answer", "receive.orders.settle", "receive.clicks.count")
    assert [name for name in without if "reply" in operations[name]] == []


def test_only_handlers_whose_failures_end_there_have_a_dead_letter_topic(document: dict[str, Any]) -> None:
    assert binding(document, "receive.prices.price")["deadLetterTopic"] == "%DLQ%shop"
    shown = binding(document, "receive.news.show")
    assert (shown["broadcast"], shown["retry"]["failures"]) == (True, "dropped: logged once, and counted")
    assert "deadLetterTopic" not in shown
    assert "deadLetterTopic" not in binding(document, "receive.work.work")


def test_channels_are_topics_of_their_clusters(document: dict[str, Any]) -> None:
    channels = document["channels"]
    assert (channels["notes"]["address"], channels["eu.notes"]["address"]) == ("notes", "notes")
    assert channels["eu.notes"]["servers"] == [{"$ref": "#/servers/eu"}, {"$ref": "#/servers/eu-2"}]
    assert channels["DLQ-shop"]["address"] == "%DLQ%shop"
    assert channels["DLQ-shop"]["description"] == "Dead letters of group `shop`."
    assert {name: one["host"] for name, one in document["servers"].items()} == {
        "default": "127.0.0.1:9876",
        "eu": "192.0.2.1:9876",
        "eu-2": "192.0.2.2:9876",
        "us": "192.0.2.3:9876",
    }


def test_several_types_on_one_topic_are_messages_with_their_tags_or_properties(document: dict[str, Any]) -> None:
    messages = document["components"]["messages"]
    tags = {
        name: one.get("headers", {}).get("properties", {}).get("tag", {}).get("enum") for name, one in messages.items()
    }
    # The handler takes `shipped` and `lost`; `sent` is another name for the first type.
    assert (tags["shop-parcels.Shipped"], tags["shop-parcels.Lost"]) == (["shipped"], ["lost"])
    assert tags["orders.Order"] is None  # a publisher may give it any tag
    kind = messages["shop-events.Lost"]["headers"]["properties"]["properties"]
    assert (kind["properties"]["kind"]["enum"], kind["required"]) == (["lost"], ["kind"])


@pytest.mark.parametrize(
    ("message", "content_type"),
    [
        ("orders.Order", "application/json"),
        ("stock.bytes", "application/octet-stream"),
        ("eu.notes.str", "text/plain"),
        ("eu.shop-weights.Click", "application/msgpack"),
        ("shop-weights.Weight", "application/avro"),
        ("shop-parcels-of-others.Parcel", "application/protobuf"),
        ("orders.Message", "application/octet-stream"),
    ],
)
def test_a_message_says_how_its_body_is_encoded(document: dict[str, Any], message: str, content_type: str) -> None:
    assert document["components"]["messages"][message]["contentType"] == content_type


def test_a_type_of_a_codec_has_the_schema_that_its_codec_tells(document: dict[str, Any]) -> None:
    messages = document["components"]["messages"]
    avro = messages["shop-weights.Weight"]["payload"]
    assert (avro["schemaFormat"], avro["schema"]["name"]) == ("application/vnd.apache.avro;version=1.9.0", "Weight")
    parcel = messages["shop-parcels-of-others.Parcel"]["payload"]
    assert parcel["description"].startswith("The Protobuf message shop.Parcel of ")


def test_a_version_of_a_payload_is_a_property(document: dict[str, Any]) -> None:
    headers = document["components"]["messages"]["shop-versions.Versioned"]["headers"]
    assert headers["properties"]["properties"]["properties"]["payload-version"]["const"] == "2"


def test_it_is_the_same_whatever_is_declared_first() -> None:
    def handler(name: str) -> Any:
        async def handle(message: Message) -> None: ...

        handle.__qualname__ = name
        return handle

    def app(*order: int) -> RocketApp:
        app = RocketApp("shop")
        declarations: list[Any] = [
            lambda: app.subscribe("orders", tags="a")(handler("settle")),
            lambda: app.subscribe("orders", tags="b")(handler("ship")),
            lambda: app.subscribe("orders", group="other")(handler("settle")),
            lambda: app.publisher("orders", Order),
            lambda: app.publisher("orders", Later),
        ]
        for number in order:
            declarations[number]()
        return app

    assert described(app(0, 1, 2, 3, 4)) == described(app(4, 2, 3, 1, 0))


def test_operations_of_equal_names_are_numbered() -> None:
    app = RocketApp("shop")
    for tag in ("a", "b"):

        @app.subscribe("orders", tags=tag)
        async def settle(message: Message) -> None: ...

    names = list(described(app)["operations"])
    assert names == ["receive.orders.settle", "receive.orders.settle-2"]


def test_the_module_of_the_app_is_its_description_and_its_version_may_be_missing() -> None:
    info = described(RocketApp("shop"))["info"]
    assert info == {"title": "shop", "version": UNVERSIONED, "description": __doc__}
    assert described(RocketApp("shop", version="1.2"))["info"]["version"] == "1.2"


def test_settings_decide_what_they_decide_at_a_start() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    async def settle(message: Message) -> None: ...

    environ = {
        "ROCKETAPP_CLIENT__NAME_SERVER": "192.0.2.7:9876;192.0.2.8:9876",
        "ROCKETAPP_APP__GROUP": "billing",
        "ROCKETAPP_CONSUMER__RETRIES": "0",
    }
    document = described(app, environ)
    assert [one["host"] for one in document["servers"].values()] == ["192.0.2.7:9876", "192.0.2.8:9876"]
    assert binding(document, "receive.orders.settle")["deadLetterTopic"] == "%DLQ%billing"


def test_a_declaration_that_cannot_run_is_refused_as_at_a_start() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    async def settle(order: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(SetupError, match="Missing"):
        described(app)
    with pytest.raises(PluginError):
        described(RocketApp("shop", plugins=[object()]))


def test_publishers_that_are_made_while_the_app_runs_are_not_kept() -> None:
    app = RocketApp("shop")

    @app.on_startup
    def publish() -> None:
        for number in range(100):
            app.publisher(f"orders-{number}", Order)

    with TestApp(app):
        assert declared_of(app).publishers == []


def test_a_router_in_a_router_gives_whole_names() -> None:
    app, outer, inner = RocketApp("shop"), Router(prefix="shop-"), Router(prefix="eu-")

    @inner.subscribe("orders")
    @inner.publishes("paid")
    async def settle(message: Message) -> Order | None: ...

    outer.include(inner)
    app.include(outer)
    assert list(described(app)["channels"]) == ["shop-eu-orders", "shop-eu-paid"]


def test_a_topic_tells_the_type_also_of_a_handler_that_takes_the_message() -> None:
    app = RocketApp("shop")
    app.subscribe(Topic("orders", Order))(lambda message: None)
    document = described(app)
    assert list(document["components"]["messages"]) == ["orders.Order"]


class Holder(msgspec.Struct):
    """Holds what pydantic describes."""

    model: Inner | None
    more: list[Inner] = []


class Inner(pydantic.BaseModel):
    number: int = pydantic.Field(gt=0)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Holder, {"model": {"number": 1}}, {"model": {"number": 0}}),
        (Inner, {"number": 1}, {"number": "one"}),
        (list[Inner], [{"number": 1}], [{"number": 0}]),
        (tuple[int, str], [1, "a"], ["a", 1]),
        (tuple[int, str], [1, "a"], [1, "a", 2]),
        (dict[str, Inner], {"a": {"number": 1}}, {"a": {"number": 0}}),
        (Order | None, None, {"id": 1}),
    ],
)
def test_a_payload_schema_accepts_what_the_type_accepts(kind: Any, good: Any, bad: Any) -> None:
    app = RocketApp("shop")
    app.publisher("things", kind)
    document = described(app)
    assert problems(document) == []
    (message,) = document["components"]["messages"]
    assert accepts(document, message, good)
    assert not accepts(document, message, bad)


class Unfit:
    """Neither msgspec nor pydantic knows it."""


class Fit(msgspec.Struct):
    name: str


class Tree(pydantic.BaseModel):
    """Holds itself, and what no schema describes."""

    inside: list[Tree] = []
    when_done: Callable[[], None] | None = None


@pytest.mark.parametrize("kind", [Unfit, Tree])
def test_a_type_without_a_schema_spoils_only_its_own_message(kind: Any) -> None:
    app = RocketApp("shop")
    app.publisher("unfit", kind)
    app.publisher("fit", Fit)
    document = described(app)
    assert problems(document) == []
    messages = document["components"]["messages"]
    assert messages[f"unfit.{kind.__name__}"]["payload"]["description"].startswith("Its fields cannot be described")
    assert messages["fit.Fit"]["payload"] == {"$ref": "#/components/schemas/Fit"}


FULL = Order(
    id=UUID(int=1),
    cents=5,
    at=datetime(2026, 1, 1, tzinfo=UTC),
    paid_by=Cash((1, 0.5), (1, 2)),
    to=Address(street="Main", zip="12345", neighbours=[Address(street="Side", zip="12346")]),
    colours={"front": Colour.RED},
    category=Category("all", [Category("tea")]),
    wait=timedelta(seconds=1),
    signature=b"x",
)


@pytest.mark.parametrize(
    ("message", "value"),
    [
        ("orders.Order", FULL),
        ("us.shop-pages.Page-Order", Page([FULL], "next")),
        ("clicks.Click", Click(page="1")),
        ("notes.Note", Note("text", [1])),
        ("answers.Note", Note("text")),
        ("shop-shelves.Shelf", Shelf(1)),
        ("shop-addresses.Address", FULL.to),
        ("shop-plain.dict-str-Any", {"a": [None, 1.5]}),
        ("shop-later.Later", Later(FULL.at)),
    ],
)
def test_what_is_published_is_what_the_schema_says(document: dict[str, Any], message: str, value: Any) -> None:
    body = msgspec.json.decode(encode_body(value))
    assert accepts(document, message, body)
    assert not accepts(document, message, 7)
