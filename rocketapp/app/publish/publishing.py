"""Publishing through the producers of a running app: the one way of RocketApp, Context and Publisher arguments.

A publish happens where it is awaited, or with `publish_sync` on the app's loop, in the caller's context: what the
caller has in context variables is there for whatever stands around the producer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, Unpack

from rocketapp.app.payloads.payloads import Payloads
from rocketapp.app.places import place_of_call
from rocketapp.app.publish.messages import PLAIN, check_names, outgoing, timeout_of
from rocketapp.errors import NotRecalled, SendUnknown, SetupError
from rocketapp.model.outgoing import Outgoing, SendResult
from rocketapp.model.publish_options import MessageOptions, PublishOptions, SendOptions, TransactionOptions
from rocketapp.model.topic import Topic

if TYPE_CHECKING:
    from rocketapp.producer.producer import Producer
    from rocketapp.producer.transactions import Transactions
    from rocketapp.wire.record import Message

T = TypeVar("T")
R = TypeVar("R")
CORRELATION_ID: Final = "rocketapp.correlation_id"
"""The property that messages have in common which follow from one first message: its message id, or a given one."""
_ANSWER_GRACE = 5.0
"""Seconds that `publish_sync` waits beyond the send's own limit, for a loop that is busy."""


class Sender(Protocol):
    """A producer, as far as an app needs it."""

    async def send(self, message: Outgoing, *, timeout: float | None = None) -> SendResult: ...

    async def send_many(self, messages: Sequence[Outgoing]) -> list[SendResult]: ...

    async def send_one_way(self, message: Outgoing) -> None: ...


class Replying(Protocol):
    """What sends replies."""

    async def reply(
        self, request: Message, body: bytes, properties: Mapping[str, str], *, timeout: float | None = None
    ) -> None: ...


class Running(Protocol):
    """A running app, as far as publishing needs it."""

    loop: asyncio.AbstractEventLoop
    send_timeout: float

    def sender(self, cluster: str) -> Sender:
        """The producer of a cluster. Raises SetupError when there is none."""
        ...

    def producer(self, cluster: str) -> Producer:
        """What asks a cluster, and ends transactions there. Raises SetupError for a cluster without a producer."""
        ...

    def replying(self, cluster: str) -> Replying:
        """What answers requests of a cluster. Raises SetupError for a cluster without a producer."""
        ...

    def options(self, kind: type[Any]) -> Any:
        """A table of the settings in use, by its class. Raises SetupError for an unknown one."""
        ...


class Publishing:
    """A Publisher (see there) over a running app."""

    __slots__ = ("_cluster", "_origin", "_payloads", "_running")

    def __init__(
        self,
        running: Callable[[], Running],
        cluster: str = "",
        origin: Message | None = None,
        *,
        payloads: Payloads = PLAIN,
    ) -> None:
        """`running`: gives the running app, or raises SetupError while it does not run. `cluster`: for calls that
        name none. `origin`: the message that what is published follows. `payloads`: encodes bodies.
        """
        self._running, self._cluster, self._origin, self._payloads = running, cluster, origin, payloads

    def __repr__(self) -> str:
        return f"<Publishing to cluster {self._cluster!r}, following {self._origin!r}>"

    def to(self, cluster: str) -> Publishing:
        """The same for another cluster."""
        return Publishing(self._running, cluster, self._origin, payloads=self._payloads)

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running app's. Raises SetupError while it does not run."""
        return self._running().loop

    def options(self, kind: type[Any]) -> Any:
        """A table of the running app's settings. Raises SetupError for an unknown class."""
        return self._running().options(kind)

    def following(self, origin: Message) -> Publishing:
        """The same for what a handler publishes while it handles `origin`."""
        return Publishing(self._running, self._cluster, origin, payloads=self._payloads)

    async def publish(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> SendResult:
        """See Publisher."""
        check_names("publish", options, PublishOptions)
        message, timeout = self._outgoing(topic, body, options), timeout_of(options)
        return await self._sender_here(options).send(message, timeout=timeout)

    async def publish_many(
        self, topic: str | Topic[T], items: Iterable[T], **options: Unpack[SendOptions]
    ) -> list[SendResult]:
        """See Publisher."""
        check_names("publish_many", options, SendOptions)
        if isinstance(items, str | bytes | bytearray | Mapping) or not isinstance(items, Iterable):
            raise TypeError(f"publish_many(items={type(items).__name__}): give several bodies, or one to publish")
        messages = [self._outgoing(topic, body, options) for body in items]
        return await self._sender_here(options).send_many(messages)

    async def publish_one_way(self, topic: str | Topic[T], body: T, **options: Unpack[SendOptions]) -> None:
        """See Publisher."""
        check_names("publish_one_way", options, SendOptions)
        await self._sender_here(options).send_one_way(self._outgoing(topic, body, options))

    def publish_sync(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> SendResult:
        """See Publisher."""
        check_names("publish_sync", options, PublishOptions)
        self._must_not_block("publish_sync", "publish")
        message, timeout = self._outgoing(topic, body, options), timeout_of(options)
        return self._blocking(self._sender(options).send(message, timeout=timeout), message.topic, timeout)

    async def request(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> Message:
        """See RocketApp.request."""
        check_names("request", options, PublishOptions)
        message, timeout = self._outgoing(topic, body, options), timeout_of(options)
        return await self._request(message, timeout, self._sender_here(options), self._cluster_of(options))

    def request_sync(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> Message:
        """See RocketApp.request_sync."""
        check_names("request_sync", options, PublishOptions)
        self._must_not_block("request_sync", "request")
        message, timeout = self._outgoing(topic, body, options), timeout_of(options)
        asking = self._request(message, timeout, self._sender(options), self._cluster_of(options))
        return self._blocking(asking, message.topic, timeout)

    async def _request(self, message: Outgoing, timeout: float | None, sender: Sender, cluster: str) -> Message:
        loop, running = asyncio.get_running_loop(), self._running()
        timeout = timeout or running.send_timeout
        requests, end = running.producer(cluster).requests, loop.time() + timeout
        await requests.ready(message.topic, timeout / 2)
        with requests.waiting(message.topic, timeout=timeout, deadline=end) as request:
            sent = await sender.send(replace(message, marks=request.marks), timeout=max(end - loop.time(), 0.001))
            return await request.reply(sent.message_id, message.keys)

    async def reply(self, request: Message, value: Any) -> None:
        """Answer a request with this value, encoded as the body of a message is. Raises SendRefused, SendUnknown."""
        body, properties = self._payloads.encode(value, None)
        await self._running().replying(self._cluster).reply(request, body, properties)

    def reply_sync(self, request: Message, value: Any) -> None:
        """`reply` for sync handlers, in their threads."""
        self._blocking(self.reply(request, value), request.topic, None)

    async def recall(
        self, topic: str | Topic[Any], handle: str, *, cluster: str | None = None, timeout: float | None = None
    ) -> None:
        """See RocketApp.recall."""
        name, limit = self._recall_of(topic, handle, timeout)
        self._sender_here({"cluster": cluster})
        await self._running().producer(cluster or "").recalls.recall(name, handle, limit)

    def recall_sync(
        self, topic: str | Topic[Any], handle: str, *, cluster: str | None = None, timeout: float | None = None
    ) -> None:
        """See RocketApp.recall_sync."""
        self._must_not_block("recall_sync", "recall")
        name, limit = self._recall_of(topic, handle, timeout)
        recalling = self._running().producer(cluster or "").recalls.recall(name, handle, limit)
        try:
            self._blocking(recalling, name, limit)
        except SendUnknown as error:
            raise NotRecalled(name, error.reason, perhaps=True) from None

    def _recall_of(self, topic: str | Topic[Any], handle: str, timeout: float | None) -> tuple[str, float]:
        if not isinstance(handle, str):
            raise TypeError(f"handle={handle!r}: give the recall_handle of a SendResult, which only a timer gives")
        limit = timeout_of({"timeout": timeout}) or self._running().send_timeout
        return (topic.name if isinstance(topic, Topic) else topic), limit

    def _must_not_block(self, call: str, other: str) -> None:
        """Raises SetupError in the app's event loop, which would wait for itself."""
        if running_loop() is self._running().loop:
            raise SetupError(
                place_of_call(), f"{call} would block the event loop for ever: use `await` with `{other}` here"
            )

    def _blocking(self, call: Coroutine[Any, Any, R], topic: str, timeout: float | None) -> R:
        """What a call gives that takes `timeout` seconds at most in the app's loop, for a thread that waits."""
        running = self._running()
        # The callback that this leaves with the loop has a copy of this thread's context, and so has its task.
        future = asyncio.run_coroutine_threadsafe(call, running.loop)
        limit = (running.send_timeout if timeout is None else timeout) + _ANSWER_GRACE
        try:
            return future.result(limit)
        except concurrent.futures.TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise SendUnknown(topic, f"the event loop did not answer within {limit:g} s") from None

    async def begin(
        self, topic: str | Topic[Any], body: Any, options: TransactionOptions
    ) -> tuple[SendResult, Callable[[bool], Awaitable[None]], Transactions]:
        """Send a half message. It, what commits (True) or rolls back its transaction, and the transactions."""
        check_names("a transaction", options, TransactionOptions)
        running = self._running()
        message, timeout = self._outgoing(topic, body, options), timeout_of(options) or running.send_timeout
        half = await self._sender_here({}).send(replace(message, half=True), timeout=timeout)
        transactions = running.producer(self._cluster).transactions

        def end(commit: bool) -> Awaitable[None]:
            return transactions.end(half, commit=commit, timeout=timeout, tag=message.tag, keys=message.keys)

        return half, end, transactions

    def _outgoing(self, topic: str | Topic[Any], body: Any, options: MessageOptions) -> Outgoing:
        topic = topic.name_for(body) if isinstance(topic, Topic) else topic
        message = outgoing(topic, body, options, self._payloads)
        origin = self._origin
        if origin is None or CORRELATION_ID in message.properties:
            return message
        return replace(message, properties={**message.properties, CORRELATION_ID: correlation_id(origin)})

    def _sender_here(self, options: SendOptions) -> Sender:
        """Raises SetupError in another event loop than the app's: there nothing that is awaited would ever come."""
        if running_loop() is not self._running().loop:
            raise SetupError(
                place_of_call(), "the app runs in another event loop: publish there, or with publish_sync from a thread"
            )
        return self._sender(options)

    def _sender(self, options: SendOptions) -> Sender:
        return self._running().sender(self._cluster_of(options))

    def _cluster_of(self, options: SendOptions) -> str:
        # None is the unnamed cluster, also where another one is the default.
        return options.get("cluster", self._cluster) or ""


def correlation_id(message: Message) -> str:
    """What a message has in common with those that follow it."""
    return message.properties.get(CORRELATION_ID) or message.message_id


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that this thread runs, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
