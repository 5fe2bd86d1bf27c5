"""Transactions and requests under test behave as on a cluster, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp import Context, Message, NoReply, Publisher, RocketApp
from rocketapp.testing import TestApp


def shop() -> tuple[RocketApp, dict[str, bool | None]]:
    """An app with a transaction whose check says what the dict says."""
    app, known = RocketApp("shop"), dict[str, bool | None]()

    @app.transaction("orders")
    async def place(order: str) -> bool:
        if order.startswith("broken"):
            raise LookupError(order)
        return order != "refused"

    @place.check
    async def check(order: str) -> bool | None:
        return known[order]

    @app.subscribe("orders")
    async def take(message: Message) -> None:
        assert message.tag == "new"
        if message.attempt == 1:
            raise ValueError("its retry is an ordinary message")

    app.place = place  # type: ignore[attr-defined]
    return app, known


def test_a_transaction_delivers_what_its_function_approves() -> None:
    app, _ = shop()
    with TestApp(app) as t:
        assert t.run(app.place("paid", tag="new")) is not None  # type: ignore[attr-defined]
        assert [one.text() for one in t.published] == ["paid"]  # at once: the broker has heard of its end
        assert t.run(app.place("refused", tag="new")) is None  # type: ignore[attr-defined]
        t.settle()
        assert [one.message.text() for one in t.handled] == ["paid"]
        assert [one.text() for one in t.published] == ["paid"]
        assert t.now < 30


def test_what_its_function_leaves_open_the_check_decides() -> None:
    app, known = shop()
    with TestApp(app) as t:
        known.update({"broken yes": True, "broken no": False, "broken later": None})
        for order in known:
            with pytest.raises(LookupError):
                t.run(app.place(order, tag="new"))  # type: ignore[attr-defined]
        t.advance(minutes=1)
        assert [one.message.text() for one in t.handled] == ["broken yes"]
        with pytest.raises(AssertionError, match="1 transactions are open"):
            t.settle(limit=30)
        known["broken later"] = True
        t.settle()
        assert [one.text() for one in t.published] == ["broken yes", "broken later"]


def test_no_check_is_asked_once_shutdown_functions_take_away_what_it_needs() -> None:
    app, asked = RocketApp("shop"), list[str]()

    @app.transaction("orders")
    async def place(order: str) -> bool:
        raise LookupError(order)

    @place.check
    async def check(order: str) -> bool:
        asked.append(order)
        return False

    @app.on_shutdown
    async def close() -> None:
        await asyncio.sleep(90)

    with TestApp(app, settings={"app": {"drain_timeout": 120}}) as t, pytest.raises(LookupError):
        t.run(place("open"))
    assert (asked, t.now >= 90) == ([], True)


async def test_a_request_is_answered_by_a_handler() -> None:
    app = RocketApp("shop")

    @app.subscribe("prices")
    def price(message: Message) -> str | None:
        return None if message.text() == "unknown" else app.request_sync("rates", message.body).text() + " EUR"

    @app.subscribe("rates")
    async def rate(message: Message) -> dict[str, int]:
        return {message.text(): 5}

    async with TestApp(app) as t:
        assert (await t.request("prices", "tea")).text() == '{"tea":5} EUR'
        with pytest.raises(NoReply, match="within 3 s"):
            await t.request("prices", "unknown")
        await t.settle()
        assert len(t.handled) == 3
        assert [one.topic for one in t.published] == ["rates"]


async def test_handlers_ask_with_their_context_and_publisher() -> None:
    app = RocketApp("shop")

    @app.subscribe("sums")
    async def add(message: Message, context: Context, publisher: Publisher) -> None:
        first, second = await context.request("rates", b"1"), await publisher.request("rates", b"2")
        await context.publish("totals", first.body + second.body)

    @app.subscribe("differences")
    def subtract(message: Message, context: Context, publisher: Publisher) -> None:
        first, second = context.request_sync("rates", b"3"), publisher.request_sync("rates", b"4")
        context.publish_sync("totals", first.body + second.body)

    @app.subscribe("rates")
    async def rate(message: Message) -> bytes:
        return message.body * 2

    async with TestApp(app) as t:
        for topic in ("sums", "differences"):
            await t.publish(topic, b"?")
            await t.settle()
        assert [one.body for one in t.published if one.topic == "totals"] == [b"1122", b"3344"]
        first = t.handled[0].message.properties
        assert len({one.message.properties["rocketapp.correlation_id"] for one in t.handled[:2]}) == 1, first
