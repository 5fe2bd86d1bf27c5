"""Messages as decisions see them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """A pulled message: its offset, and the bytes of its record."""

    offset: int
    size: int = 100


def items(*offsets: int) -> list[Item]:
    """Messages at these offsets."""
    return [Item(offset) for offset in offsets]
