"""A line that a handler logs costs at most twice what the standard library's own handler takes for its sentence.

Compared in one process, in turns, by processor time: what else the machine does is in both.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from statistics import median
from time import thread_time
from typing import TextIO

import pytest

from rocketapp import Message, RocketApp
from rocketapp.plugins import current_message
from rocketapp.plugins.log_context import MessageFilter
from rocketapp.plugins.log_format import make_formatter
from tests.unit.app.given import bound

LINES, ROUNDS = 300, 15
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
USUAL = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")


@pytest.fixture
def nowhere() -> Iterator[TextIO]:
    with open(os.devnull, "w", encoding="utf-8") as out:  # noqa: PTH123
        yield out


def logger_of(name: str, handler: logging.Handler, formatter: logging.Formatter) -> logging.Logger:
    handler.setFormatter(formatter)
    logger = logging.getLogger(f"{__name__}.{name}")
    logger.propagate, logger.handlers = False, [handler]
    logger.setLevel(logging.INFO)
    return logger


def seconds_of(
    logger: logging.Logger | logging.LoggerAdapter[logging.Logger], in_handler: current_message.Current | None
) -> float:
    token = current_message.CURRENT.set(in_handler)
    began = thread_time()
    for number in range(LINES):
        logger.info("order %s of %s settled", number, "a customer")
    ended = thread_time()
    current_message.CURRENT.reset(token)
    return ended - began


@pytest.mark.parametrize("has_context", [True, False], ids=["with its message", "alone"])
@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_line_costs_at_most_twice_the_standard_library_s(kind: str, has_context: bool, nowhere: TextIO) -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    def settle(message: Message) -> None: ...

    message = Message.make(b"{}", topic="orders", properties={"traceparent": TRACE})
    current = (bound(app).subscription, message, "", True) if has_context else None
    ours_handler = logging.StreamHandler(nowhere)
    ours_handler.addFilter(MessageFilter())
    ours = logger_of("ours", ours_handler, make_formatter(kind))
    usual = logger_of("usual", logging.StreamHandler(nowhere), USUAL)
    rounds = [(seconds_of(ours, current), seconds_of(usual, None)) for _ in range(ROUNDS)]
    our, their = (median(times) for times in zip(*rounds, strict=True))
    assert our <= 2 * their, f"{our / LINES * 1e6:.1f} µs a line beside {their / LINES * 1e6:.1f} µs"
