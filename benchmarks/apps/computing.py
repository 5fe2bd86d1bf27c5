"""The app whose handler computes, so that neither broker nor network is the limit: what several workers win.

Each process writes the monotonic times of its first and last message beside the file BENCH_RESULT when it ends.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from rocketapp import Message, RocketApp

TOPIC, GROUP, RESULT = os.environ["BENCH_TOPIC"], os.environ["BENCH_GROUP"], Path(os.environ["BENCH_RESULT"])
ROUNDS = 5_000
"""Of an empty loop: some 100 us."""

app = RocketApp("benchmark")
_times: list[float] = []


@app.subscribe(TOPIC, group=GROUP, start="first")
async def compute(message: Message) -> None:
    if not _times:
        _times.extend([time.monotonic()] * 2)
    for _ in range(ROUNDS):
        pass
    _times[1] = time.monotonic()


@app.on_shutdown
async def write() -> None:
    if _times:
        RESULT.with_name(f"process-{os.getpid()}.json").write_text(json.dumps(_times))
