"""The shelf of the shop, and the container that gives it to handlers."""

from __future__ import annotations

from dependency_injector import containers, providers


class Shelf:
    """How many of each item are left. A real shop uses a database; this one starts anew at every restart."""

    def __init__(self, **items: int) -> None:
        self.items = items

    def __str__(self) -> str:
        return ", ".join(f"{item} {left}" for item, left in sorted(self.items.items()))

    def take(self, item: str, count: int) -> int:
        """Returns how many are left."""
        self.items[item] -= count
        return self.items[item]


class Shop(containers.DeclarativeContainer):
    """Everything that handlers need beside their message. A handler asks for it by its type; a test overrides it."""

    shelf = providers.Singleton(Shelf, tea=10, coffee=10, cocoa=10)
