"""What decisions need of received messages: offsets and sizes; and of popped ones, by what they are acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self


class Pulled(Protocol):
    """A received message as `state` sees it."""

    @property
    def offset(self) -> int:
        """Its offset in its queue."""

    @property
    def size(self) -> int:
        """Bytes of its stored record, for flow control."""


class PulledRecords(Protocol):
    """Pulled messages of one queue that are not told apart, as `state` sees them."""

    @property
    def offset(self) -> int:
        """Of the first message."""

    @property
    def end(self) -> int:
        """The offset behind the last message."""

    @property
    def size(self) -> int:
        """Bytes of the stored records."""

    def __len__(self) -> int:
        """How many messages they are."""

    def since(self, offset: int) -> Self | None:
        """Only the messages from this offset on; None without such messages."""


class Handle(NamedTuple):
    """Says which hand-out of a message is acknowledged."""

    start: int
    """The offset from which the broker counts what it handed out at once."""
    popped_ms: int
    """When it was handed out, by the broker's clock."""
    invisible_ms: int
    """For how long it is hidden from others."""
    revive_queue: int
    """Where the broker looks for what was not acknowledged."""
    kind: int
    """Whether it lies in its topic, or in a retry topic that the broker keeps for it: see `wire.requests.pop`."""
    broker_name: str
    queue_id: int
    offset: int


class Acks(NamedTuple):
    """Messages that were handed out together and are acknowledged."""

    handle: Handle
    offsets: Sequence[int]
