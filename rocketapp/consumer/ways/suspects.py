"""What becomes of messages that may have ended a process: each is handled alone, or is dead without being handled.

`suspect_line` says when each of them has its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rocketapp.consumer.crashes import Crashes
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.suspect_line import Suspected, SuspectLine
from rocketapp.consumer.workers.work import Completion
from rocketapp.model.outcome import DeadLetter
from rocketapp.state.crashes import Suspect
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message


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

    def dead_letter_of(self, message: Message, handler: Handler) -> DeadLetter | None:
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


async def turn_of(line: SuspectLine, owner: object, suspect: Message | None, ended: asyncio.Future[None]) -> bool:
    """Wait until a suspect has its turn, or until something else may start; False when `ended` is done before.

    A suspect that has its turn keeps it until `line.ended`.
    """
    loop = asyncio.get_running_loop()
    try:
        while suspect is not None or line.is_busy:
            turn: asyncio.Future[None] = loop.create_future()
            if suspect is not None:
                line.add(Suspected(owner, None, partial(_set, turn), suspect), _nothing)
            else:
                line.wait(owner, partial(_set, turn))
            await asyncio.wait([turn, ended], return_when=asyncio.FIRST_COMPLETED)
            if suspect is not None and turn.done():
                return True
            if ended.done():
                line.take_back(owner)
                return False
    except asyncio.CancelledError:
        line.take_back(owner, [] if suspect is None else [suspect])
        raise
    return True


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _nothing() -> None:
    """This owner asks again by itself."""
