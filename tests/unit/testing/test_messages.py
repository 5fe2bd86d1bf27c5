from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from rocketapp import Context, Message, RocketApp, SetupError
from rocketapp.plugin import ConsumerConfig, option
from rocketapp.testing import Done, TestApp, call_sync
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.record import decode_records


@dataclass(frozen=True)
class ShopOptions:
    limit: int = option(10, "Orders at once.")


class Order(msgspec.Struct):
    id: str


def test_a_made_message_is_as_large_as_its_record() -> None:
    one = Message.make(b"body", topic="orders", message_id="ID")
    record = Record(topic="orders", body=b"body", raw_properties=one.raw_properties)
    (stored,) = decode_records(encode_record(record), one.queue)
    assert (one.size, one.body, one.raw_properties) == (stored.size, stored.body, stored.raw_properties)


def test_made_messages_and_contexts_are_told_apart_in_sets() -> None:
    one, copy = Message.make(b"1", message_id="ID"), Message.make(b"1", message_id="ID")
    assert {one, one, copy} == {one, copy}
    assert one != copy
    context = Context.make(one)
    assert {context: 1}[context] == 1


def test_the_first_attempt_is_1() -> None:
    with pytest.raises(ValueError, match=r"^attempt=0: the first attempt is 1$"):
        Message.make(attempt=0)


def test_a_body_that_cannot_be_published_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="a body of type int cannot be published"):
        Message.make(3)


def test_a_made_context_knows_its_message_and_says_how_to_give_a_publisher() -> None:
    context = Context.make(Message.make(attempt=2), group="shop")
    assert (context.attempt, context.group) == (2, "shop")
    with pytest.raises(RuntimeError, match=r"give Context.make\(publisher=...\)"):
        Context.make().publish_sync("paid", b"1")


def test_a_handler_sees_the_settings_of_its_app() -> None:
    app = RocketApp("shop", options=ShopOptions)

    @app.subscribe("orders")
    async def handle(message: Message, options: ShopOptions) -> None:
        with pytest.raises(SetupError, match="no table of settings is a Order"):
            app.options(Order)
        limits.append((options.limit, app.options(ConsumerConfig).retries))

    limits: list[tuple[int, int]] = []
    with TestApp(app, settings={"shop": {"limit": 3}, "consumer": {"retries": 4}}) as t:
        t.publish("orders", b"1")
        t.settle()
    assert limits == [(3, 4)]
    assert call_sync(handle, b"1", app=app) == Done()
    assert limits[1] == (10, 16)
