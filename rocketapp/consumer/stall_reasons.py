"""Why queues stand still: can be asked at any time, and each reason is reported once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rocketapp.model.event import Moving, Observe, StandingStill
from rocketapp.model.message_queue import MessageQueue


@dataclass(slots=True)
class _Reason:
    kind: str
    text: str
    tell_at: float
    told: bool = False


class StallReasons:
    """The reason of every queue that stands still."""

    def __init__(self, group: str, observe: Observe, now: Callable[[], float]) -> None:
        self._group, self._observe, self._now = group, observe, now
        self._reasons: dict[MessageQueue, _Reason] = {}

    def still(self, queue: MessageQueue, reason: str, *, kind: str | None = None, patience: float = 0.0) -> None:
        """The queue stands still. Reasons of one kind are reported once, if it still does after `patience` seconds."""
        kind = kind or reason
        known = self._reasons.get(queue)
        if known is not None and known.kind == kind:
            known.text = reason
        else:
            self._reasons[queue] = known = _Reason(kind, reason, self._now() + patience)
        self._tell(queue, known)

    def moving(self, queue: MessageQueue) -> None:
        """The queue moves again."""
        if self._reasons:
            known = self._reasons.pop(queue, None)
            if known is not None and known.told:
                self._observe(Moving(self._group, queue))

    def kind(self, queue: MessageQueue) -> str | None:
        """The kind of reason for which it stands still; None when it moves."""
        known = self._reasons.get(queue)
        return None if known is None else known.kind

    def forget(self, queue: MessageQueue) -> None:
        """The queue was given back."""
        self._reasons.pop(queue, None)

    def tell(self) -> None:
        """Report what has lasted for its patience by now."""
        for queue, reason in list(self._reasons.items()):
            self._tell(queue, reason)

    def reasons(self) -> dict[MessageQueue, str]:
        """Every queue that stands still, and why."""
        return {queue: reason.text for queue, reason in self._reasons.items()}

    def _tell(self, queue: MessageQueue, reason: _Reason) -> None:
        if not reason.told and self._now() >= reason.tell_at:
            reason.told = True
            self._observe(StandingStill(self._group, queue, reason.text))
