"""Queues that wait while messages that may have ended a process have their turn: a reason of theirs to stand still."""

from __future__ import annotations

from collections.abc import Callable, Collection

from rocketapp.consumer.stalls import OF_TURN, StallReasons
from rocketapp.consumer.suspect_line import SuspectLine
from rocketapp.model.message_queue import MessageQueue

_PATIENCE = 5.0
"""Seconds of waiting after which it is told: most suspects are handled as quickly as any message."""


class BehindSuspects:
    """The waiting queues of one group."""

    def __init__(
        self, line: SuspectLine, unfinished: Callable[[], Collection[MessageQueue]], stall_reasons: StallReasons
    ) -> None:
        """`unfinished()`: the queues with messages that take part in the line."""
        self._line, self._unfinished, self._stall_reasons = line, unfinished, stall_reasons
        self._waiting: frozenset[MessageQueue] = frozenset()

    def __repr__(self) -> str:
        return f"<BehindSuspects: {len(self._waiting)} queues wait>"

    def look(self) -> None:
        """Once a second: say which queues wait, and which do not any more."""
        reason = self._line.reason
        waiting = frozenset(self._unfinished()) - {self._line.queue} if reason else frozenset[MessageQueue]()
        for queue in waiting:
            self._stall_reasons.blocked(queue, reason, kind="turn", patience=_PATIENCE, place=OF_TURN)
        for queue in self._waiting - waiting:
            self._stall_reasons.moving(queue, place=OF_TURN)
        self._waiting = waiting
