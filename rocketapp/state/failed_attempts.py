"""Attempts of orderly messages that ended with their session, before anything could be acknowledged.

A broker counts the attempts of a message that was sent back; those of an orderly message
are counted by its owner. When its session ends, for example because a handler blocked the
loop until the lock was lost, the next session of the queue in this process goes on
counting. So such a message ends in the dead letters like any other. What an owner before
has counted is learned from the broker: see `state.shared_attempts`.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketapp.model.message_queue import MessageQueue


class FailedAttempts:
    """Failed attempts by queue and offset. Of each queue the last session is remembered."""

    def __init__(self) -> None:
        self._times: dict[MessageQueue, dict[int, int]] = {}

    def __repr__(self) -> str:
        return f"<FailedAttempts of {sum(map(len, self._times.values()))} messages>"

    def keep(self, queue: MessageQueue, times: Mapping[int, int]) -> None:
        """A session has ended: how often each of its unfinished messages has failed, by offset."""
        if times:
            self._times[queue] = dict(times)
        else:
            self._times.pop(queue, None)

    def learn(self, queue: MessageQueue, offset: int, times: int) -> None:
        """Another member has counted this many failed attempts of a message."""
        known = self._times.setdefault(queue, {})
        known[offset] = max(times, known.get(offset, 0))

    def take(self, queue: MessageQueue, first_offset: int) -> dict[int, int]:
        """A session begins: the same for the messages from `first_offset` on; earlier ones are finished."""
        times = self._times.pop(queue, {})
        return {offset: count for offset, count in times.items() if offset >= first_offset}
