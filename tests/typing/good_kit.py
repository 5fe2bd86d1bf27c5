"""Tests that users write with the kit: they must check."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import assert_type

import msgspec

from rocketapp import Context, DeadLetter, Message, Pause, Publisher, Retry, RocketApp, SendResult, Skip, Topic
from rocketapp.testing import (
    AsyncTestedApp,
    Dead,
    Done,
    Faults,
    Handled,
    Published,
    Retried,
    StandstillError,
    StartTestApp,
    TestApp,
    TestedApp,
    call,
    call_sync,
    make_message,
)

app = RocketApp("shop")


class Order(msgspec.Struct, frozen=True):
    id: str
    amount: int


orders = Topic("orders", Order)


@app.subscribe("orders")
async def settle(order: Order, publisher: Publisher) -> None:
    await publisher.publish("paid", order, keys=[order.id])


@app.subscribe("clicks", batch=10)
def count(messages: list[Message], context: Context) -> int:
    return len(messages) * context.attempt


async def test_one_handler() -> None:
    published: list[Published] = []
    outcome = await call(settle, Order("1", 5), app=app, topic="orders", published=published)
    assert_type(outcome, Done | Retry | Skip | DeadLetter | Pause)
    assert_type(published[0].payload(Order), Order)
    assert_type(await call(count, [b"1", b"2"]), list[Done | Retry | Skip | DeadLetter | Pause])
    assert_type(call_sync(settle, make_message(Order("1", 5), attempt=2)), Done | Retry | Skip | DeadLetter | Pause)


def test_a_handler_called_directly() -> None:
    message = make_message({"id": 1}, topic="clicks", tag="new", keys=["1"], properties={"a": "b"}, offset=5)
    assert_type(make_message(b"", born_at=datetime.now(UTC), keys="1 2"), Message)
    assert_type(count([message], Context.make(message, attempt=2)), int)
    assert_type(Context.make(), Context)


@app.transaction(orders)
async def place(order: Order) -> bool:
    return order.amount > 0


def test_the_whole_app() -> None:
    settings = {"consumer": {"retries": 3}}
    with TestApp(app, settings=settings, overrides={"database": object()}, seed=1) as t:
        assert_type(t, TestedApp)
        assert_type(t.publish("orders", b"1", tag="paid", delay=30), SendResult)
        assert_type(t.publish_many("orders", [b"1", b"2"], cluster="eu"), list[SendResult])
        assert_type(t.publish(orders, Order("1", 5), tag="paid"), SendResult)
        assert_type(t.publish_many(orders, [Order("1", 5)]), list[SendResult])
        assert_type(t.request(orders, Order("1", 5), timeout=2), Message)
        assert_type(t.run(place(Order("1", 5), tag="new")), SendResult | None)
        t.advance(hours=2, minutes=1)
        t.advance(0.5)
        t.settle(limit=3600)
        assert_type(t.handled, list[Handled])
        assert_type(t.handled[0].outcome, Done | Skip)
        assert_type(t.retried, list[Retried])
        assert_type(t.retried[0].delay, float)
        assert_type(t.dead, list[Dead])
        assert_type(t.dead[0].error, BaseException | None)
        assert_type(t.published, list[Published])
        assert_type((t.unmatched, t.now), tuple[int, float])


def test_an_app_of_the_fixture(test_app: StartTestApp) -> None:
    t = test_app(app, settings={"consumer": {"retries": 3}}, overrides={"database": object()}, seed=1)
    assert_type(t, TestedApp)


async def test_the_whole_app_on_a_loop() -> None:
    async with TestApp(app, settings_file="settings.toml") as t:
        assert_type(t, AsyncTestedApp)
        assert_type(await t.publish("orders", Order("1", 5)), SendResult)
        assert_type(await t.publish_many("orders", [b"1"]), list[SendResult])
        assert_type(await t.publish(orders, Order("1", 5)), SendResult)
        assert_type(await t.request("orders", b"?"), Message)
        assert_type(await t.run(place(Order("1", 5))), SendResult | None)
        await t.advance(hours=2)
        await t.settle()


def test_faults() -> None:
    with TestApp(app) as t:
        assert_type(t.faults, Faults)
        t.faults.broker_away(5)
        t.faults.broker_refusing(seconds=60, cluster="eu")
        t.faults.broker_slow(0.2, seconds=5)
        t.faults.connection_lost()
        t.faults.lease_lost("orders", seconds=5, group="billing")
        t.faults.duplicate(t.handled[0].message)
        t.faults.clock_jump(-3600)
        try:
            t.settle()
        except StandstillError as error:
            print(error)
