"""The queues that are blocked, with their reasons; each reason is reported once.

A queue may be blocked for several reasons at once: it does not pull, its lock is uncertain, its failed messages are not
taken back. Each reason has a source, so that the end of one does not hide another; the queue moves again when none is
left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rocketapp.model.event import LoopFailed, Moving, Observe, QueueBlocked
from rocketapp.model.message_queue import MessageQueue

Text = str | Callable[[], str]
"""A reason in words. One whose figures change is called when the reason is reported or asked for."""


@dataclass(slots=True)
class _Reason:
    source: str
    kind: str
    text: Text
    tell_at: float
    told: bool = False


OF_QUEUE, OF_PAUSE, OF_CALL = "queue", "pause", "call"
"""Sources: what an assignment and its pulls say, what is said of a pause, and of a queue that waits for a free call of
its handler. Whoever else has a reason names a source of its own. A pause is told and shown before all others.
"""

CALL_PATIENCE = 10.0
"""Seconds of waiting for a free call after which a queue is said to be blocked."""
CONSEQUENCE = "flow control"
"""A kind that often follows from another reason, which is therefore told and shown before it."""


class BlockedQueues:
    """The blocked queues of a group, with their reasons."""

    def __init__(self, group: str, observe: Observe) -> None:
        self._group, self._observe, self._now = group, observe, asyncio.get_running_loop().time
        self._reasons: dict[MessageQueue, dict[str, _Reason]] = {}
        """By queue and source."""
        self._told: set[MessageQueue] = set()
        """Queues that were reported as blocked, and not as moving again."""
        self.corrections: dict[MessageQueue, str] = {}
        """By queue why its offset was corrected last."""

    def because(
        self,
        queue: MessageQueue,
        reason: Text,
        *,
        kind: str | None = None,
        patience: float = 0.0,
        source: str = OF_QUEUE,
    ) -> None:
        """A queue is blocked for this reason, reported after `patience` seconds.

        Reasons of one kind are reported once.
        """
        kind = kind or _shown(reason)
        reasons = self._reasons.setdefault(queue, {})
        known = reasons.get(source)
        if known is not None and known.kind == kind:
            known.text = reason
        else:
            reasons[source] = _Reason(source, kind, reason, self._now() + patience)
        self._tell(queue, reasons)

    def corrected(self, queue: MessageQueue, why: str) -> None:
        """The broker has nothing at the group's offset: the queue goes on at another one. `why` in words."""
        self.corrections[queue] = why
        self._observe(LoopFailed(f"pull {queue}", why))

    def moving(self, queue: MessageQueue, *, source: str = OF_QUEUE) -> None:
        """The reason of this source is gone; without any reason left the queue moves again."""
        if self._reasons or self._told:
            self.forget(queue, source=source)
            if queue in self._told and queue not in self._reasons:
                self._told.discard(queue)
                self._observe(Moving(self._group, queue))

    def forget(self, queue: MessageQueue, *, source: str | None = None) -> None:
        """Drop the reasons of this source without a report; without a source, all of the queue."""
        if source is None:
            self._reasons.pop(queue, None)
            self._told.discard(queue)
        elif (reasons := self._reasons.get(queue)) is not None and reasons.pop(source, None) is not None:
            if reasons:
                self._tell(queue, reasons)
            else:
                del self._reasons[queue]

    def tell(self) -> None:
        """Report the reasons that have lasted for their patience."""
        for queue, reasons in list(self._reasons.items()):
            self._tell(queue, reasons)

    def reasons(self) -> dict[MessageQueue, str]:
        """Why each blocked queue is blocked: the reported reason, otherwise the oldest."""
        return {queue: _shown(min(each.values(), key=_rank).text) for queue, each in list(self._reasons.items())}

    def _tell(self, queue: MessageQueue, reasons: dict[str, _Reason]) -> None:
        """Report one reason at a time: the next one when the first is gone, as it may be a consequence."""
        told = [reason.kind for reason in reasons.values() if reason.told]
        for source, reason in reasons.items():
            is_hidden = reason.kind in told or any(kind != CONSEQUENCE for kind in told)
            if not reason.told and (not is_hidden or source == OF_PAUSE) and self._now() >= reason.tell_at:
                reason.told = True
                self._told.add(queue)
                self._observe(QueueBlocked(self._group, queue, _shown(reason.text)))
                return


def _rank(reason: _Reason) -> tuple[bool, bool, bool]:
    return reason.source != OF_PAUSE, not reason.told, reason.told and reason.kind == CONSEQUENCE


def _shown(text: Text) -> str:
    return text if isinstance(text, str) else text()
