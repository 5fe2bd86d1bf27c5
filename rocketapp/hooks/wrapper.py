"""What a plugin puts around a handler.

A sync handler and its wrappers run in a thread, an async one on the event loop. The
two are different code, so a wrapper says which it has; one that lacks the kind it is
asked for stops the start with an error and never runs silently on the wrong side.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from rocketapp.errors import RocketAppError
from rocketapp.wire.message import Message

SyncCall = Callable[[Any], Any]
"""Takes one Message (a list of them for a batch and for a polled call), blocks, and returns the outcome."""
AsyncCall = Callable[[Any], Awaitable[Any]]
"""The same, awaited."""
Predicate = Callable[[Message], bool]
"""Takes one Message; False means: done, and not for this handler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """Builds the callable that stands in front of the next one.

    Each half receives the next callable once, at start, and returns the one that is
    called per message. What it raises or returns is judged like a handler's.

    `polled`: it also stands around polled handlers. They are called with a list of messages that is empty when the call
    begins and grows as the handler pulls; the next callable needs the same object. Otherwise it is left out there.
    """

    for_sync: Callable[[SyncCall], SyncCall] | None = None
    for_async: Callable[[AsyncCall], AsyncCall] | None = None
    polled: bool = False

    def __post_init__(self) -> None:
        if self.for_sync is None and self.for_async is None:
            raise WrapperError

    def kinds(self) -> str:
        """Which handlers it can stand in front of, in words."""
        if self.for_sync is None:
            return "async"
        return "sync" if self.for_async is None else "sync and async"


class WrapperError(RocketAppError, ValueError):
    """A wrapper without a single half."""

    def __str__(self) -> str:
        return "a Wrapper needs for_sync=, for_async= or both; return None from the hook to decline"
