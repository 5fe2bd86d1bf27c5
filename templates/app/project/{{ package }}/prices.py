"""What items cost. A real shop asks a database, or another service."""

from __future__ import annotations

from collections.abc import Mapping


class UnknownItemError(LookupError):
    """The item has no price: asking again does not help."""


class Prices:
    """In cents, by item."""

    def __init__(self, cents: Mapping[str, int]) -> None:
        self._cents = cents

    async def of(self, item: str) -> int:
        """The price of one. Raises UnknownItemError."""
        try:
            return self._cents[item]
        except KeyError:
            raise UnknownItemError(item) from None
