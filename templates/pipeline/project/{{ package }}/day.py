"""The orders of one day, as customers might place them. A real shop gets its orders from elsewhere."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from .model import WINDOW, Order

OPENS = datetime(2026, 1, 5, 9, tzinfo=UTC)
BUSY = (3, 4, 4, 5, 6, 9, 14, 15, 11, 7, 5, 4, 4, 5, 7, 8, 6, 3)
"""How busy each half hour is, from 09:00 to 18:00: people come at noon."""
CENTS = {"tea": 350, "coffee": 420, "cocoa": 510}
SLOWEST = timedelta(minutes=10)
"""From the order to its message."""


def orders(count: int, *, seed: int = 1) -> list[Order]:
    """`count` orders in the order in which their messages are sent; the last one is of the next morning.

    A window ends when a newer order shows that time goes on. The one of the next morning ends the last of the day.
    """
    chance = random.Random(seed)
    made: list[tuple[datetime, Order]] = []
    for number, window in enumerate(chance.choices(range(len(BUSY)), BUSY, k=count - 1)):
        placed_at = OPENS + window * WINDOW + timedelta(seconds=chance.randrange(int(WINDOW.total_seconds())))
        sent_at = placed_at + timedelta(seconds=chance.randrange(int(SLOWEST.total_seconds())))
        made.append((sent_at, _order(number, placed_at, chance)))
    made.sort(key=lambda one: one[0])
    return [*(order for _, order in made), _order(count - 1, OPENS + timedelta(days=1), chance)]


def _order(number: int, placed_at: datetime, chance: random.Random) -> Order:
    item, count = chance.choice(sorted(CENTS)), chance.randint(1, 4)
    return Order(f"order-{number}", item, count, count * CENTS[item], placed_at)
