"""Counters of what became of messages: one class for a handler, a consumer, an app and a whole run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class HandlerStats:
    """What became of messages; the object that holds it knows whose they are."""

    handled: int = 0
    """Messages that are done: the handler returned, or said that it skips them."""
    retried: int = 0
    """Send-backs, and retries in place of orderly handlers."""
    dead_lettered: int = 0
    """Messages that were sent to the dead-letter topic."""
    unmatched: int = 0
    """Messages whose tag no handler of the group subscribes to: they are done without a call."""
    dropped: int = 0
    """Messages of a broadcast group whose handler failed: they are not tried again by sending them back."""

    def __add__(self, other: HandlerStats) -> HandlerStats:
        return HandlerStats(
            self.handled + other.handled,
            self.retried + other.retried,
            self.dead_lettered + other.dead_lettered,
            self.unmatched + other.unmatched,
            self.dropped + other.dropped,
        )
