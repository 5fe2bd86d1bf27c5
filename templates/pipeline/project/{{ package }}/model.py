"""What the topics carry, as JSON: the one place that the app, its table and the Spark job agree on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from rocketapp import Topic


class Order(msgspec.Struct, frozen=True):
    """A customer orders an item."""

    id: str
    item: str
    count: int
    cents: int
    """For all of it."""
    placed_at: datetime
    """When the customer ordered. The message may be stored later, by at most `LATEST`."""


class Revenue(msgspec.Struct, frozen=True):
    """What was ordered from `start` until just before `end`."""

    start: datetime
    end: datetime
    orders: int
    cents: int


ORDERS = Topic("shop-orders", Order)
REVENUE = Topic("shop-revenue", Revenue)

WINDOW = timedelta(minutes=30)
LATEST = timedelta(hours=1)
"""An order that is further behind the newest one is not counted any more: windows have to end at some time."""


def window_of(time: datetime) -> datetime:
    """The beginning of the window of a time with a time zone. Windows are counted from 1970 on, as by Spark."""
    seconds = int(time.timestamp())
    return datetime.fromtimestamp(seconds - seconds % int(WINDOW.total_seconds()), UTC)
