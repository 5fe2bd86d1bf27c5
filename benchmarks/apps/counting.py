"""The app that is measured: handlers that only count, run by the real `rocketapp run`.

BENCH_TOPIC, BENCH_GROUP and BENCH_COUNT say what to take; BENCH_KIND is `async`, `sync`, `orderly`, `keyed` (64 keys of
each queue), `broadcast`, `pop`, `typed` (an async handler with a decoded payload), `whole` (the same, idempotent; where
the marks are, telemetry and log context come from the environment) or `logged` (`whole` that writes a log line for each
message). When the last message was handled, one line of JSON goes to the file BENCH_RESULT: processor time and seconds
from the first to the last message, the monotonic time of the first, and the package that ran it. The file is copied to
the directory it runs in, so that it is the same for another checkout's rocketapp.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import rocketapp
from rocketapp import Message, RocketApp

TOPIC, GROUP, KIND = os.environ["BENCH_TOPIC"], os.environ["BENCH_GROUP"], os.environ["BENCH_KIND"]
COUNT, RESULT = int(os.environ["BENCH_COUNT"]), Path(os.environ["BENCH_RESULT"])

app = RocketApp("benchmark")
_numbers = itertools.count(1)  # one step of it is atomic, in threads as well
_at_first: tuple[float, float] = (0.0, 0.0)


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _first() -> None:
    global _at_first  # noqa: PLW0603 - one process, one measurement
    _at_first = time.monotonic(), _processor_seconds()


def _last() -> None:
    began, used = _at_first
    seconds, processor = time.monotonic() - began, _processor_seconds() - used
    line = {
        "seconds": seconds,
        "count": COUNT,
        "first_at": began,
        "cpu_us_per_message": processor * 1e6 / COUNT,
        "package": str(Path(rocketapp.__file__).parent),
    }
    # Written whole and then renamed: who waits for it never reads half.
    partial = RESULT.with_suffix(".part")
    partial.write_text(json.dumps(line))
    partial.rename(RESULT)


def _count() -> None:
    number = next(_numbers)
    if number == 1:
        _first()
    if number == COUNT:
        _last()


@dataclass(frozen=True, slots=True)
class Order:
    """What the bodies are."""

    order_id: str
    amount: float
    note: str


if KIND == "typed":

    @app.subscribe(TOPIC, tags="TagA", group=GROUP, start="first")
    async def count_typed(order: Order) -> None:
        _count()

elif KIND == "whole":

    @app.subscribe(TOPIC, tags="TagA", group=GROUP, start="first", idempotent=True)
    async def count_whole(order: Order) -> None:
        _count()

elif KIND == "logged":
    log = logging.getLogger("benchmark")

    @app.subscribe(TOPIC, tags="TagA", group=GROUP, start="first", idempotent=True)
    async def count_logged(order: Order) -> None:
        log.info("took %s", order.order_id)
        _count()

elif KIND == "broadcast":

    @app.subscribe(TOPIC, tags="TagA", group=GROUP, start="first", broadcast=True)
    async def count_broadcast(message: Message) -> None:
        _count()

elif KIND == "pop":

    @app.subscribe(TOPIC, tags="TagA", group=GROUP, start="first", mode="pop")
    async def count_popped(message: Message) -> None:
        _count()

elif KIND == "keyed":

    @app.subscribe(TOPIC, tags="TagA", group=GROUP, start="first", order_by=lambda message: str(message.offset % 64))
    async def count_by_key(message: Message) -> None:
        _count()

elif KIND == "sync":

    @app.subscribe(TOPIC, tags="TagA", group=GROUP, start="first")
    def count_in_threads(message: Message) -> None:
        _count()

else:

    @app.subscribe(TOPIC, tags="TagA", group=GROUP, start="first", orderly=KIND == "orderly")
    async def count(message: Message) -> None:
        _count()
