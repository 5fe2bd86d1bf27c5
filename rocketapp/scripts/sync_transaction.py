"""Transactions of a SyncClient: its functions are plain ones, and run in threads beside the client's loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar, Unpack

from rocketapp.app.call.transaction import Transaction
from rocketapp.app.places import is_async, place_of_function
from rocketapp.errors import SetupError
from rocketapp.model.outgoing import SendResult
from rocketapp.model.publish_options import TransactionOptions

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., bool | None])
Run = Callable[[Coroutine[Any, Any, SendResult | None]], SendResult | None]
"""Runs a call on the client's loop, and blocks until it has ended."""


class SyncTransaction(Generic[T]):
    """What `@client.transaction` of a SyncClient makes of a function. Calling it sends the message, and blocks."""

    __slots__ = ("_made", "_run")

    def __init__(self, made: Transaction[T], run: Run) -> None:
        self._made, self._run = made, run

    def __repr__(self) -> str:
        return f"<SyncTransaction {self._made.name} of {self._made.topic_name}>"

    def __call__(self, payload: T, **options: Unpack[TransactionOptions]) -> SendResult | None:
        """Send the message so that no consumer sees it, call the function, then commit or roll back.

        As with `Client.transaction`. The function runs in another thread, with the context variables of this one.
        """
        return self._run(self._made(payload, **options))

    def check(self, function: C) -> C:
        """Say how the transaction of a message has ended: True, False, or None when that is not known yet.

        A plain function that takes the payload or the Message; it runs in a thread. The function itself is returned.
        Raises SetupError for a second one, and for a function that cannot be asked.
        """
        self._made.check(in_thread(function, "a check", self._made.place))
        return function


class SyncLocalPart(Protocol):
    """Makes a function the local part of a transaction; its one argument is what is published."""

    def __call__(self, function: Callable[[T], bool], /) -> SyncTransaction[T]: ...


def in_thread(function: Callable[..., Any], what: str, place: str) -> Callable[..., Any]:
    """The same as an async function. Raises SetupError for one that is async already."""
    if not callable(function) or is_async(function):
        problem = f"{what} of a SyncClient is a plain function: make {function!r} a `def`, or use Client"
        raise SetupError(place_of_function(function, place), problem)

    @functools.wraps(function)
    async def call(argument: Any) -> Any:
        return await asyncio.to_thread(function, argument)

    return call
