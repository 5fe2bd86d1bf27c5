"""Subscriptions: as a user declared them, of which kind of handler, and as they are sent to brokers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from rocketapp.model.policy import Policy

ALL_TAGS = "*"
TAGS, SQL92 = "TAG", "SQL92"
"""The types of expressions."""

Mode = Literal["push", "pop"]
"""How messages reach a handler: queues are shared out and pulled, or brokers hand out messages one by one."""
Start = Literal["first", "last"] | datetime
"""Where a group without committed offsets begins. A datetime has to have a time zone."""


def parse_tags(expression: str) -> frozenset[str]:
    """The tags of `a || b`. An empty set means every message.

    Raises ValueError for an expression that consists of separators only. `*||a` is not a wildcard
    and `a|b` is one tag, as in RocketMQ's FilterAPI.
    """
    if expression in ("", ALL_TAGS):
        return frozenset()
    tags = frozenset(filter(None, (part.strip() for part in expression.split("||"))))
    if not tags:
        raise ValueError(f"tags={expression!r} names no tag")
    return tags


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One handler's subscription, with every default filled in."""

    topic: str
    group: str
    tags: frozenset[str]
    """Empty means every message whose tag no other handler of this topic and group names."""
    expression: str
    """The tags as the user wrote them."""
    orderly: bool = False
    batch: int | None = None
    batch_wait: float = 0.1
    """Seconds that a smaller batch waits for more."""
    concurrency: int
    retries: int
    """Attempts after the first one; -1 is unlimited (orderly only)."""
    start: Start = "last"
    timeout: float | None = None
    cluster: str = ""
    """Name of the cluster; empty for the unnamed one."""
    is_async: bool
    handler_name: str
    """`module:qualified.name` of the function."""
    place: str
    """`file:line` of the declaration."""
    retry: Policy | None = None
    """What follows a failed attempt; None: the usual delays, and a retry whatever was raised."""
    idempotent: bool | Callable[[Any], str] = False
    """Whether copies are handled once; a function takes the Message and returns its key."""
    filter: Callable[[Any], bool] | None = None
    """Takes the Message; what it refuses is done without a call."""
    rate: float | None = None
    """Messages that may start per second in this process; None is without a limit."""
    order_by: str | Callable[[Any], Hashable] | None = None
    """Messages with equal keys are handled in order, one at a time: a function of the message, or the name of one of
    its properties."""
    broadcast: bool = False
    """Every member of the group gets every message; a group is broadcast or not as a whole."""
    concurrency_most: int = 0
    """What its concurrency may grow to while much waits; less than `concurrency`: it does not grow."""
    sql: str = ""
    """An SQL92 filter that brokers apply; empty for a subscription by tags."""
    commit: Literal["auto", "manual"] = "auto"
    """`manual`: an orderly handler says by its Context when what it has handled is committed."""
    every: float | None = None
    """Of a polled handler: seconds between two calls for one queue; None: it is called with messages."""
    publishes: str = ""
    """The topic that takes what the handler returns; empty for a handler without `publishes`."""
    retries_from: str = ""
    """Where `retries` was said: `handler`, `RocketApp at file:line`, `consumer.retries` or what a plugin says."""
    mode: Mode = "push"
    retry_from: str = ""
    """The same for `retry`; empty while nothing has said one."""


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """One topic of a group, as heartbeats and pulls send it to brokers."""

    topic: str
    expression: str = ALL_TAGS
    tags: frozenset[str] = frozenset()
    version: int = 0
    """Milliseconds since 1970; grows with every change (Java: subVersion)."""
    expression_type: str = TAGS


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerKind:
    """One kind of handler, and what differs wherever a handler is checked, described or called.

    A new kind is one more constant here, a case of `kind_of`, and a consume mode (`consumer/modes/table.py`). One
    with a decorator of its own, such as `poll`, also needs its options (`app/declare`) and arguments (`app/call`).
    """

    order: str
    """The order of its calls, as descriptions of an app name it."""
    runs: str
    """How it runs, in words about `one` subscription whose messages are in order by `key`."""
    waits: str = ""
    """What waits while a failed message is tried again in place; empty: failed messages are sent back."""
    by_message: bool = True
    """It is called with messages. Otherwise it pulls them: most of what stands around handlers is not for it."""

    @property
    def in_order(self) -> bool:
        """A message waits for those before it, of its queue or of its key."""
        return bool(self.waits)


CONCURRENT = HandlerKind(order="concurrent", runs="concurrently, {one.concurrency} at once")
POPPED = HandlerKind(order="concurrent", runs="popped, {one.concurrency} at once")
KEYED = HandlerKind(
    order="by key", runs="one by one per key ({key}), {one.concurrency} keys at once", waits="its key waits"
)
ORDERLY = HandlerKind(order="orderly", runs="orderly, one by one per queue", waits="the queue waits")
POLLED = HandlerKind(
    order="polled",
    runs="polled: per queue a call every {one.every:g} s, {one.concurrency} queues at once",
    waits="the queue waits",
    by_message=False,
)


def kind_of(one: Subscription) -> HandlerKind:
    """Which kind of handler this subscription has."""
    if one.every is not None:
        return POLLED
    if one.order_by is not None:
        return KEYED
    if one.orderly:
        return ORDERLY
    return POPPED if one.mode == "pop" else CONCURRENT
