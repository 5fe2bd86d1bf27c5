"""The app whose publishing is measured: BENCH_COUNT messages of 1 KiB to BENCH_TOPIC, as BENCH_KIND says.

`1`, `16`, `64`: 1, 16 or 64 calls of `publish` at once; `many`: `publish_many` of 32; `one way`: without an answer;
`sync`: `publish_sync` in one thread. A tenth of the messages goes before, unmeasured. Then one line of JSON goes to the
file BENCH_RESULT. The file is copied to the directory it runs in, so that it is the same for another checkout's
rocketapp.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import rocketapp
from rocketapp import RocketApp

TOPIC, KIND = os.environ["BENCH_TOPIC"], os.environ["BENCH_KIND"]
COUNT, RESULT = int(os.environ["BENCH_COUNT"]), Path(os.environ["BENCH_RESULT"])
AT_ONCE = {"16": 16, "64": 64}
IN_BATCH = 32
_BEFORE, _BEHIND = b'{"order_id":"A-1","amount":12.5,"note":"', b'"}'
BODY = _BEFORE.ljust(1024 - len(_BEHIND), b"x") + _BEHIND
"""What the Java producer sends, too."""

app = RocketApp("publishing")


async def _publish(numbers: Iterator[int], took: list[float]) -> None:
    for number in numbers:
        began = time.perf_counter()
        await app.publish(TOPIC, BODY, tag="TagA", keys=f"k{number}")
        took.append(time.perf_counter() - began)


async def _publish_many(numbers: Iterator[int], took: list[float]) -> None:
    while batch := list(itertools.islice(numbers, IN_BATCH)):
        began = time.perf_counter()
        await app.publish_many(TOPIC, [BODY] * len(batch), tag="TagA", keys=f"k{batch[0]}")
        took.append(time.perf_counter() - began)


async def _publish_one_way(numbers: Iterator[int], took: list[float]) -> None:
    for number in numbers:
        began = time.perf_counter()
        await app.publish_one_way(TOPIC, BODY, tag="TagA", keys=f"k{number}")
        took.append(time.perf_counter() - began)
    # Behind them all on one connection: its answer says that they have left.
    await app.publish(TOPIC, BODY, tag="TagB")


def _publish_sync(numbers: Iterator[int], took: list[float]) -> None:
    for number in numbers:
        began = time.perf_counter()
        app.publish_sync(TOPIC, BODY, tag="TagA", keys=f"k{number}")
        took.append(time.perf_counter() - began)


async def _send(count: int) -> list[float]:
    """How long each call took, in seconds."""
    numbers, took = iter(range(count)), list[float]()
    if KIND == "sync":
        await asyncio.to_thread(_publish_sync, numbers, took)
    elif KIND == "many":
        await _publish_many(numbers, took)
    elif KIND == "one way":
        await _publish_one_way(numbers, took)
    else:
        await asyncio.gather(*(_publish(numbers, took) for _ in range(AT_ONCE.get(KIND, 1))))
    return took


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@app.on_startup
async def measure() -> None:
    await _send(COUNT // 10)
    began, used = time.monotonic(), _processor_seconds()
    took = sorted(await _send(COUNT))
    seconds, processor = time.monotonic() - began, _processor_seconds() - used
    line = {
        "seconds": seconds,
        "count": COUNT,
        "per_second": COUNT / seconds,
        "cpu_us_per_message": processor * 1e6 / COUNT,
        "send_ms_p50": took[len(took) // 2] * 1000,
        "send_ms_p99": took[len(took) * 99 // 100] * 1000,
        "package": str(Path(rocketapp.__file__).parent),
    }
    partial = RESULT.with_suffix(".part")
    partial.write_text(json.dumps(line))
    partial.rename(RESULT)
