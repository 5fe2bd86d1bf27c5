"""Publishing through the producers of a running app or client: one surface, of everything that publishes.

A publish happens where it is awaited, or with `publish_sync` on the app's loop, in the caller's context: what the
caller has in context variables is there for whatever stands around the producer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar, Unpack

from rocketapp.app.payloads import Payloads
from rocketapp.app.places import place_of_call
from rocketapp.errors import NotRecalled, SendUnknown, SetupError
from rocketapp.hooks.hook_types import PublishCall, Sending
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import DELAY_SECONDS, delay_level, delay_level_at_least
from rocketapp.model.numbers import MOST_SECONDS, is_number
from rocketapp.model.outgoing import (
    MessageOptions,
    Outgoing,
    PublishOptions,
    SendOptions,
    SendResult,
    TransactionOptions,
)
from rocketapp.model.topic import Topic
from rocketapp.wire.record import Message

if TYPE_CHECKING:
    from rocketapp.producer.producer import Producer
    from rocketapp.producer.transactions import Transactions


_QUEUES = "a MessageQueue, a function that chooses one of several, or None"
PLAIN = Payloads()
"""Without plugins and upcasters."""


def outgoing(topic: str, body: Any, options: MessageOptions, payloads: Payloads = PLAIN) -> Outgoing:
    """Raises TypeError that names the argument of a wrong kind, ValueError for a delay that no message can have."""
    tag, order_key, content_type = options.get("tag"), options.get("order_key"), options.get("content_type")
    _check("topic", topic, isinstance(topic, str), "a str")
    for name, text in (("tag", tag), ("order_key", order_key), ("content_type", content_type)):
        _check(name, text, isinstance(text, str | None), "a str or None")
    delay, recallable = options.get("delay"), options.get("recallable", False)
    _check("delay", delay, delay is None or is_number(delay), "seconds as a number, or None")
    _check("recallable", recallable, isinstance(recallable, bool), "True or False")
    level, seconds = _delay(delay, options.get("rounding"), recallable)
    # Subscriptions split their tags at || and take the blanks away.
    if tag and ("||" in tag or tag != tag.strip()):
        raise ValueError(f"tag={tag!r}: a message has one tag, without || or blanks at its ends: none could select it")
    queue = options.get("queue")
    _check("queue", queue, queue is None or isinstance(queue, MessageQueue) or callable(queue), _QUEUES)
    if queue is not None and order_key is not None:
        raise ValueError("queue= and order_key= both say to which queue a message goes: give one of them")
    fixed = queue if isinstance(queue, MessageQueue) else None
    encoded, marks = payloads.encode(body, content_type)
    properties = _properties(options.get("properties"))
    return Outgoing(
        topic=topic,
        body=encoded,
        tag=tag,
        keys=_keys(options.get("keys", ())),
        properties={**marks, **properties} if marks else properties,
        order_key=order_key,
        queue=fixed,
        select=queue if fixed is None else None,  # type: ignore[arg-type]
        delay_level=level,
        delay=seconds,
    )


def _delay(delay: float | None, rounding: str | None, recallable: bool) -> tuple[int, float]:
    """The delay level, or 0 and the seconds that a timer counts."""
    if rounding not in (None, "up"):
        raise ValueError(f'rounding={rounding!r}: give "up", or leave it out; a message must not come early')
    if delay is None:
        if recallable:
            raise ValueError("recallable=True: only a message with a delay= can be taken back")
        return 0, 0.0
    if not 0 < delay <= MOST_SECONDS:
        raise ValueError(f"delay={delay!r:.40}: give seconds above 0, at most {MOST_SECONDS}, or leave it out")
    if rounding == "up":
        if delay > DELAY_SECONDS[-1]:
            delay_level(delay)  # raises, and says what the most is
        delay = DELAY_SECONDS[delay_level_at_least(delay) - 1]
    if delay in DELAY_SECONDS and not recallable:
        return delay_level(delay), 0.0
    return 0, float(delay)


def timeout_of(options: PublishOptions | TransactionOptions) -> float | None:
    """Raises TypeError or ValueError for a timeout that is not a number of seconds above 0."""
    timeout = options.get("timeout")
    _check("timeout", timeout, timeout is None or is_number(timeout), "seconds as a number, or None")
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError(f"timeout={timeout!r}: give seconds above 0, or None for producer.send_timeout")
    return timeout


def check_names(function: str, options: Mapping[str, object], known: type) -> None:
    """Raises TypeError for a keyword that the function does not take, and names those that it takes."""
    names = known.__annotations__
    if not options.keys() <= names.keys():
        unknown = ", ".join(repr(name) for name in options if name not in names)
        raise TypeError(f"{function}() takes no keyword {unknown}: it takes {', '.join(names)}")


def _keys(keys: Any) -> tuple[str, ...]:
    if isinstance(keys, str):
        return (keys,)
    # Read once: it may be a generator.
    found = tuple(keys) if isinstance(keys, Iterable) and not isinstance(keys, bytes) else None
    _check("keys", keys if found is None else list(found), found is not None and _are_texts(found), "str, or several")
    return found or ()


def _properties(properties: Any) -> Mapping[str, str]:
    if properties is None:
        return {}
    is_right = isinstance(properties, Mapping) and _are_texts(properties) and _are_texts(properties.values())
    _check("properties", properties, is_right, "a mapping of str to str, or None")
    found: Mapping[str, str] = properties
    return found


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _check(name: str, value: object, is_right: bool, wanted: str) -> None:
    if not is_right:
        raise TypeError(f"{name}={value!r}: {name} takes {wanted}")


T = TypeVar("T")
R = TypeVar("R")
CORRELATION_ID: Final = "rocketapp.correlation_id"
"""The property that messages have in common which follow from one first message: its message id, or a given one."""
_ANSWER_GRACE = 5.0
"""Seconds that `publish_sync` waits beyond the send's own limit, for a loop that is busy."""


class Call(NamedTuple, Generic[R]):
    """One call that publishes: checked and encoded, and not begun.

    timeout: None is `producer.send_timeout`; infinite where each of several requests has that.
    """

    by: Publishing
    start: Callable[[], Coroutine[Any, Any, R]]
    topic: str
    timeout: float | None

    def here(self) -> Coroutine[Any, Any, R]:
        """Begin it. Raises SetupError in another event loop than the app's: what is awaited there would never come."""
        if running_loop() is not self.by.loop():
            raise SetupError(
                place_of_call(), "the app runs in another event loop: publish there, or with publish_sync from a thread"
            )
        return self.start()

    def blocking(self, name: str) -> R:
        """What it gives, for a thread that waits. `name`: what to await on the app's event loop instead."""
        return self.by.blocking(name, self)


class PublishesSync(ABC):
    """Publishes and asks, for sync handlers and other threads: each call blocks until the answer is there."""

    __slots__ = ()

    @abstractmethod
    def _through(self) -> Publishing:
        """What carries out the next call."""

    def publish_sync(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> SendResult:
        """Send one message and say where it is stored. Keywords and errors are those of `RocketApp.publish`."""
        return self._through().sending(topic, body, options).blocking("publish")

    def publish_many_sync(
        self, topic: str | Topic[T], items: Iterable[T], **options: Unpack[SendOptions]
    ) -> list[SendResult]:
        """Send one message for each body, in batches where RocketMQ allows it; results in the same order."""
        return self._through().sending_many(topic, items, options).blocking("publish_many")

    def publish_one_way_sync(self, topic: str | Topic[T], body: T, **options: Unpack[SendOptions]) -> None:
        """Send without waiting for an answer: fast, and a message that was not stored is lost unseen."""
        self._through().sending_one_way(topic, body, options).blocking("publish_one_way")

    def request_sync(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> Message:
        """Send one message and wait for what its handler answers. Raises NoReply: see `RocketApp.request`."""
        return self._through().asking(topic, body, options).blocking("request")

    def recall_sync(
        self, topic: str | Topic[Any], handle: str, *, cluster: str | None = None, timeout: float | None = None
    ) -> None:
        """Take a delayed message back before its time. Raises NotRecalled: see `RocketApp.recall`."""
        try:
            self._through().recalling(topic, handle, cluster, timeout).blocking("recall")
        except SendUnknown as error:
            raise NotRecalled(error.topic, error.reason, perhaps=True) from None


class Publisher(PublishesSync):
    """Publishes and asks: a RocketApp, a Client, a Context, or what a handler gets that asks for a Publisher.

    In a handler the messages follow the handled one: they go to its cluster unless `cluster=` names another, and carry
    its correlation id (property `rocketapp.correlation_id`; the first message's id is its own) unless `properties=` has
    one. A batch has no single message to follow: it carries none.
    """

    __slots__ = ()

    async def publish(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> SendResult:
        """Send one message and say where it is stored.

        body: bytes, str (UTF-8), or a dict, list, msgspec Struct, dataclass or pydantic model (JSON).
        tag: what subscriptions select by; keys: words that find the message later; properties: your own, str to str.
        order_key: messages with equal ones share a queue, in the order of publishing.
        delay: seconds above 0. One of RocketMQ's delay levels waits at any broker; another needs a broker with timers
            (Apache RocketMQ from 5.0), and without them SendRefused names the levels next to it.
        rounding: "up" takes the next longer level for another delay.
        cluster: the name of one of `RocketApp(clusters=...)`; None is the unnamed cluster. In a handler the one of the
            handled message, unless this names another.
        timeout: seconds in total; None is `producer.send_timeout`.
        content_type: how the body is encoded when it is not JSON, `application/msgpack`; of bytes, what they are.

        Raises SendRefused when it is certainly not stored, SendUnknown when it perhaps is; TypeError or ValueError,
        before anything is sent, for an argument that it does not take.
        """
        return await self._through().sending(topic, body, options).here()

    async def publish_many(
        self, topic: str | Topic[T], items: Iterable[T], **options: Unpack[SendOptions]
    ) -> list[SendResult]:
        """Send one message for each body, in batches where RocketMQ allows it; results in the same order."""
        return await self._through().sending_many(topic, items, options).here()

    async def publish_one_way(self, topic: str | Topic[T], body: T, **options: Unpack[SendOptions]) -> None:
        """Send without waiting for an answer: fast, and a message that was not stored is lost unseen."""
        await self._through().sending_one_way(topic, body, options).here()

    async def request(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> Message:
        """Send one message and wait for what its handler answers. `answer.json()` or `answer.text()` reads it.

        A handler whose function has a return annotation answers with what it returns, in whatever process it runs;
        so does a Java consumer that replies. The keywords are those of `publish`; timeout: seconds for the send and
        the answer together, None is `producer.send_timeout`.

        Raises NoReply when no answer came in time: whether the message was handled is unknown. Else as `publish`.
        """
        return await self._through().asking(topic, body, options).here()

    async def recall(
        self, topic: str | Topic[Any], handle: str, *, cluster: str | None = None, timeout: float | None = None
    ) -> None:
        """Take a delayed message back before its time. `handle`: `recall_handle` of its SendResult.

        Raises NotRecalled when the message comes, or has come: its time is over or nearly so, or the broker does not
        take messages back (its `recallMessageEnable`). May be repeated.
        cluster: None is the unnamed one, in a handler that of the handled message; "" is always the unnamed one.
        timeout: seconds in total; None is `producer.send_timeout`.
        """
        await self._through().recalling(topic, handle, cluster, timeout).here()


class TopicPublisher(Generic[T]):
    """Publishes payloads of one type to one topic; keywords and errors are those of `RocketApp.publish`."""

    __slots__ = ("_publisher", "topic")

    def __init__(self, publisher: Publisher, topic: Topic[T]) -> None:
        self._publisher = publisher
        self.topic: Topic[T] = topic

    def __repr__(self) -> str:
        return f"<TopicPublisher of {self.topic}>"

    async def publish(self, payload: T, **options: Unpack[PublishOptions]) -> SendResult:
        """Send one payload and say where it is stored. Raises SendRefused, SendUnknown; TypeError for another type."""
        return await self._publisher.publish(self.topic, payload, **options)

    async def publish_many(self, payloads: Iterable[T], **options: Unpack[SendOptions]) -> list[SendResult]:
        """Send each payload; results in the same order."""
        return await self._publisher.publish_many(self.topic, payloads, **options)

    async def publish_one_way(self, payload: T, **options: Unpack[SendOptions]) -> None:
        """Send without waiting for an answer."""
        await self._publisher.publish_one_way(self.topic, payload, **options)

    async def request(self, payload: T, **options: Unpack[PublishOptions]) -> Message:
        """Send one payload and wait for what its handler answers."""
        return await self._publisher.request(self.topic, payload, **options)

    def publish_sync(self, payload: T, **options: Unpack[PublishOptions]) -> SendResult:
        """`publish` for sync handlers and other threads: blocks until the answer is there."""
        return self._publisher.publish_sync(self.topic, payload, **options)

    def publish_many_sync(self, payloads: Iterable[T], **options: Unpack[SendOptions]) -> list[SendResult]:
        """`publish_many` for sync handlers and other threads."""
        return self._publisher.publish_many_sync(self.topic, payloads, **options)

    def publish_one_way_sync(self, payload: T, **options: Unpack[SendOptions]) -> None:
        """`publish_one_way` for sync handlers and other threads."""
        self._publisher.publish_one_way_sync(self.topic, payload, **options)

    def request_sync(self, payload: T, **options: Unpack[PublishOptions]) -> Message:
        """`request` for sync handlers and other threads."""
        return self._publisher.request_sync(self.topic, payload, **options)


def through(producer: Callable[[str], Producer]) -> PublishCall:
    """What carries out a call that publishes. `producer`: gives that of a cluster."""

    async def send(sending: Sending) -> Sequence[SendResult]:
        sender = producer(sending.cluster)
        if sending.kind == "many":
            return await sender.send_many(sending.messages)
        if sending.kind == "send":
            return [await sender.send(message, timeout=sending.timeout) for message in sending.messages]
        for message in sending.messages:
            await sender.send_one_way(message)
        return ()

    return send


class Running(Protocol):
    """A running app, as far as publishing needs it.

    send: what sends, behind the plugins' wrappers.
    """

    loop: asyncio.AbstractEventLoop
    send_timeout: float
    send: PublishCall

    def producer(self, cluster: str) -> Producer:
        """What asks a cluster, answers there and ends transactions. Raises SetupError for one without a producer."""


class Publishing(Publisher):
    """A Publisher over a running app or client; all others publish through one."""

    __slots__ = ("_cluster", "_origin", "_running", "payloads")

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
        self._running, self._cluster, self._origin = running, cluster, origin
        self.payloads: Payloads = payloads

    def __repr__(self) -> str:
        return f"<Publishing to cluster {self._cluster!r}, following {self._origin!r}>"

    def _through(self) -> Publishing:
        return self

    def to(self, cluster: str) -> Publishing:
        """The same for another cluster."""
        return Publishing(self._running, cluster, self._origin, payloads=self.payloads)

    def following(self, origin: Message) -> Publishing:
        """The same for what a handler publishes while it handles `origin`."""
        return Publishing(self._running, self._cluster, origin, payloads=self.payloads)

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running app's. Raises SetupError while it does not run."""
        return self._running().loop

    # What the calls are made of.

    def outgoing(self, topic: str | Topic[Any], body: Any, options: MessageOptions) -> Outgoing:
        """One message, encoded. Raises TypeError or ValueError for an argument that no message has."""
        topic = topic.name_for(body) if isinstance(topic, Topic) else topic
        message = outgoing(topic, body, options, self.payloads)
        origin = self._origin
        if origin is None or CORRELATION_ID in message.properties:
            return message
        return replace(message, properties={**message.properties, CORRELATION_ID: correlation_id(origin)})

    def sending(self, topic: str | Topic[Any], body: Any, options: PublishOptions) -> Call[SendResult]:
        check_names("publish", options, PublishOptions)
        message, timeout = self.outgoing(topic, body, options), timeout_of(options)
        cluster = self._connected(self.cluster_of(options))
        return Call(self, lambda: self._send(message, cluster, timeout), message.topic, timeout)

    def sending_many(
        self, topic: str | Topic[Any], items: Iterable[Any], options: SendOptions
    ) -> Call[list[SendResult]]:
        check_names("publish_many", options, SendOptions)
        if isinstance(items, str | bytes | bytearray | Mapping) or not isinstance(items, Iterable):
            raise TypeError(f"publish_many(items={type(items).__name__}): give several bodies, or one to publish")
        messages = [self.outgoing(topic, body, options) for body in items]
        name = topic.name if isinstance(topic, Topic) else topic
        cluster = self._connected(self.cluster_of(options))

        async def send() -> list[SendResult]:
            return list(await self._running().send(Sending(messages, "many", cluster, None)))

        return Call(self, send, name, math.inf)

    def sending_one_way(self, topic: str | Topic[Any], body: Any, options: SendOptions) -> Call[None]:
        check_names("publish_one_way", options, SendOptions)
        message = self.outgoing(topic, body, options)
        cluster = self._connected(self.cluster_of(options))

        async def send() -> None:
            await self._running().send(Sending((message,), "one_way", cluster, None))

        return Call(self, send, message.topic, None)

    def asking(self, topic: str | Topic[Any], body: Any, options: PublishOptions) -> Call[Message]:
        check_names("request", options, PublishOptions)
        message, timeout = self.outgoing(topic, body, options), timeout_of(options)
        cluster = self._connected(self.cluster_of(options))
        return Call(self, lambda: self._request(message, cluster, timeout), message.topic, timeout)

    def recalling(self, topic: str | Topic[Any], handle: str, cluster: str | None, timeout: float | None) -> Call[None]:
        if not isinstance(handle, str):
            raise TypeError(f"handle={handle!r}: give the recall_handle of a SendResult, which only a timer gives")
        name, limit = (topic.name if isinstance(topic, Topic) else topic), timeout_of({"timeout": timeout})

        where = self._connected(self._cluster if cluster is None else cluster)

        async def recall() -> None:
            running = self._running()
            await running.producer(where).recall(name, handle, limit or running.send_timeout)

        return Call(self, recall, name, limit)

    async def _request(self, message: Outgoing, cluster: str, timeout: float | None) -> Message:
        loop, running = asyncio.get_running_loop(), self._running()
        timeout = timeout or running.send_timeout
        requests, end = running.producer(cluster).requests, loop.time() + timeout
        await requests.ready(message.topic, timeout / 2)
        with requests.waiting(message.topic, timeout=timeout, deadline=end) as request:
            left = max(end - loop.time(), 0.001)
            sent = await self._send(replace(message, marks=request.marks), cluster, left)
            return await request.reply(sent.message_id, message.keys)

    async def _send(self, message: Outgoing, cluster: str, timeout: float | None) -> SendResult:
        (stored,) = await self._running().send(Sending((message,), "send", cluster, timeout))
        return stored

    def _connected(self, cluster: str) -> str:
        """This cluster. Raises SetupError where nothing can be sent; the loop of a forked process would say nothing."""
        self._running().producer(cluster)
        return cluster

    def cluster_of(self, options: SendOptions) -> str:
        """Where a call with these options sends: None is the unnamed cluster, also where another is the default."""
        return options.get("cluster", self._cluster) or ""

    # How they are carried out.

    def blocking(self, name: str, call: Call[R]) -> R:
        """What it gives, for a thread that waits.

        Raises SetupError in the app's event loop, which would wait for itself: `name` is what to await there.
        """
        running = self._running()
        if running_loop() is running.loop:
            raise SetupError(
                place_of_call(), f"{name}_sync would block the event loop for ever: use `await` with `{name}` here"
            )
        # The callback that this leaves with the loop has a copy of this thread's context, and so has its task.
        future = asyncio.run_coroutine_threadsafe(call.start(), running.loop)
        limit = (running.send_timeout if call.timeout is None else call.timeout) + _ANSWER_GRACE
        try:
            return future.result(None if limit == math.inf else limit)
        except concurrent.futures.TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise SendUnknown(call.topic, f"the event loop did not answer within {limit:g} s") from None

    # What stands around handlers.

    async def reply(self, request: Message, value: Any) -> None:
        """Answer a request with this value, encoded as the body of a message is. Raises SendRefused, SendUnknown."""
        body, properties = self.payloads.encode(value, None)
        await self._running().producer(self._cluster).reply(request, body, properties)

    def reply_sync(self, request: Message, value: Any) -> None:
        """`reply` for sync handlers, in their threads."""
        Call(self, lambda: self.reply(request, value), request.topic, None).blocking("reply")

    async def begin(
        self, topic: str | Topic[Any], body: Any, options: TransactionOptions
    ) -> tuple[SendResult, Callable[[bool], Awaitable[None]], Transactions]:
        """Send a half message. It, what commits (True) or rolls back its transaction, and the transactions."""
        check_names("a transaction", options, TransactionOptions)
        running = self._running()
        message, timeout = self.outgoing(topic, body, options), timeout_of(options) or running.send_timeout
        one = replace(message, half=True)
        half = await Call(self, lambda: self._send(one, self._cluster, timeout), message.topic, timeout).here()
        transactions = running.producer(self._cluster).transactions

        def end(commit: bool) -> Awaitable[None]:
            return transactions.end(half, commit=commit, timeout=timeout)

        return half, end, transactions


def correlation_id(message: Message) -> str:
    """What a message has in common with those that follow it."""
    return message.properties.get(CORRELATION_ID) or message.message_id


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that this thread runs, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
