"""The kinds of handler, and what differs between them wherever a handler is checked, described or called.

A new kind is one more constant here, a case of `kind_of`, and a way of consuming (`consumer/ways/table.py`). One with a
decorator of its own, such as `poll`, also needs its options (`app/declare`) and its arguments (`app/call`).
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.model.subscription import Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerKind:
    """One kind of handler."""

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
