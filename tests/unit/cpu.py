"""What code costs, in seconds of CPU of a quiet machine.

On a busy machine the same code takes up to three times the CPU: caches are cold, and two threads share a core. So each
cost is divided by what a fixed piece of work costs at that moment, and the cheapest of some tries counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

QUIET = 0.06
"""Seconds of CPU that `_work` takes on the quiet machine on which the limits of tests were found."""


def slowness() -> float:
    """How many times the CPU of that quiet machine code takes now; at least 1."""
    began = time.process_time()
    _work()
    return max(1.0, (time.process_time() - began) / QUIET)


def cheapest(attempt: Callable[[], float], *, within: float, tries: int = 5) -> float:
    """The least cost of some tries, in seconds of CPU of a quiet machine; the first one that is `within` is enough.

    `attempt` returns the seconds of CPU that it took.
    """
    least = float("inf")
    for _ in range(tries):
        before = slowness()
        spent = attempt()
        least = min(least, spent / ((before + slowness()) / 2))
        if least < within:
            break
    return least


def _work() -> None:
    """Objects, dicts, text and calls, as most of the code under test."""
    known: dict[str, list[str]] = {}
    for number in range(180_000):
        name = f"name-{number % 5_000}"
        known.setdefault(name, []).append(name.upper())
