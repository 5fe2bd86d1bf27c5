"""One failed message, and the queue in which it waits for its broker."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from rocketapp.consumer.handler import Handler
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.backoff import Backoff
from rocketapp.state.redelivery import Carried, Dead, Failure, Path, SendBack
from rocketapp.wire.record import Message

_FIRST_WAIT, _MOST_WAIT = 0.5, 10.0
"""Seconds until a message, or the broker that failed, is tried again."""


class Acknowledgement(Protocol):
    """Where a failed message came from, and how it is acknowledged once a broker has stored its copy."""

    @property
    def message_queue(self) -> MessageQueue: ...

    @property
    def closed(self) -> bool:
        """The queue was given up: its next owner gets the message again."""
        ...

    def finish(self, message: Message, /) -> object:
        """The message needs no further attempt."""
        ...


@dataclass(slots=True, eq=False)
class Job:
    """One failed message."""

    handler: Handler
    queue: Acknowledgement
    message: Message
    failure: Failure
    step: SendBack | Dead
    backoff: Backoff
    since: float
    """The loop's time of its failure."""
    settled: asyncio.Future[None] | None = None
    """Done when a broker has stored the copy."""
    path: Path = Path.DEAD_COPY
    """What the next round begins with."""
    unclear_since: float | None = None
    """The loop's time of the first unclear refusal."""
    is_late: bool = False
    """It has waited for long: its queue has a reason to stand still."""
    unknowns: int = 0
    """Attempts whose outcome is unknown."""
    carried: Carried = Carried.ALL
    """What its dead letter carries: less after each one that was too large."""


@dataclass(slots=True)
class RetryQueue:
    """Failed messages of one broker."""

    backoff: Backoff
    jobs: deque[Job] = field(default_factory=deque)
    later: dict[Job, asyncio.TimerHandle] = field(default_factory=dict)
    """Those that were refused, until they are tried again."""
    running: int = 0
    """Attempts in flight."""
    not_before: float = 0.0
    """The loop's time before which nothing is tried."""


def new_backoff() -> Backoff:
    """The waits of one message, or of a broker."""
    return Backoff(_FIRST_WAIT, _MOST_WAIT)
