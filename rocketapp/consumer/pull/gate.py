"""What a loop passes before each request for messages: it is shut by a pause and by flow control.

Here is also said why the queue is blocked, and that it moves again; a pause is named before anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from rocketapp.consumer.pull.flow import QueueFlow
from rocketapp.consumer.stalls import CONSEQUENCE, OF_PROBE, StallReasons, Text
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.pauses import Pauses


class Gate:
    """The gate of one queue, which is pulled or popped."""

    def __init__(self, queue: MessageQueue, flow: QueueFlow, stall_reasons: StallReasons) -> None:
        self._queue, self._flow, self._stall_reasons = queue, flow, stall_reasons
        self._loop = asyncio.get_running_loop()
        self._resumed: asyncio.Future[None] | None = None
        """Done when the queue is resumed; None while it is not paused."""
        self._stopped: tuple[Text, str, float] | None = None
        """Why it is blocked, apart from a pause: text, kind, patience."""
        self.waits_for_room: bool = False
        """Flow control keeps the next request back."""

    def __repr__(self) -> str:
        return f"<Gate of {self._queue}{': paused' * self.is_paused}>"

    @property
    def is_paused(self) -> bool:
        return self._resumed is not None

    def follow(self, pauses: Pauses, topics: Collection[str]) -> None:
        """The pauses have changed. `topics`: of which the queue has messages."""
        reason = pauses.reason_of_all(topics)
        if reason is not None and pauses.probes(topics):
            # It is pulled, and is blocked all the same.
            self._stall_reasons.blocked(self._queue, reason, source=OF_PROBE)
            self._resume()
            return
        if reason is None:
            self._resume()
        else:
            self._pause(reason)
        self._stall_reasons.moving(self._queue, source=OF_PROBE)

    def _pause(self, reason: str) -> None:
        if self._resumed is None:
            self._resumed = self._loop.create_future()
        self._stall_reasons.blocked(self._queue, reason, kind=reason)

    def _resume(self) -> None:
        # Of a retry queue some topics may still be paused: what it holds of others is counted anew.
        self._flow.look_again()
        if self._resumed is not None:
            self._resumed.set_result(None)
            self._resumed = None
            if self._stopped is None:
                self.moves()
            else:
                self.stops(*self._stopped)

    def stops(self, reason: Text, kind: str, patience: float) -> None:
        """The queue is blocked for this reason; it is told after `patience` seconds, and not during a pause."""
        self._stopped = reason, kind, patience
        if self._resumed is None:
            self._stall_reasons.blocked(self._queue, reason, kind=kind, patience=patience)

    def moves(self) -> None:
        """Only a pause may still stop the queue."""
        self._stopped = None
        if self._resumed is None:
            self._stall_reasons.moving(self._queue)

    async def passed(self) -> None:
        """Wait until the next request may be sent; room for its answer is reserved then."""
        while True:
            if self._resumed is not None:
                self._flow.release()
                await asyncio.shield(self._resumed)
            elif self._flow.may_pull():
                return
            else:
                self.stops(self._flow.reason, CONSEQUENCE, self._flow.patience)
                self.waits_for_room = True
                try:
                    await self._flow.room()
                finally:
                    self.waits_for_room = False
                self.moves()
                if self._resumed is None:
                    return
