"""Counters of what handlers did."""

from __future__ import annotations

from rocketapp.consumer.handler import Handler


class HandlerStats:
    """What one handler has done so far."""

    __slots__ = ("dead_lettered", "handled", "handler", "reported", "retried")

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.handled = 0
        self.retried = 0
        self.dead_lettered = 0
        self.reported = 0
        """How many of the handled ones were told to whoever observes."""

    @property
    def name(self) -> str:
        return self.handler.name
