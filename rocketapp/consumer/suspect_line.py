"""Messages that may have ended a process have their turn one at a time, while nothing else of the process is started.

So the next death has one cause, whichever groups and ways of consuming the suspects belong to.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.record import Message

PATIENCE = 30.0
"""Seconds for which others wait for one suspect. Then they go on beside it; other suspects wait until it has ended."""


class Suspected(NamedTuple):
    """One suspect on its way."""

    owner: object
    """Its delivery."""
    workers: Any
    start: Callable[[], None]
    """Hands it to its workers."""
    message: Message


class SuspectLine:
    """The suspects of one process. For its event loop only."""

    def __init__(self) -> None:
        self._waiting: deque[Suspected] = deque()
        self._running: Suspected | None = None
        self._then: dict[object, Callable[[], None]] = {}
        self._watchers: dict[object, Callable[[], None]] = {}
        self._is_starting = self._is_late = False
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<SuspectLine: {len(self._waiting)} wait>"

    @property
    def is_busy(self) -> bool:
        """Whether others have to wait."""
        return self._running is not None and not self._is_late

    @property
    def queue(self) -> MessageQueue | None:
        """Where the one that has its turn comes from."""
        return None if self._running is None else self._running.message.queue

    @property
    def reason(self) -> str:
        """Why others wait, in words; empty when they do not."""
        if not self.is_busy:
            return ""
        count = len(self._waiting) + 1
        if count == 1:
            return "waits while 1 message that may have ended the process is handled alone"
        return f"waits while {count} messages that may have ended the process are handled one at a time"

    def add(self, suspected: Suspected, then: Callable[[], None]) -> None:
        """Handle it when those before it are through; `then` is called when others may go on, once per owner."""
        self._waiting.append(suspected)
        self._then[suspected.owner] = then
        self._next()

    def wait(self, owner: object, then: Callable[[], None]) -> None:
        """Call `then` when others may go on, once per owner."""
        self._then[owner] = then

    def watch(self, owner: object, begins: Callable[[], None]) -> None:
        """Call `begins` before each suspect starts, until its owner unwatches."""
        self._watchers[owner] = begins

    def unwatch(self, owner: object) -> None:
        """Nothing happens if it did not watch."""
        self._watchers.pop(owner, None)

    def ended(self, message: Message) -> None:
        """Its call has ended."""
        if self._running is not None and self._running.message is message:
            self._end()

    def take_back(self, owner: object, withdrawn: Sequence[Message] = ()) -> list[tuple[Any, list[Message]]]:
        """Its queue is given up: those of its messages that were not handed to workers.

        `withdrawn`: what was taken back from workers. A suspect that they have started goes on, and has its turn.
        """
        self._then.pop(owner, None)
        taken = [(one.workers, [one.message]) for one in self._waiting if one.owner is owner]
        self._waiting = deque(one for one in self._waiting if one.owner is not owner)
        running = self._running
        if running is not None and running.owner is owner and any(each is running.message for each in withdrawn):
            self._end()
        return taken

    def _end(self) -> None:
        self._running = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._next()

    def _next(self) -> None:
        if self._is_starting:
            return  # the loop below goes on
        self._is_starting = True
        while self._running is None and self._waiting:
            self._running, self._is_late = self._waiting.popleft(), False
            self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._let_others)
            for begins in list(self._watchers.values()):
                begins()
            self._running.start()
        self._is_starting = False
        if self._running is None:
            self._call_others()

    def _let_others(self) -> None:
        self._is_late = True
        self._call_others()

    def _call_others(self) -> None:
        then, self._then = self._then, {}
        for call in then.values():
            call()
