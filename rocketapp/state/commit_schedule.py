"""When the offset of an orderly queue is committed between the regular rounds.

A kill shall repeat at most a batch. So an offset leaves soon after its queue went idle, and whenever a batch is
finished that was not told yet. A smaller run waits a little longer: another batch may follow it before the next look.
Pulls carry offsets for nothing: a commit of its own waits a moment for one.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.model.message_queue import MessageQueue

BATCH = 32
"""Finished messages that are told to the broker without waiting for more."""
PULL_PATIENCE = 0.003
"""Seconds in which a pull that may carry the offset is waited for."""
IDLE_PATIENCE = 0.02
"""Seconds after which an idle queue commits: at a trickle of messages the next pull comes first."""
RUN_PATIENCE = 0.25
"""Seconds after which less than a batch is told, while its queue goes on."""


@dataclass(frozen=True, slots=True)
class _Due:
    at: float
    offset: int


class CommitSchedule:
    """The commits that are due, one per queue."""

    def __init__(self) -> None:
        self._due: dict[MessageQueue, _Due] = {}

    def __repr__(self) -> str:
        return f"<CommitSchedule: {len(self._due)} due>"

    def finished(self, queue: MessageQueue, now: float, *, offset: int, told: int, is_idle: bool) -> float | None:
        """Everything below `offset` is finished; everything below `told` was sent to the broker.

        Returns when that is due, if it is due earlier than before.
        """
        behind = offset - told
        if behind >= BATCH:
            wait = PULL_PATIENCE
        elif behind > 0:
            wait = IDLE_PATIENCE if is_idle else RUN_PATIENCE
        else:
            return None
        known, at = self._due.get(queue), now + wait
        if known is not None and known.offset > told and known.at <= at:
            return None
        self._due[queue] = _Due(at, offset)
        return at

    def forget(self, queue: MessageQueue) -> None:
        """Its session is over."""
        self._due.pop(queue, None)

    def next_due(self) -> float | None:
        """When the next commit is due."""
        return min((due.at for due in self._due.values()), default=None)

    def take(self, now: float) -> list[tuple[MessageQueue, int]]:
        """Queues whose commit is due, each with the offset that has to be told by now; they are not due any more."""
        taken = [(queue, due.offset) for queue, due in self._due.items() if due.at <= now]
        for queue, _ in taken:
            del self._due[queue]
        return taken
