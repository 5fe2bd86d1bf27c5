"""Messages that may have ended a process are handled one at a time, while nothing else of their group is started.

So the next death has one cause. A suspect that is guilty for certain, and has no attempt left, becomes a dead letter
without being handled again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rocketapp.consumer.crashes import Crashes
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.workers.work import Completion
from rocketapp.model.outcome import DeadLetter
from rocketapp.state.crashes import Suspect
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message


class Suspected(NamedTuple):
    """One suspect on its way."""

    owner: object
    """Its delivery."""
    workers: Any
    start: Callable[[], None]
    """Hands it to its workers."""
    message: Message


class SuspectLine:
    """The suspects of one group."""

    def __init__(self) -> None:
        self._waiting: deque[Suspected] = deque()
        self._running: Suspected | None = None
        self._then: dict[object, Callable[[], None]] = {}
        self._is_starting = False

    def __repr__(self) -> str:
        return f"<SuspectLine: {len(self._waiting)} wait>"

    @property
    def is_busy(self) -> bool:
        """Whether others have to wait."""
        return self._running is not None

    def add(self, suspected: Suspected, then: Callable[[], None]) -> None:
        """Handle it when those before it are through; `then` is called when the line is empty, once per owner."""
        self._waiting.append(suspected)
        self._then[suspected.owner] = then
        self._next()

    def wait(self, owner: object, then: Callable[[], None]) -> None:
        """Call `then` when the line is empty, once per owner."""
        self._then[owner] = then

    def ended(self, message: Message) -> None:
        """Its call has ended."""
        if self._running is not None and self._running.message is message:
            self._running = None
            self._next()

    def take_back(self, owner: object) -> list[tuple[Any, list[Message]]]:
        """Its queue is given up: those of its messages that were not handed to workers. The running one may end."""
        self._then.pop(owner, None)
        taken = [(one.workers, [one.message]) for one in self._waiting if one.owner is owner]
        self._waiting = deque(one for one in self._waiting if one.owner is not owner)
        if self._running is not None and self._running.owner is owner:
            self._running = None  # it may have been withdrawn before it was started
            self._next()
        return taken

    def _next(self) -> None:
        if self._is_starting:
            return  # the loop below goes on
        self._is_starting = True
        while self._running is None and self._waiting:
            self._running = self._waiting.popleft()
            self._running.start()
        self._is_starting = False
        if self._running is None:
            then, self._then = self._then, {}
            for call in then.values():
                call()


class Alone:
    """The completion of one suspect."""

    def __init__(self, completion: Completion, ended: Callable[[], None]) -> None:
        self._completion, self._ended = completion, ended

    def done(self, message: Message) -> None:
        """Acknowledge it."""
        self._completion.done(message)
        self._ended()

    def done_all(self, messages: Sequence[Message]) -> None:
        """Acknowledge it."""
        self._completion.done_all(messages)
        self._ended()

    def judge(self, item: Any, result: object, raised: bool) -> None:
        """Decide about it."""
        self._completion.judge(item, result, raised)
        self._ended()


class Suspicion:
    """The suspects of one session of one queue that have not come yet."""

    def __init__(self, crashes: Crashes, group: str, process_queue: ProcessQueue[Message]) -> None:
        self._crashes, self._group, self._queue = crashes, group, process_queue.message_queue
        self._open = crashes.suspects(group, self._queue, process_queue.commit_offset)

    def __bool__(self) -> bool:
        return bool(self._open)

    def __contains__(self, message: Message) -> bool:
        return message.offset in self._open

    def sentence(self, message: Message, handler: Handler) -> DeadLetter | None:
        """Count the deaths as attempts; the outcome of a message that is guilty and has no attempt left."""
        suspect = self._open[message.offset]
        retries = handler.subscription.retries
        is_guilty = suspect.is_guilty(reconsume_times=message.reconsume_times, retries=retries)
        # The last death is the attempt that fails now.
        message.reconsume_times += suspect.crashes - is_guilty
        return DeadLetter(reason(suspect)) if is_guilty else None

    def settled(self, offset: int) -> None:
        """It did not end the process, or it is dead."""
        if self._open.pop(offset, None) is not None:
            self._crashes.settled(self._group, self._queue, offset)

    def settled_below(self, offset: int) -> None:
        """The same for all below this offset."""
        for one in [one for one in self._open if one < offset]:
            self.settled(one)


def reason(suspect: Suspect) -> str:
    """Why it is a dead letter."""
    times = "once" if suspect.crashes == 1 else f"{suspect.crashes} times"
    return f"the process died while handling it, {times}"
