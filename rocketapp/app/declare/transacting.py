"""`transaction`, for RocketApp, Router and Client alike: what is written goes to `_take_transaction`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, overload

from rocketapp.app.call.transaction import Transaction
from rocketapp.app.declare.calling import called_as
from rocketapp.app.places import place_of_call
from rocketapp.errors import SetupError
from rocketapp.model.topic import Topic

T = TypeVar("T")


class LocalPart(Protocol):
    """Makes a function the local part of a transaction; its one argument is what is published."""

    def __call__(self, function: Callable[[T], Awaitable[bool]], /) -> Transaction[T]: ...


class Transacting(ABC):
    """Where transactions are declared."""

    @overload
    def transaction(
        self, topic: Topic[T], *, cluster: str = ""
    ) -> Callable[[Callable[[T], Awaitable[bool]]], Transaction[T]]: ...
    @overload
    def transaction(self, topic: str, *, cluster: str = "") -> LocalPart: ...

    @called_as('transaction takes a topic: write @app.transaction("the-topic")')
    def transaction(self, topic: str | Topic[Any], *, cluster: str = "") -> Any:
        """Make an async function the local part of a transaction that a message belongs to.

        The function takes what is published and says True (consumers get the message) or False (they never see it).
        `await place(order, tag="paid")` sends the message and calls the function. `@place.check` stands above the async
        function that says how a transaction has ended, when the broker was not told: it gets the payload, or the
        Message, and may say None: not known yet.
        topic: a str gets the router's prefix, if there is a router.
        cluster: one of `RocketApp(clusters=...)`, or "" for the unnamed one.

        Raises SetupError for a second one of the same topic: a broker that asks names the topic alone.
        """
        place = place_of_call()
        if callable(topic):
            raise SetupError(place, 'transaction needs a topic: write @app.transaction("the-topic")')

        def decorate(function: Callable[[Any], Awaitable[bool]]) -> Transaction[Any]:
            made = Transaction(topic, function, cluster=cluster, place=place)
            self._take_transaction(made, "")
            return made

        return decorate

    @abstractmethod
    def _take_transaction(self, transaction: Transaction[Any], prefix: str) -> None:
        """Accept one, whose topic, if it is a str, has this prefix here; or raise SetupError."""
