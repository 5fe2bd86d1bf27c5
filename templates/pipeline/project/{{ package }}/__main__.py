"""`python -m` this package: all of it on this machine, see run.py."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from .run import run

STOPPED = 130
"""The exit code of a program that Ctrl-C has stopped."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}", description="Orders, table, stream and a picture, on this machine."
    )
    parser.add_argument("--orders", type=int, default=12_000, help="orders of the day; default %(default)s")
    parser.add_argument("--seconds", type=float, default=20.0, help="that the day takes; default %(default)s")
    parser.add_argument("--limit", type=float, default=170.0, help="seconds for everything; default %(default)s")
    given = parser.parse_args()
    if given.orders < 2 or given.seconds < 0 or given.limit <= 0:
        parser.error("--orders has to be 2 or more, --seconds 0 or more, and --limit above 0")
    try:
        return asyncio.run(_until_stopped(given.orders, given.seconds, given.limit))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped: broker, app and job have ended", file=sys.stderr)
        return STOPPED


async def _until_stopped(orders: int, seconds: float, limit: float) -> int:
    """asyncio.run cancels its task on SIGINT; SIGTERM does the same here."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run(orders, seconds, limit)


if __name__ == "__main__":
    sys.exit(main())
