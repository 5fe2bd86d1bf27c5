"""Pauses of one group, in effect at once: what pulls its queues and what calls its handlers hear of every change."""

from __future__ import annotations

from collections.abc import Callable

from rocketapp.consumer.handler import Handler
from rocketapp.state.pauses import Leave, Pauses

EVERY = ""
"""Stands for every topic."""


class Pausing:
    """Pauses and resumes the topics of one group."""

    def __init__(self) -> None:
        self.pauses: Pauses = Pauses()
        self._watchers: dict[str, dict[Callable[[], None], None]] = {}

    def __repr__(self) -> str:
        return f"<Pausing {self.pauses!r}>"

    def pause(self, topic: str, reason: str) -> None:
        """Start no more handlers of this topic and pull no more of its messages, until `resume` lifts the reason."""
        self.pauses.pause(topic, reason)
        self._tell(topic)

    def resume(self, topic: str, reason: str | None = None) -> None:
        """Lift this reason, or without one all reasons. The topic goes on when its last reason is lifted."""
        self.pauses.resume(topic, reason)
        self._tell(topic)

    def replace(self, topic: str, before: str, reason: str) -> None:
        """Pause it for another reason, with nothing started in between."""
        self.pauses.pause(topic, reason)
        if before and before != reason:
            self.pauses.resume(topic, before)
        self._tell(topic)

    def probe(self, topic: str, reason: str, leave: Leave) -> None:
        """Although it is paused for this reason, pull its messages, and start one with this leave."""
        self.pauses.probe(topic, reason, leave)
        self._tell(topic)

    def watch(self, topic: str, changed: Callable[[], None]) -> None:
        """Call this after every change of this topic, or of EVERY one."""
        self._watchers.setdefault(topic, {})[changed] = None

    def unwatch(self, topic: str, changed: Callable[[], None]) -> None:
        """Call it no more. Nothing happens if it did not watch."""
        self._watchers.get(topic, {}).pop(changed, None)

    def _tell(self, topic: str) -> None:
        for changed in [*self._watchers.get(topic, ()), *self._watchers.get(EVERY, ())]:
            changed()


class PausesOfHandler:
    """Whether messages of one handler may start."""

    def __init__(self, handler: Handler, pausing: Pausing, changed: Callable[[], None]) -> None:
        """`changed` is called after every change. On the event loop, but for `is_paused`."""
        self._pausing, self._handler, self._changed = pausing, handler, changed
        self._topic = handler.subscription.topic
        self.is_paused: bool = pausing.pauses.is_paused(self._topic)
        """Nothing more may start, apart from a probe."""
        pausing.watch(self._topic, self._look)

    def may_probe(self) -> bool:
        """During a pause: whether one message may start all the same. True once for each probe."""
        take = self._pausing.pauses.leave(self._topic)
        return take is not None and take(self._handler.name)

    def close(self) -> None:
        """The group has ended."""
        self._pausing.unwatch(self._topic, self._look)

    def _look(self) -> None:
        self.is_paused = self._pausing.pauses.is_paused(self._topic)
        self._changed()
