"""What handlers with `commit="manual"` say of what they have handled: commit it, or handle it again."""

from __future__ import annotations

from typing import Literal

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import Retry

COMMIT: Literal["commit"] = "commit"
Decision = Literal["commit"] | Retry
"""Commit everything so far, or handle it again after a while."""


class Decisions:
    """The decisions of one handler's running calls, by queue: a queue has one call at a time."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: dict[MessageQueue | None, Decision] = {}

    def __repr__(self) -> str:
        return f"<Decisions {self._said}>"

    def begin(self, queue: MessageQueue | None) -> None:
        """A call begins: it has decided nothing."""
        self._said.pop(queue, None)

    def say(self, queue: MessageQueue | None, decision: Decision) -> None:
        """The running call has decided; the last decision of a call counts."""
        self._said[queue] = decision

    def look(self, queue: MessageQueue | None) -> Decision | None:
        """What the running call has decided so far."""
        return self._said.get(queue)

    def take(self, queue: MessageQueue | None) -> Decision | None:
        """What the call that has ended decided; None for nothing."""
        return self._said.pop(queue, None)
