"""Tests that users get wrong: each marked line has exactly the error it is marked with."""

from __future__ import annotations

from rocketapp import Context, Message, RocketApp, Topic
from rocketapp.testing import Published, TestApp, call, call_sync, make_message

app = RocketApp("shop")
numbers = Topic("numbers", int)


@app.subscribe("orders")
async def settle(message: Message) -> int:
    return 1


async def one_handler() -> None:
    outcome = await call(settle, b"1")
    outcome.value()  # E: union-attr
    await call(settle)  # E: call-overload
    await call("settle", b"1")  # E: call-overload
    await call(settle, b"1", app="shop")  # E: call-overload
    await call(settle, [b"1"]).value  # E: attr-defined
    call_sync(settle, b"1", published=Published)  # E: call-overload
    call_sync(settle, b"1", delay=5)  # E: call-overload
    await settle("a message")  # E: arg-type


def messages() -> None:
    make_message(b"1", tags="paid")  # E: call-arg
    make_message(b"1", attempt="2")  # E: arg-type
    make_message(b"1", properties={"a": 1})  # E: dict-item
    make_message(b"1", "orders")  # E: call-arg
    make_message(b"1", born_at=5.0)  # E: arg-type
    Context.make(b"1")  # E: arg-type
    Context.make(deadline="soon")  # E: arg-type


def the_whole_app() -> None:
    TestApp("shop")  # E: arg-type
    TestApp(app, settings={"consumer": 5})  # E: dict-item
    TestApp(app, seed="1")  # E: arg-type
    with TestApp(app) as t:
        t.publish("orders")  # E: call-arg
        t.publish(5, b"1")  # E: arg-type
        t.publish("orders", b"1", tags="paid")  # E: call-arg
        t.publish(numbers, "1")  # E: misc
        t.publish_many(numbers, ["1"])  # E: misc
        t.publish_many("orders", b"1", delay="5")  # E: arg-type
        t.request(numbers, "1")  # E: misc
        t.run(5)  # E: arg-type
        t.advance(days=1)  # E: call-arg
        t.advance("1")  # E: arg-type
        t.settle(5)  # E: call-arg
        t.dead[0].outcome()  # E: attr-defined
        t.handled[0].delay()  # E: attr-defined
        t.faults.broker_away()  # E: call-arg
        t.faults.broker_slow("fast", 5)  # E: arg-type
        t.faults.duplicate("message")  # E: arg-type
        t.handled = []  # E: misc


async def the_whole_app_on_a_loop() -> None:
    async with TestApp(app) as t:
        print(t.publish("orders", b"1").message_id)  # E: attr-defined
        await t.now  # E: misc
    with TestApp(app) as sync:
        await sync.settle()  # E: misc
