"""What a polled handler pulls its messages with."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.numbers import is_number, is_whole
from rocketapp.wire.record import Message

if TYPE_CHECKING:
    from rocketapp.consumer.ways.polled import Round  # declaring an app does not import what runs it

MAX_PULLED = 65_535
"""The most messages that one pull may ask for: the most unfinished messages that one queue may have."""


class _OfOneCall:
    __slots__ = ("_round", "group", "queue")

    def __init__(self, one: Round, group: str) -> None:
        self._round = one
        self.queue: MessageQueue = one.queue
        """The queue that this call is for."""
        self.group: str = group
        """The consumer group that commits."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.queue}: {len(self._round)} messages>"

    def next_in(self, seconds: float) -> None:
        """Call the handler for this queue again this many seconds after it has returned or failed, this time.

        seconds: 0 or more; otherwise ValueError. Raises RuntimeError when the handler has returned.
        """
        if not is_number(seconds) or not 0 <= seconds < inf:
            raise ValueError(f"next_in({seconds!r}): give seconds, 0 or more")
        self._round.next_in(float(seconds))


class Pull(_OfOneCall):
    """Pulls messages of one queue for one call of an async handler: `messages = await pull(32)`."""

    __slots__ = ()

    async def __call__(self, most: int = 32) -> list[Message]:
        """The next messages of the queue, in their order; fewer than `most`, or none, when the queue has no more.

        Waits for at most a second for a broker that has more. Gives none while the topic is paused, and after the
        queue has been given to another member. What was pulled is committed when the handler returns; when it raises,
        the next call gets the same messages.

        most: 1 to 65,535; otherwise ValueError. Raises RuntimeError when the handler has returned.
        """
        return await self._round.take(_checked(most))


class SyncPull(_OfOneCall):
    """`Pull` for a plain `def`, which runs in a thread: `messages = pull(32)`."""

    __slots__ = ()

    def __call__(self, most: int = 32) -> list[Message]:
        """As `Pull`, without `await`. From the handler's thread. Gives none in a forked process."""
        checked = _checked(most)
        if self._round.is_cut:  # the loop of a forked process does not run
            return []
        return asyncio.run_coroutine_threadsafe(self._round.take(checked), self._round.loop).result()


def _checked(most: int) -> int:
    if not is_whole(most) or not 1 <= most <= MAX_PULLED:
        raise ValueError(f"pull({most!r}): give a whole number of messages, 1 to {MAX_PULLED}")
    return most
