"""The messages that a producer sends, and the results that it receives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

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
