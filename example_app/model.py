"""What the shop's messages carry: JSON on the wire, checked types in the handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

Publish = Callable[..., Awaitable[Any]]
"""`RocketApp.publish`, or its replacement in a test."""


class Order(msgspec.Struct, frozen=True):
    """A customer orders an item."""

    id: str
    customer: str
    item: str
    count: int
    card: str


class Payment(msgspec.Struct, frozen=True):
    """A request to charge a card for an order."""

    order: Order
    cents: int


class Movement(msgspec.Struct, frozen=True):
    """Items leave the shelf. A negative count brings them back."""

    order_id: str
    item: str
    count: int


async def not_connected(topic: str, body: Any, **options: Any) -> None:
    """The default `publish`, until app.py replaces it."""
    raise RuntimeError(f"published to {topic} before app.py set `publish`")
