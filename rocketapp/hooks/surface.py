"""What a plugin may do to an app: narrower than RocketApp, and the same for everyone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

if TYPE_CHECKING:
    from datetime import datetime

    from rocketapp.hooks.idempotency import IdempotencyStore
    from rocketapp.model.event import Event
    from rocketapp.model.outgoing import PublishOptions, SendResult
    from rocketapp.model.snapshot import AppSnapshot
    from rocketapp.model.subscription import Subscription
    from rocketapp.wire.record import Message

T = TypeVar("T")


class Surface(Protocol):
    """One app, seen by its plugins."""

    @property
    def name(self) -> str:
        """The name given to RocketApp."""

    @property
    def version(self) -> str:
        """The user's version of the app; may be empty."""

    @property
    def subscriptions(self) -> Sequence[Subscription]:
        """Every enabled subscription, complete."""

    def options(self, table: type[T]) -> T:
        """The settings of a table: ConsumerConfig and the like, or what the plugin's `options` hook returned."""

    def now(self) -> datetime:
        """The time of day by the app's clock, in UTC: comparable with the `born_at` and `stored_at` of messages.

        Under TestApp and `call` it is virtual, as these are; a container may replace the clock.
        """

    def every(self, seconds: float, call: Callable[[], None]) -> None:
        """Call this on the event loop every `seconds` while the app runs, and a last time when it has stopped.

        Raises TypeError for an async function, ValueError for seconds that are not more than 0.
        """

    def snapshot(self) -> AppSnapshot:
        """What the app is doing now: its groups, queues, counters. On the event loop; without groups before the start.

        It is made anew at each call, which takes some microseconds per queue.
        """

    def observe(self, event: Event) -> None:
        """Pass an event to every observer."""

    def idempotency_store(self) -> IdempotencyStore | None:
        """What the plugins answer to the hook of that name, asked at the first call; not opened."""

    def reader(self, kind: Any, content_type: str | None = None) -> Callable[[Message], Any]:
        """What makes a payload of a message, as for a handler that asks for `kind`: by its content type and version.

        `content_type`: of bodies that do not say; None leaves that to the codecs, as for a handler. Asked at the start
        or later. The callable raises ValueError, which says what is wrong with a body. Raises TypeError for a type that
        no body becomes, ValueError for a content type without a codec for it.
        """

    async def publish(self, topic: str, body: Any, **options: Unpack[PublishOptions]) -> SendResult:
        """Send one message, as `RocketApp.publish`; not before the app has started."""
