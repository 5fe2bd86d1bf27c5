"""The keywords of `publish`, once for every signature that takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from rocketapp.model.message_queue import MessageQueue, QueueSelector


class MessageOptions(TypedDict, total=False):
    """What a message carries beside its body."""

    tag: str | None
    """The tag that subscriptions select by."""
    keys: Sequence[str]
    """Words that find the message later; one word may be given as a str."""
    properties: Mapping[str, str] | None
    """Properties of the user's own."""
    order_key: str | None
    """Messages with equal keys share a queue, in the order of publishing."""
    queue: MessageQueue | QueueSelector | None
    """The queue to publish to, or a function that chooses it; not with `order_key`."""
    delay: float | None
    """Seconds before consumers see it. One of RocketMQ's delay levels, or any other where the broker has timers."""
    rounding: Literal["up"] | None
    """"up": a `delay` between two levels is the next longer one, which needs no timers."""
    recallable: bool
    """A `delay` waits on the broker's timer, also when it is a level: `recall` can take the message back."""
    content_type: str | None
    """How the body is encoded, when it is not JSON: `application/msgpack`, or that of a plugin's codec."""


class SendOptions(MessageOptions, total=False):
    """`publish_many` and `publish_one_way` take these."""

    cluster: str | None
    """The name of the cluster to send to; None is the unnamed one."""


class TransactionOptions(MessageOptions, total=False):
    """A call of what `@app.transaction` made takes these."""

    timeout: float | None
    """Seconds that the half message may take in total; None is `producer.send_timeout`."""


class PublishOptions(SendOptions, total=False):
    """`publish` and `publish_sync` take these."""

    timeout: float | None
    """Seconds in total; None is `producer.send_timeout`."""
