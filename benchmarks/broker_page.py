"""`python -m benchmarks.broker_page`: how soon a browser shows the pages of a broker that holds much.

An embedded broker is filled with 1,000 topics of 8 queues, 20 groups and 1,000,000 messages. Printed are, for a page,
the milliseconds until it is answered and until Chromium first paints something of it, the middle and the worst of ten;
and for how long the broker's loop was kept from its next turn meanwhile. Exit code 1: a first paint took 200 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rocketapp import Client
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.offsets import CommitRequest
from tests.unit.operate.browser import Browser, missing
from tests.unit.operate.watched_broker import WatchedBroker

TOPICS, GROUPS, LOADS, PROMISED_MS = 1_000, 20, 10, 200.0
PAGES = (
    "/",
    "/topics",
    "/groups",
    "/topic?name=orders-0500",
    "/group?name=group-7",
    "/messages?topic=orders-0500",
    "/messages?topic=orders-0500&by=key&value=k77",
)
PAINT = "const one = performance.getEntriesByName('first-contentful-paint')[0]; return one ? one.startTime : null"


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m benchmarks.broker_page", description=__doc__)
    options.add_argument("--messages", type=int, default=1_000_000)
    count = options.parse_args().messages
    if missing():
        sys.exit(f"{missing()} is not installed")
    with tempfile.TemporaryDirectory() as folder, WatchedBroker(Path(folder, "store"), topic_queues=8).serving() as one:
        asyncio.run(_fill(one, count // TOPICS))
        with Browser(Path(folder, "profile")) as browser:
            worst = max(_measured(one, browser, path) for path in PAGES)
    return int(worst >= PROMISED_MS)


async def _fill(broker: WatchedBroker, each: int) -> None:
    began = time.perf_counter()
    patience = {"producer": {"send_timeout": 60.0}}  # on a busy machine
    async with Client(broker.address, settings=patience) as client:
        for number in range(TOPICS):
            await client.publish_many(f"orders-{number:04}", [b"x" * 100] * (each - 1))
            await client.publish(f"orders-{number:04}", b"x" * 100, keys="k77")
    await asyncio.to_thread(broker.on_connection, partial(_commit, each // 10))
    print(f"{TOPICS:,} topics with {each:,} messages each were filled in {time.perf_counter() - began:.0f} s")


async def _commit(offset: int, connection: Connection) -> None:
    for number in range(TOPICS):
        for queue in range(8):
            group, topic = f"group-{number % GROUPS}", f"orders-{number:04}"
            request = CommitRequest(group=group, topic=topic, queue_id=queue, offset=offset)
            command = Command(RequestCode.UPDATE_CONSUMER_OFFSET, request.to_fields())
            assert (await connection.start_request(command, timeout=30.0)).code == 0


def _measured(broker: WatchedBroker, browser: Browser, path: str) -> float:
    """The worst first paint, in milliseconds."""
    answered, painted = [], []
    with _gaps(broker.loop) as gaps:
        for _ in range(LOADS):
            began = time.perf_counter()
            assert broker.get(path).status == 200
            answered.append(1000 * (time.perf_counter() - began))
    for _ in range(LOADS):
        browser.open(broker.http + path)
        while (at := browser.value(PAINT)) is None:
            time.sleep(0.02)
        painted.append(float(at))
    figures = (statistics.median(answered), max(answered), statistics.median(painted), max(painted), 1000 * max(gaps))
    answer, slowest, paint, latest, gap = (f"{figure:.0f}" for figure in figures)
    print(f"{path:46} answered {answer} ({slowest}) ms, painted {paint} ({latest}) ms, loop kept {gap} ms")
    return max(painted)


@contextmanager
def _gaps(loop: asyncio.AbstractEventLoop) -> Iterator[list[float]]:
    """Seconds between two turns of the loop, one of which is wanted every millisecond."""
    gaps, is_over = [0.0], False

    def tick(before: float) -> None:
        now = time.perf_counter()
        gaps.append(now - before)
        if not is_over:
            loop.call_later(0.001, tick, now)

    loop.call_soon_threadsafe(tick, time.perf_counter())
    try:
        yield gaps
    finally:
        is_over = True


if __name__ == "__main__":
    sys.exit(main())
