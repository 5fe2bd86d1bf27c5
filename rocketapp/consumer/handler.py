"""The functions that a consumer calls, and the items it calls them with.

An item is one message, or the list of messages of a `batch=` handler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rocketapp.model.outcome import DeadLetter, Decisions
from rocketapp.model.snapshot import HandlerStats
from rocketapp.model.subscription import POPPED, HandlerKind, Start, Subscription, SubscriptionData, kind_of
from rocketapp.wire.record import Message


@dataclass(frozen=True, slots=True)
class Handler:
    """One function behind its whole chain of wrappers, and what was declared for it.

    `call` takes one Message, a list of them when `subscription.batch` is set, or the
    PolledBatch of a polled handler. It returns an awaitable when `subscription.is_async`;
    otherwise it blocks and is run in a thread. Any return value means done, except Retry,
    Skip, DeadLetter and Pause, which may be returned as well as raised, Outcomes of a
    batch, and work that was never awaited, which failed.
    """

    subscription: Subscription
    call: Callable[[Any], Any]
    stats: HandlerStats = field(default_factory=HandlerStats, compare=False, repr=False)
    """What became of this handler's messages."""
    owner_of: Callable[[BaseException], str] = field(default=lambda _: "", compare=False, repr=False)
    """The plugin whose wrapper raised this; empty for the handler's own exceptions."""

    decisions: Decisions | None = field(default=None, compare=False, repr=False)
    """What it says of commits, if it commits by hand; None: returning commits."""

    runs_here: bool = field(default=True, compare=False, repr=False)
    """Whether a call of it can end this process, or end a pause; False: another member runs it, or nobody does."""

    def __post_init__(self) -> None:
        if self.subscription.batch is not None:
            # The handler may change its list; the engine acknowledges the batch as it was.
            call = self.call
            object.__setattr__(self, "call", lambda messages: call(messages.copy()))

    @property
    def name(self) -> str:
        return self.subscription.handler_name


@dataclass(frozen=True, slots=True)
class ConsumedTopic:
    """One topic of a group, with all of its handlers."""

    topic: str
    start: Start
    retries: int
    handlers: tuple[Handler, ...]
    data: SubscriptionData
    """The union of the handlers' tags, as brokers hear it."""
    sink: Any = None
    """The `modes.sink.Sink` by which a plugin consumes it, or None; then it has one handler."""
    broadcast: bool = False
    """Every member gets every message; all topics of the group agree in it."""

    @property
    def kind(self) -> HandlerKind:
        """The kind of its handlers, which is the same for all."""
        return kind_of(self.handlers[0].subscription)

    @property
    def by_message(self) -> bool:
        """Whether handlers are called with messages, which other members may forward to this one."""
        return self.sink is None and self.kind.by_message

    @property
    def is_popped(self) -> bool:
        """Whether brokers hand out its messages one by one."""
        return self.by_message and self.kind is POPPED

    @property
    def needs_lock(self) -> bool:
        """Whether its queues are consumed under a broker's lock (`Mode.needs_lock` of its mode)."""
        if self.sink is not None:
            return bool(self.sink.locked)
        return self.kind.in_order and not self.broadcast


def subscriptions_of(topics: Sequence[ConsumedTopic], retry: str | None, version: int) -> dict[str, SubscriptionData]:
    """What brokers hear of every topic. One version for the life of the process: they compare it with that of pulls."""
    found = {topic.topic: replace(topic.data, version=version) for topic in topics}
    if retry is not None:
        found[retry] = SubscriptionData(retry, version=version)
    return found


def of_retries(handler: Handler) -> Handler:
    """What is called in its place with what comes back for a retry of an earlier version, if it cannot be."""
    about, by_hand = handler.subscription, handler.decisions is not None
    if about.every is None and not by_hand:
        return handler

    async def refuse(_: Message) -> None:
        now = "handler commits by hand" if by_hand else "topic is polled"
        raise DeadLetter(f"it came back for a retry, and its {now} by now")

    about = replace(about, is_async=True, batch=None, every=None, rate=None)
    return replace(handler, subscription=about, call=refuse, decisions=None, runs_here=False)


# Items.

Item = Message | Sequence[Message]


def messages_of(item: Item) -> Sequence[Message]:
    """The messages of an item, in the order of their offsets."""
    return (item,) if isinstance(item, Message) else item


def first_of(item: Item) -> Message:
    """The message, or the first of a batch."""
    return item if isinstance(item, Message) else item[0]


def last_of(item: Item) -> Message:
    """The message, or the last of a batch."""
    return item if isinstance(item, Message) else item[-1]


def cut(messages: Sequence[Message], most: int) -> list[list[Message]]:
    """Batches of at most `most` messages, in their order."""
    return [list(messages[at : at + most]) for at in range(0, len(messages), most)]
