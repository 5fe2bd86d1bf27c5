"""The messages that a producer sends, the results that it receives, and the keywords of `publish`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Literal, TypedDict

from rocketapp.model.message_queue import MessageQueue, QueueSelector

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message to be sent."""

    topic: str
    body: bytes
    tag: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=lambda: _NONE)
    order_key: str | None = None
    """Messages with equal order keys go to the same queue."""
    delay_level: int = 0
    """1 to 18, or 0 for none."""
    delay: float = 0.0
    """Seconds that the timer of the broker holds it back, or 0; any brokers since 5.0 have one. Not with a level."""
    queue: MessageQueue | None = None
    """A fixed queue instead of a chosen one."""
    select: QueueSelector | None = None
    """Chooses the queue, once for all attempts. Not with `queue` or an order key."""
    half: bool = False
    """Stored, but seen by no consumer until its transaction is committed."""
    marks: Mapping[str, str] = field(default_factory=lambda: _NONE)
    """Properties that RocketMQ gives a meaning, which users may not set: those of a request, for example."""
    cluster: str = ""
    """Of `RocketApp.outgoing`: where `publish` would send it. Of a message that is sent `Sending.cluster` says it."""


class SendStatus(Enum):
    """How safely the broker stored a message (Java: SendStatus)."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message was stored."""

    message_id: str
    """The unique id that the producer gave it (property UNIQ_KEY)."""
    offset_message_id: str
    """The broker's id: address and physical offset."""
    queue: MessageQueue
    queue_offset: int
    """Of a delayed message: its offset in the schedule topic. Of a half message: that in the topic of half messages."""
    status: SendStatus = SendStatus.OK
    recall_handle: str | None = None
    """What `recall` takes this message back with; only a message that waits for a broker's timer has one."""


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
