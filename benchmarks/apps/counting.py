"""The app that is measured: handlers that only count, run by the real `rocketapp run`.

BENCH_TOPIC, BENCH_GROUP and BENCH_COUNT say what to take; BENCH_KIND is `async`, `sync` or `orderly`. When the last
message was handled, one line of JSON goes to the file BENCH_RESULT: processor time and seconds from the first to the
last message, the monotonic time of the first, and the package that ran it. It is copied to the directory it runs in, so
that it is the same for another checkout's rocketapp.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import time
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


if KIND == "sync":

    @app.subscribe(TOPIC, tags="TagA", group=GROUP, start="first")
    def count_in_threads(message: Message) -> None:
        _count()

else:

    @app.subscribe(TOPIC, tags="TagA", group=GROUP, start="first", orderly=KIND == "orderly")
    async def count(message: Message) -> None:
        _count()
