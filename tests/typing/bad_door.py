"""Plugins that their authors get wrong: each marked line has exactly the error it is marked with."""

from __future__ import annotations

from collections.abc import Sequence

from rocketapp import Breaker, Message, Policy, RocketApp
from rocketapp.plugin import (
    Answer,
    Claim,
    Codec,
    IdempotencyStore,
    NewWriter,
    Predicate,
    PublishWrapper,
    QueueSession,
    QueueWriter,
    Sending,
    Subscription,
    Surface,
    Wrapper,
    events,
    hookimpl,
    option,
)

TEXT: int = option("text", "A number.")  # E: assignment
option(5)  # E: call-arg
Wrapper(for_sync=5)  # E: arg-type
Wrapper(lambda call: call)  # E: call-arg
Policy(breaker=Breaker(failures="5"))  # E: arg-type


@hookimpl
def observe_events(app: Surface) -> events.Observe:
    app.subscribe("orders")  # E: attr-defined
    app.options("door").limit()  # E: arg-type
    app.every("5", print)  # E: arg-type
    return lambda event, more: print(more, event)  # E: misc


def observe(event: events.Event) -> None:
    event.reason()  # E: attr-defined
    if isinstance(event, events.Handled):
        event.topics()  # E: attr-defined


def handler_wrapper(subscription: Subscription) -> Wrapper | None:
    subscription.retries = 5  # E: misc
    return lambda call: call  # E: return-value


def message_filter(subscription: Subscription) -> Predicate:
    return lambda message: message.tags == "paid"  # E: attr-defined


def publish_wrapper(app: Surface) -> PublishWrapper:
    async def stamping(sending: Sending) -> None: ...

    return lambda call: stamping  # E: return-value


class Shelf:
    def take(self, messages: Sequence[Message]) -> None: ...

    async def drain(self) -> None: ...


def sink(session: QueueSession) -> QueueWriter[Message]:
    session.done(5)  # E: arg-type
    session.failed("message", ValueError())  # E: arg-type
    return Shelf()  # E: return-value


new_writer: NewWriter = Shelf  # E: assignment


class Numbers:
    content_type = "application/numbers"

    def claims(self, kind: type[int]) -> bool:
        return True

    def encode(self, body: int) -> bytes:
        return bytes(body)


codec: Codec = Numbers()  # E: assignment


class Store:
    async def open(self) -> None: ...

    async def claim(self, claims: Sequence[Claim]) -> Sequence[Answer]:
        return []


store: IdempotencyStore = Store()  # E: assignment
app = RocketApp("shop", plugins=Store)  # E: arg-type
