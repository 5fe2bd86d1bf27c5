"""The one place that asks the operating system for the time of day.

Durations are measured with the event loop's clock (`loop.time()`); the time of day
is needed only where RocketMQ writes it down: birth and store timestamps, message
ids, subscription versions.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of the time of day."""

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The operating system's clock."""

    def now(self) -> float:
        return time.time()
