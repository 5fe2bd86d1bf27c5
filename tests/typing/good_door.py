"""Plugins as their authors write them, from the front door alone: they must check."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_type

from rocketapp import Message, MessageQueue, RocketApp, Router, SendResult
from rocketapp.model.outgoing import SendOptions
from rocketapp.plugin import (
    CLAIMED,
    DONE,
    Allocation,
    Answer,
    AppConfig,
    AppSnapshot,
    AsyncCall,
    Claim,
    ClientConfig,
    Codec,
    ConsumerConfig,
    HandlerStats,
    IdempotencyStore,
    LeaseState,
    MarkState,
    NewWriter,
    OffsetStore,
    Outgoing,
    Predicate,
    ProducerConfig,
    PublishCall,
    PublishWrapper,
    QueueSession,
    Sending,
    Subscription,
    Surface,
    SyncCall,
    Taken,
    Tasks,
    Wrapper,
    events,
    hookimpl,
    is_done,
    keys_of,
    option,
    outcomes_of,
)

audits = Router(group="audits")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorConfig:
    limit: float = option(100.0, "Most of one order.", least=0.0)
    topics: tuple[str, ...] = option((), "Where orders come from.")


class Door:
    """Every hook of a plugin."""

    @hookimpl
    def options(self) -> tuple[str, type[DoorConfig]]:
        return "door", DoorConfig

    @hookimpl
    def app_made(self, app: RocketApp) -> None:
        app.include(audits)
        assert_type(app.outgoing("orders", {"id": 1}, tag="paid"), Outgoing)

    @hookimpl
    def app_methods(self, app: RocketApp) -> Mapping[str, Callable[..., Any]]:
        return {"sink": app.subscribe}

    @hookimpl
    def observe_events(self, app: Surface) -> events.Observe:
        assert_type(app.options(DoorConfig), DoorConfig)
        return lambda event: print(event.reason) if isinstance(event, events.Released) else None

    @hookimpl
    def publish_wrapper(self, app: Surface) -> PublishWrapper:
        def wrap(call: PublishCall) -> PublishCall:
            async def stamping(sending: Sending) -> Sequence[SendResult]:
                stamped = [replace(one, properties={**one.properties, "app": app.name}) for one in sending.messages]
                return await call(replace(sending, messages=stamped))

            return stamping

        return wrap

    @hookimpl
    def sink(self, subscription: Subscription) -> NewWriter | None:
        return Shelf if subscription.topic == "rows" else None

    @hookimpl
    def handler_wrapper(self, subscription: Subscription) -> Wrapper | None:
        def for_sync(call: SyncCall) -> SyncCall:
            return lambda message: call(message) if is_done(None, subscription) else None

        def for_async(call: AsyncCall) -> AsyncCall:
            async def counting(message: Message) -> object:
                return outcomes_of(await call(message), [message])

            return counting

        return None if subscription.batch else Wrapper(for_sync=for_sync, for_async=for_async)

    @hookimpl
    def message_filter(self, subscription: Subscription) -> Predicate | None:
        make_key = keys_of(subscription)
        return lambda message: make_key(message) != ""

    @hookimpl
    def argument_provider(self, kind: Any) -> Callable[[], Any] | None:
        return DoorConfig if kind is DoorConfig else None

    @hookimpl
    def payload_codec(self) -> Codec | None:
        return Numbers()

    @hookimpl
    def idempotency_store(self, app: Surface) -> IdempotencyStore | None:
        return Marks()

    @hookimpl
    def allocation_strategy(self) -> Allocation:
        return Lonely()

    @hookimpl
    def offset_store(self, app: Surface) -> OffsetStore | None:
        return Offsets() if app.name == "audits" else None

    @hookimpl
    def app_startup(self, app: Surface) -> Awaitable[None] | None:
        app.every(60.0, lambda: print(app.snapshot()))
        assert_type(app.options(ConsumerConfig).retries, int)
        assert_type((app.options(AppConfig), app.options(ClientConfig)), tuple[AppConfig, ClientConfig])
        assert_type(app.options(ProducerConfig).send_timeout, float)
        return self._warm_up(app)

    @hookimpl
    def app_shutdown(self, app: Surface) -> Awaitable[None] | None:
        return None

    async def _warm_up(self, app: Surface) -> None:
        tasks, options = Tasks(), SendOptions(tag="new", keys=["1"])
        tasks.start(app.publish("audits", b"1", delay=5), "a first message")
        assert_type(await app.publish("audits", b"1", **options), SendResult)
        await tasks.close()


def observe(event: events.Event) -> None:
    match event:
        case events.Handled():
            assert_type(event.topic, str)
        case events.Retried():
            assert_type((event.error, event.delay), tuple[str, float])
        case events.DeadLettered():
            assert_type(event.reason, str)
        case _:
            print(event)


def look(snapshot: AppSnapshot) -> None:
    for group in snapshot.groups:
        assert_type([handler.stats for handler in group.handlers], list[HandlerStats])
        for one in group.queues:
            assert_type(one.queue, MessageQueue)
            assert_type(one.lease, LeaseState)


class Numbers:
    """A codec."""

    content_type = "application/numbers"

    def claims(self, kind: type[Any]) -> bool:
        return kind is int

    def decoder(self, kind: Any) -> Callable[[bytes], Any] | None:
        return int.from_bytes if kind is int else None

    def encode(self, body: Any) -> bytes:
        return int(body).to_bytes(8)


class Marks:
    """A store."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
        running = [Answer(MarkState.RUNNING, claim.holder, 5.0) for claim in claims if claim.key == "1"]
        return running or [CLAIMED for _ in claims] or [DONE]

    async def renew(self, claims: Sequence[Claim], *, lease: float) -> None: ...

    async def done(self, keys: Sequence[str], *, expiry: float) -> None: ...

    async def release(self, claims: Sequence[Claim]) -> None: ...


class Lonely:
    """An allocation strategy."""

    name = "lonely"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        return queues if members == [me] else ()


class Offsets:
    """A store of offsets."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def take(self, group: str, queue: MessageQueue) -> Taken:
        return Taken(1, None)

    async def read(self, group: str, queue: MessageQueue) -> int | None:
        return queue.queue_id

    async def write(self, group: str, queue: MessageQueue, offset: int, epoch: int) -> bool:
        return epoch == 1


class Shelf:
    def __init__(self, session: QueueSession) -> None:
        self._session = session

    def take(self, messages: Sequence[Message]) -> None:
        self._session.done(messages)

    async def drain(self) -> None: ...

    def discard(self) -> None: ...
