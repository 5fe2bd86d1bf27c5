"""Offsets of queues, and committed offsets of groups.

Codes: QUERY_CONSUMER_OFFSET 14, UPDATE_CONSUMER_OFFSET 15, SEARCH_OFFSET_BY_TIMESTAMP
29, GET_MAX_OFFSET 30, GET_MIN_OFFSET 31, GET_EARLIEST_MSG_STORETIME 32. Java:
QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader,
SearchOffsetRequestHeader, GetMaxOffsetRequestHeader and their responses.
"""

from __future__ import annotations

from typing import Literal, Self

from rocketapp.errors import ProtocolError
from rocketapp.wire import fields as read
from rocketapp.wire.fields import Fields, Header, Int32, java_names

Boundary = Literal["lower", "upper"]


class QueryOffsetRequest(Header, frozen=True):
    """Asks for the committed offset of a group in a queue."""

    group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None
    """False: the broker must not answer 0 for a young queue. None omits the field, as old clients do."""


class CommitRequest(Header, frozen=True, rename=java_names(offset="commitOffset")):
    """Commits that a group has finished everything below `offset`, which it reads next."""

    group: str
    topic: str
    queue_id: Int32
    offset: int


class QueueRequest(Header, frozen=True):
    """Asks for a queue's maximum (30), minimum (31) or earliest store time (32)."""

    topic: str
    queue_id: Int32


class SearchOffsetRequest(Header, frozen=True, rename=java_names(timestamp_ms="timestamp", boundary="boundaryType")):
    """Asks for the offset of a queue at a store time."""

    topic: str
    queue_id: Int32
    timestamp_ms: int
    boundary: Boundary = "lower"
    """`lower`: the first message stored at that time or later; `upper`: the last one at that time or before."""

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        name = read.text(fields, "boundaryType", "lower").lower()
        if name not in ("lower", "upper"):
            raise ProtocolError(f"field boundaryType: {name[:40]!r} is neither lower nor upper")
        return super().from_fields({**(fields or {}), "boundaryType": name})


class OffsetResponse(Header, frozen=True):
    """An offset: the answer to 14, 29, 30 and 31."""

    offset: int


class StoreTimeResponse(Header, frozen=True, rename=java_names(timestamp_ms="timestamp")):
    """When the earliest message of a queue was stored: the answer to 32; -1 for an empty queue."""

    timestamp_ms: int
