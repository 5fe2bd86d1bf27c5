"""What items cost."""

from __future__ import annotations

from collections.abc import Mapping

from example_app.failures import RefusedError


class UnknownItemError(RefusedError):
    """The item has no price."""


class Prices:
    """In cents, by item."""

    def __init__(self, cents: Mapping[str, int]) -> None:
        self._cents = cents

    def of(self, item: str) -> int:
        """The price of one. Raises UnknownItemError."""
        try:
            return self._cents[item]
        except KeyError:
            raise UnknownItemError(f"{item!r} has no price") from None
