"""The app whose latency is measured: from the send, whose time stands in the body, to the handler.

The body is the machine's monotonic clock in nanoseconds. A message tagged `Warm` says that the app consumes. When
BENCH_COUNT messages came, one line of JSON goes to the file BENCH_RESULT.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from rocketapp import Message, RocketApp

TOPIC, GROUP = os.environ["BENCH_TOPIC"], os.environ["BENCH_GROUP"]
COUNT, RESULT = int(os.environ["BENCH_COUNT"]), Path(os.environ["BENCH_RESULT"])

app = RocketApp("latency")
_seen: list[int] = []


def _write(target: Path, line: dict[str, float]) -> None:
    partial = target.with_suffix(".part")
    partial.write_text(json.dumps(line))
    partial.rename(target)


@app.subscribe(TOPIC, tags="Warm", group=GROUP, start="first")
async def warm(message: Message) -> None:
    _write(RESULT.with_suffix(".warm"), {"warm": 1})


@app.subscribe(TOPIC, tags="TagA", group=GROUP, start="first")
async def measure(message: Message) -> None:
    _seen.append(time.monotonic_ns() - int(message.body))
    if len(_seen) == COUNT:
        _seen.sort()
        quantiles = {
            f"e2e_ms_p{name}": _seen[int(COUNT * q)] / 1e6 for name, q in (("50", 0.5), ("99", 0.99), ("999", 0.999))
        }
        _write(RESULT, {"count": COUNT, **quantiles})
