"""The type of the one upward call: what a consumer knows of the functions it feeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rocketapp.model.subscription import Start, Subscription, SubscriptionData


@dataclass(frozen=True, slots=True)
class Handler:
    """One function behind its whole chain of wrappers, and what was declared for it.

    `call` takes one Message, or a list of them when `subscription.batch` is set. It
    returns an awaitable when `subscription.is_async`; otherwise it blocks and is run
    in a thread. Whatever it returns means done, except Retry, Skip, DeadLetter and
    Outcomes, which may be returned as well as raised.
    """

    subscription: Subscription
    call: Callable[[Any], Any]

    def __post_init__(self) -> None:
        if self.subscription.batch is not None:
            object.__setattr__(self, "call", _with_own_list(self.call))

    @property
    def name(self) -> str:
        return self.subscription.handler_name


def _with_own_list(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A handler may pop what it has done from its list; what is settled afterwards is the batch as it was."""
    return lambda messages: call(messages.copy())


@dataclass(frozen=True, slots=True)
class ConsumedTopic:
    """One topic of a group with every handler that wants a part of it."""

    topic: str
    orderly: bool
    start: Start
    retries: int
    handlers: tuple[Handler, ...]
    data: SubscriptionData
    """The union of the handlers' tags, as brokers hear it."""
