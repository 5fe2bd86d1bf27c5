"""The counters of one consumer group, in one place."""

from __future__ import annotations

from collections.abc import Iterable

from rocketapp.consumer.handler import Handler
from rocketapp.model.stats import HandlerStats


class GroupStats:
    """The counters of a group: one set per handler, and one per topic for messages that match no handler."""

    def __init__(self, handlers: Iterable[Handler]) -> None:
        self.handlers: tuple[Handler, ...] = tuple(handlers)
        """Each carries its own counters."""
        self.unmatched: dict[str, HandlerStats] = {}
        """By topic."""

    def __repr__(self) -> str:
        return f"<GroupStats of {len(self.handlers)} handlers: {self.total()}>"

    def count_unmatched(self, topic: str, count: int) -> None:
        """`count` messages of this topic were finished because no handler subscribes to their tag."""
        self.unmatched.setdefault(topic, HandlerStats()).unmatched += count

    def total(self) -> HandlerStats:
        """The sum of all counters."""
        return sum((*(handler.stats for handler in self.handlers), *self.unmatched.values()), HandlerStats())
