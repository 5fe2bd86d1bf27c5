"""`Context`, what a handler may know beside its message, and `Pull`, by which a polled handler gets its messages.

Made per call, and only for handlers that ask for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, MutableMapping
from math import inf
from typing import TYPE_CHECKING, Any

from rocketapp.app.publishing import Publisher
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.numbers import is_number, is_whole
from rocketapp.model.outcome import COMMIT, Decisions, Retry
from rocketapp.model.subscription import Subscription
from rocketapp.wire.record import Message

if TYPE_CHECKING:
    from rocketapp.app.publishing import Publishing
    from rocketapp.consumer.modes.poll import PolledBatch  # declaring an app does not import what runs it

LOGGER = "rocketapp.handlers"
"""Parent of the handlers' loggers: `rocketapp.handlers.<module>:<function>`."""


class Context(Publisher):
    """The circumstances of one attempt. What it publishes follows the handled message: see Publisher."""

    __slots__ = ("_decisions", "_first", "_handler", "_publisher", "attempt", "deadline", "group", "queue")

    def __init__(
        self,
        first: Message,
        attempt: int,
        group: str,
        handler: str,
        *,
        deadline: float | None,
        publisher: Publisher | None,
        decisions: Decisions | None,
    ) -> None:
        self._decisions = decisions
        self._first, self._handler, self._publisher = first, handler, publisher
        self.attempt: int = attempt
        """The first is 1. For a batch: the highest of its messages."""
        self.queue: MessageQueue | None = first.queue
        """Where the message was pulled from; its topic is `%RETRY%group` for an attempt after the first."""
        self.group: str = group
        self.deadline: float | None = deadline
        """The event loop's time (`loop.time()`) at which `timeout=` ends this attempt, or None."""

    @staticmethod
    def make(
        message: Message | None = None,
        *,
        attempt: int | None = None,
        group: str = "test",
        deadline: float | None = None,
        publisher: Publisher | None = None,
    ) -> Context:
        """The circumstances of one attempt, for a test that calls a handler directly.

        message: the handled one; None makes one. attempt: None is the message's. deadline: the loop's time.
        publisher: what it publishes through; without one `publish` raises RuntimeError.
        """
        message = Message.make() if message is None else message
        return Context(
            message,
            message.attempt if attempt is None else attempt,
            group,
            "test",
            deadline=deadline,
            publisher=publisher,
            decisions=Decisions(),
        )

    def commit(self) -> None:
        """Commit this message and all before it that its queue has handled, as soon as this call has ended well.

        For handlers with `commit="manual"` alone; raises RuntimeError in others.
        """
        self._decide("commit").say(self.queue, COMMIT)

    def rollback(self, *, after: float | None = None) -> None:
        """Have this message, and all before it that are not committed, handled again when this call has ended.

        after: seconds until then; None is the delay of its policy, without one `consumer.suspend` (1 s). It counts as a
        failed attempt of this message. For handlers with `commit="manual"` alone; raises RuntimeError in others.
        """
        self._decide("rollback").say(self.queue, Retry(after))

    def _decide(self, what: str) -> Decisions:
        if self._decisions is None:
            raise RuntimeError(f'{what}: {self._handler} commits by returning; subscribe it with commit="manual"')
        return self._decisions

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry topic, message id and attempt as fields."""
        fields = {
            "topic": self._first.topic,
            "group": self.group,
            "handler": self._handler,
            "message_id": self._first.message_id,
            "attempt": self.attempt,
        }
        return _MessageLogger(logging.getLogger(f"{LOGGER}.{self._handler}"), fields)

    def _through(self) -> Publishing:
        if self._publisher is None:
            raise RuntimeError("this context publishes nothing: give Context.make(publisher=...), or use TestApp")
        return self._publisher._through()

    def __repr__(self) -> str:
        return f"<Context {self._handler} attempt={self.attempt} queue={self.queue}>"


class _MessageLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the message's fields to those of the log call, where the formatters find them."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        own = dict(kwargs.get("extra") or {})
        own["fields"] = {**(self.extra or {}), **own.get("fields", {})}
        kwargs["extra"] = own
        return msg, kwargs


def publisher_of(subscription: Subscription, publishing: Publishing) -> Callable[[Any], Publishing]:
    """A function from a message, or a list of them, to what publishes in its handler; made once per subscription."""
    own, is_single = publishing.to(subscription.cluster), subscription.batch is None and subscription.every is None
    return own.following if is_single else lambda _messages: own


def context_of(
    subscription: Subscription, publishing: Publishing, decisions: Decisions | None
) -> Callable[[Any], Context]:
    """A function from a message, or a list of them, to its Context; made once per subscription.

    `publishing`: the running app's. `decisions`: for a handler that commits by hand.
    """
    timeout, is_batch = subscription.timeout, subscription.batch is not None
    group, handler = subscription.group, subscription.handler_name
    publisher = publisher_of(subscription, publishing)

    def make(item: Any) -> Context:
        first, attempt = (item[0], max(one.attempt for one in item)) if is_batch else (item, item.attempt)
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        context = Context(
            first,
            attempt,
            group,
            handler,
            deadline=deadline,
            publisher=publisher(item),
            decisions=decisions,
        )
        if decisions is not None:
            decisions.begin(context.queue)
        return context

    return make


MAX_PULLED = 65_535
"""The most messages that one pull may ask for: the most unfinished messages that one queue may have."""


class _OfOneCall:
    __slots__ = ("_batch", "group", "queue")

    def __init__(self, batch: PolledBatch, group: str) -> None:
        self._batch = batch
        self.queue: MessageQueue = batch.queue
        """The queue that this call is for."""
        self.group: str = group
        """The consumer group that commits."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.queue}: {len(self._batch)} messages>"

    def next_in(self, seconds: float) -> None:
        """Call the handler for this queue again this many seconds after it has returned or failed, this time.

        seconds: 0 or more; otherwise ValueError. Raises RuntimeError when the handler has returned.
        """
        if not is_number(seconds) or not 0 <= seconds < inf:
            raise ValueError(f"next_in({seconds!r}): give seconds, 0 or more")
        self._batch.next_in(float(seconds))


class Pull(_OfOneCall):
    """Pulls messages of one queue for one call of an async handler: `messages = await pull(32)`."""

    __slots__ = ()

    async def __call__(self, most: int = 32) -> list[Message]:
        """The next messages of the queue, in their order; fewer than `most`, or none, when the queue has no more.

        Waits for at most a second for a broker that has more. Gives none while the topic is paused, and after the
        queue has been given to another member. What was pulled is committed when the handler returns; when it raises,
        the next call gets the same messages.

        most: 1 to 65,535; otherwise ValueError. Raises RuntimeError when the handler has returned.
        """
        return await self._batch.take(_checked(most))


class SyncPull(_OfOneCall):
    """`Pull` for a plain `def`, which runs in a thread: `messages = pull(32)`."""

    __slots__ = ()

    def __call__(self, most: int = 32) -> list[Message]:
        """As `Pull`, without `await`. From the handler's thread. Gives none in a forked process."""
        checked = _checked(most)
        if self._batch.is_cut:  # the loop of a forked process does not run
            return []
        return asyncio.run_coroutine_threadsafe(self._batch.take(checked), self._batch.loop).result()


def _checked(most: int) -> int:
    if not is_whole(most) or not 1 <= most <= MAX_PULLED:
        raise ValueError(f"pull({most!r}): give a whole number of messages, 1 to {MAX_PULLED}")
    return most
