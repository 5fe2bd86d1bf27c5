"""How a handler says what became of a message, other than by returning."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any


class Outcome(Exception):  # noqa: N818 - raised as well as returned
    """Raise or return one of its kinds."""


class Retry(Outcome):
    """Again later.

    Each Retry is an attempt. `after` seconds round up to the next delay level for a
    concurrent handler and are exact for an orderly one; None is RocketMQ's own ladder
    (10 s, 30 s, 1 min ...), or one second for an orderly handler.
    """

    def __init__(self, after: float | None = None) -> None:
        if after is not None and not isinstance(after, int | float):
            raise TypeError(f"Retry(after={after!r}): give seconds as a number, or None for the usual delays")
        if after is not None and not 0 <= after < inf:
            raise ValueError(f"Retry(after={after}): give seconds, 0 or more")
        super().__init__(after)
        self.after = after


class Skip(Outcome):
    """Done, on purpose without effect."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class DeadLetter(Outcome):
    """To the dead letters at once, with the reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Outcomes(dict[Any, Outcome]):
    """What became of single messages of a batch: message -> Retry, Skip or DeadLetter.

    Messages that it does not name are done.
    """

    def __init__(self, outcomes: Mapping[Any, Outcome] | None = None) -> None:
        super().__init__(outcomes or {})
