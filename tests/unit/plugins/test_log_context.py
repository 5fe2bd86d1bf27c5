from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rocketapp import Message, RocketApp
from rocketapp.hooks.manager import Plugins
from rocketapp.model.message_queue import MessageQueue
from rocketapp.plugins import current_message
from rocketapp.plugins.log_context import LogContext, MessageFilter
from rocketapp.plugins.log_format import make_formatter
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.properties import encode
from rocketapp.wire.record import decode_records
from tests.unit.app.given import bound, call_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
log = logging.getLogger("shop.orders")


def message(message_id: str = "7F01", *, attempt: int = 1, **properties: str) -> Message:
    raw = encode({"UNIQ_KEY": message_id, **properties})
    record = Record(topic="orders", body=b"{}", queue_id=3, reconsume_times=attempt - 1, raw_properties=raw)
    return decode_records(encode_record(record), MessageQueue("orders", "broker-a", 3))[0]


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the logger `shop` writes as JSON, through the filter that the command line installs."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(make_formatter("json"))
    handler.addFilter(MessageFilter())
    logger = logging.getLogger("shop")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)


def facts(written: io.StringIO) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    return [{key: line[key] for key in line if key not in ("time", "level", "logger")} for line in lines]


def wrapped(app: RocketApp) -> Callable[[Any], Any]:
    """The only handler behind the wrapper."""
    subscription = bound(app).subscription
    wrapper = current_message.wrapper(subscription)
    build = wrapper.for_async if subscription.is_async else wrapper.for_sync
    assert build is not None
    return build(call_of(app))


def test_a_sync_handler_s_line_carries_its_message(written: io.StringIO) -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", group="billing")
    def settle(message: Message) -> None:
        log.info("paid")

    wrapped(app)(message(attempt=3, traceparent=f"00-{TRACE}-00f067aa0ba902b7-01"))
    log.info("after")
    assert facts(written) == [
        {
            "message": "paid",
            "topic": "orders",
            "group": "billing",
            "handler": settle.__module__ + ":" + settle.__qualname__,
            "message_id": "7F01",
            "attempt": 3,
            "trace_id": TRACE,
        },
        {"message": "after"},
    ]


async def test_tasks_of_two_handlers_at_once_keep_their_own_message(written: io.StringIO) -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    async def settle(message: Message) -> None:
        async def later() -> None:
            await asyncio.sleep(0)
            log.info("later", extra={"fields": {"attempt": "mine"}})

        await asyncio.gather(later(), later())

    call = wrapped(app)
    await asyncio.gather(call(message("A")), call(message("B")))
    assert sorted(line["message_id"] for line in facts(written)) == ["A", "A", "B", "B"]
    assert {line["attempt"] for line in facts(written)} == {"mine"}


def test_a_batch_s_line_names_its_first_message_and_their_number(written: io.StringIO) -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", batch=10)
    def settle(messages: list[Message]) -> None:
        log.info("paid")
        messages.clear()
        log.info("none left")

    wrapped(app)([message("A"), message("B", attempt=2)])
    first, second = facts(written)
    assert (first["message_id"], first["attempt"], first["messages"]) == ("A", 2, 2)
    assert "message_id" not in second


def test_a_format_of_the_user_s_own_finds_attributes_in_and_outside_of_handlers() -> None:
    record = logging.LogRecord("shop", logging.INFO, "", 1, "x", (), None)
    assert MessageFilter().filter(record)
    assert logging.Formatter("%(message_id)s|%(trace_id)s|").format(record) == "||"


def test_without_it_a_handler_has_nothing_in_front_of_it() -> None:
    app, plugins = RocketApp("shop"), Plugins()
    plugins.register(LogContext())

    @app.subscribe("orders")
    def settle(message: Message) -> None: ...

    assert call_of(app, plugins=plugins) is settle
