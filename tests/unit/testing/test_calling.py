"""Calling a handler as its app would, and the messages and contexts that tests make."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

import msgspec
import pytest
from dependency_injector import containers, providers
from dependency_injector.wiring import Provide

from rocketapp import Context, DeadLetter, Message, Outcomes, Publisher, Retry, RocketApp, Skip
from rocketapp.model.message_queue import MessageQueue
from rocketapp.testing import Done, Published, call, call_sync, make_context, make_message


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
    context = make_context(make_message(attempt=2), group="shop")
    assert (context.attempt, context.group, {context: 1}[context]) == (2, "shop", 1)
    context.logger.info("is not handled by anything")
    with pytest.raises(RuntimeError, match="give make_context"):
        await context.publish("stock", b"")
