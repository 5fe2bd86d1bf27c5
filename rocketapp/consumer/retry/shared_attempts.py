"""Failed attempts of orderly messages, kept at the broker for the next owner of their queue.

What cannot be written or read is left out: the attempts are then counted from those that this process knows. Nothing
waits for a write. See decision 0018.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from rocketapp.consumer.brokers import Brokers
from rocketapp.errors import RocketAppError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.failed_attempts import FailedAttempts
from rocketapp.state.shared_attempts import Failed, decode, encode, place
from rocketapp.tasks import Tasks

_TIMEOUT = 1.0
"""Seconds that a broker may take: a queue that begins waits for the answer."""


class SharedAttempts:
    """The attempts of one group's orderly topics, as brokers keep them."""

    def __init__(self, *, topics: Collection[str], brokers: Brokers, attempts: FailedAttempts, tasks: Tasks) -> None:
        """`attempts`: what this process remembers; `tasks`: the owner of what is written."""
        self._topics, self._brokers, self._attempts, self._tasks = frozenset(topics), brokers, attempts, tasks
        self._writing: dict[MessageQueue, Failed | None] = {}
        """Queues of which something is written, and what is to be written after that."""

    def __repr__(self) -> str:
        return f"<SharedAttempts of {len(self._topics)} topics, {len(self._writing)} under way>"

    async def recall(self, queue: MessageQueue) -> None:
        """Before a session begins: learn what the owner before has counted."""
        at = place(queue) if queue.topic in self._topics else None
        if at is None:
            return
        with contextlib.suppress(RocketAppError):
            number = await self._brokers.committed(at, exact=True, timeout=_TIMEOUT, dial=False)
            if number:
                self._attempts.learn(queue, *decode(number))

    def failed(self, queue: MessageQueue, offset: int, times: int) -> None:
        """The message has failed this often; 0: it is done."""
        if queue.topic not in self._topics:
            return
        if queue in self._writing:
            self._writing[queue] = Failed(offset, times)
        elif (at := place(queue)) is not None:
            self._writing[queue] = None
            self._tasks.start(self._write(queue, at, Failed(offset, times)), f"attempts of {queue}")

    async def _write(self, queue: MessageQueue, at: MessageQueue, failed: Failed | None) -> None:
        try:
            while failed is not None:
                with contextlib.suppress(RocketAppError):
                    await self._brokers.commit(at, encode(failed), timeout=_TIMEOUT, dial=False)
                failed, self._writing[queue] = self._writing[queue], None
        finally:
            del self._writing[queue]
