"""Whether messages of one handler may start: what its workers ask before each run."""

from __future__ import annotations

from collections.abc import Callable

from rocketapp.consumer.handler import Handler
from rocketapp.state.pauses import Pauses


class PausesOfHandler:
    """Whether messages of one handler may start."""

    def __init__(self, handler: Handler, pauses: Pauses, changed: Callable[[], None]) -> None:
        """`changed` is called after every change. On the event loop, but for `is_paused`."""
        self._pauses, self._handler, self._changed = pauses, handler, changed
        self._topic = handler.subscription.topic
        self.is_paused: bool = pauses.is_paused(self._topic)
        """Nothing more may start, apart from a probe."""
        pauses.watch(self._topic, self._look)

    def may_probe(self) -> bool:
        """During a pause: whether one message may start all the same. True once for each probe."""
        take = self._pauses.leave(self._topic)
        return take is not None and take(self._handler.name)

    def close(self) -> None:
        """The group has ended."""
        self._pauses.unwatch(self._topic, self._look)

    def _look(self) -> None:
        self.is_paused = self._pauses.is_paused(self._topic)
        self._changed()
