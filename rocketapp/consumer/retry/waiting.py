"""Which queues have failed messages that no broker has taken for long: a reason of theirs to stand still."""

from __future__ import annotations

from collections import Counter

from rocketapp.consumer.stall_reasons import OF_RETRY, StallReasons
from rocketapp.model.message_queue import MessageQueue

LONG = 5.0
"""Seconds after which it is said that failed messages wait."""


class Waiting:
    """Counts the failed messages of every queue until brokers have taken them."""

    def __init__(self, stall_reasons: StallReasons) -> None:
        self._stall_reasons = stall_reasons
        self._counts: Counter[MessageQueue] = Counter()
        self._late: Counter[MessageQueue] = Counter()
        """Those that have waited for long."""

    def begin(self, queue: MessageQueue) -> None:
        """One more failed message of this queue waits."""
        self._counts[queue] += 1

    def refused(self, queue: MessageQueue, problem: str, *, is_new: bool) -> None:
        """A message of this queue waits for long and was refused again. `is_new`: it is told for the first time."""
        self._late[queue] += is_new
        count = self._counts[queue]
        text = f"{count} failed message{' waits' if count == 1 else 's wait'} to be sent back: {problem}"
        self._stall_reasons.still(queue, text, kind="send back", place=OF_RETRY)

    def end(self, queue: MessageQueue, *, was_late: bool) -> None:
        """A message of this queue waits no more."""
        self._counts[queue] -= 1
        if not self._counts[queue]:
            del self._counts[queue]
        if was_late:
            self._late[queue] -= 1
            if not self._late[queue]:
                del self._late[queue]
                self._stall_reasons.moving(queue, place=OF_RETRY)
