"""Pauses of one group, in effect at once: what consumes its queues hears of every change."""

from __future__ import annotations

from collections.abc import Callable

from rocketapp.state.pauses import Leave, Pauses


class Pausing:
    """Pauses and resumes the topics of one group."""

    def __init__(self, pauses: Pauses) -> None:
        self.pauses = pauses
        self._watchers: dict[Callable[[], None], None] = {}

    def __repr__(self) -> str:
        return f"<Pausing {self.pauses!r}>"

    def pause(self, topic: str, reason: str) -> None:
        """Start no more handlers of this topic and pull no more of its messages, until `resume` lifts the reason."""
        self.pauses.pause(topic, reason)
        self._tell()

    def resume(self, topic: str, reason: str | None = None) -> None:
        """Lift this reason, or without one all reasons. The topic goes on when its last reason is lifted."""
        self.pauses.resume(topic, reason)
        self._tell()

    def replace(self, topic: str, before: str, reason: str) -> None:
        """Pause it for another reason, with nothing started in between."""
        self.pauses.pause(topic, reason)
        if before and before != reason:
            self.pauses.resume(topic, before)
        self._tell()

    def let_one(self, topic: str, reason: str, leave: Leave) -> None:
        """Although it is paused for this reason, pull its messages, and start one with this leave."""
        self.pauses.let_one(topic, reason, leave)
        self._tell()

    def watch(self, changed: Callable[[], None]) -> None:
        """Call this after every change."""
        self._watchers[changed] = None

    def unwatch(self, changed: Callable[[], None]) -> None:
        """Call it no more. Nothing happens if it did not watch."""
        self._watchers.pop(changed, None)

    def _tell(self) -> None:
        for changed in list(self._watchers):
            changed()
