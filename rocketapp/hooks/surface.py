"""What a plugin may do to an app: narrower than RocketApp, and the same for everyone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from rocketapp.model.event import Event
from rocketapp.model.outgoing import SendResult
from rocketapp.model.subscription import Subscription

T = TypeVar("T")


class Surface(Protocol):
    """One app, seen by its plugins."""

    @property
    def name(self) -> str:
        """The name given to RocketApp."""
        ...

    @property
    def version(self) -> str:
        """The user's version of the app; may be empty."""
        ...

    @property
    def subscriptions(self) -> Sequence[Subscription]:
        """Every enabled subscription, complete."""
        ...

    def options(self, table: type[T]) -> T:
        """The settings of a table: ConsumerConfig and the like, or what the plugin's `options` hook returned."""
        ...

    def every(self, seconds: float, call: Callable[[], None]) -> None:
        """Call this on the event loop every so many seconds while the app runs, and a last time when it has stopped."""
        ...

    def observe(self, event: Event) -> None:
        """Tell an event to everyone who observes."""
        ...

    async def publish(
        self,
        topic: str,
        body: Any,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        order_key: str | None = None,
        delay: float | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send one message; not before the app has started."""
        ...
