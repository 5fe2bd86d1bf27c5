"""Received messages as `state` sees them: offsets and sizes; and the handles by which popped ones are acknowledged."""

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
    """Pulled messages of one queue that are not decoded one by one, as `state` sees them."""

    @property
    def offset(self) -> int:
        """The offset of the first message."""

    @property
    def end(self) -> int:
        """The offset behind the last message."""

    @property
    def size(self) -> int:
        """Bytes of the stored records."""

    def __len__(self) -> int:
        """The number of messages."""

    def since(self, offset: int) -> Self | None:
        """The messages from this offset on; None without any."""


class Handle(NamedTuple):
    """Identifies the pop by which a message was received: needed to acknowledge it."""

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
    """Acknowledgements of messages that were popped together."""

    handle: Handle
    offsets: Sequence[int]
