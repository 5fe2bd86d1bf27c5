"""What the shop's messages carry: JSON on the wire, checked types in the handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

Publish = Callable[..., Awaitable[Any]]
"""`RocketApp.publish`, or what stands in for it in a test."""


class Order(msgspec.Struct, frozen=True):
    """Somebody wants something."""

    id: str
    customer: str
    item: str
    count: int
    card: str


class Payment(msgspec.Struct, frozen=True):
    """A card is to be charged for an order."""

    order: Order
    cents: int


class Movement(msgspec.Struct, frozen=True):
    """Something leaves the shelf (or comes back: a negative count)."""

    order_id: str
    item: str
    count: int


async def nobody_listens(topic: str, body: Any, **options: Any) -> None:
    """Stands in until the app is put together."""
    raise RuntimeError(f"published to {topic} before the app was put together")
