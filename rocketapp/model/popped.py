"""The words of messages that a broker hands out and hides from others until they are acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


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
