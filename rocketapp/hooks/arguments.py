"""What a plugin may give for an argument beside a plain function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rocketapp.model.subscription import Subscription


@dataclass(frozen=True, slots=True)
class CheckedArgument:
    """An answer to `argument_provider` that not every handler can have.

    provide: gives the value, per message. problem: called once per handler while the app starts; returns why this one
    cannot have the argument, with what to write instead, or None. A problem refuses the start.
    """

    provide: Callable[[], Any]
    problem: Callable[[Subscription], str | None]

    def __call__(self) -> Any:
        return self.provide()
