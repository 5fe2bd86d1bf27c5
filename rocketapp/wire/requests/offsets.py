"""Offsets of queues, and committed offsets of groups.

Codes: QUERY_CONSUMER_OFFSET 14, UPDATE_CONSUMER_OFFSET 15, SEARCH_OFFSET_BY_TIMESTAMP
29, GET_MAX_OFFSET 30, GET_MIN_OFFSET 31, GET_EARLIEST_MSG_STORETIME 32. Java:
QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader,
SearchOffsetRequestHeader, GetMaxOffsetRequestHeader and their responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from rocketapp.errors import ProtocolError
from rocketapp.wire import fields as read

Boundary = Literal["lower", "upper"]


class QueryOffsetRequest(NamedTuple):
    """Asks for the committed offset of a group in a queue."""

    group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None
    """False: the broker must not answer 0 for a young queue. None omits the field, as old clients do."""

    def to_fields(self) -> dict[str, str]:
        fields = {"consumerGroup": self.group, "topic": self.topic, "queueId": str(self.queue_id)}
        if self.set_zero_if_not_found is not None:
            fields["setZeroIfNotFound"] = read.boolean_text(self.set_zero_if_not_found)
        return fields

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> QueryOffsetRequest:
        given = read.optional_text(fields, "setZeroIfNotFound")
        return cls(
            read.text(fields, "consumerGroup"),
            read.text(fields, "topic"),
            read.int32(fields, "queueId"),
            None if given is None else given.lower() == "true",
        )


class CommitRequest(NamedTuple):
    """Commits that a group has finished everything below `offset`, which it reads next."""

    group: str
    topic: str
    queue_id: int
    offset: int

    def to_fields(self) -> dict[str, str]:
        return {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "commitOffset": str(self.offset),
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> CommitRequest:
        return cls(
            read.text(fields, "consumerGroup"),
            read.text(fields, "topic"),
            read.int32(fields, "queueId"),
            read.int64(fields, "commitOffset"),
        )


class QueueRequest(NamedTuple):
    """Asks for a queue's maximum (30), minimum (31) or earliest store time (32)."""

    topic: str
    queue_id: int

    def to_fields(self) -> dict[str, str]:
        return {"topic": self.topic, "queueId": str(self.queue_id)}

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> QueueRequest:
        return cls(read.text(fields, "topic"), read.int32(fields, "queueId"))


class SearchOffsetRequest(NamedTuple):
    """Asks for the offset of a queue at a store time."""

    topic: str
    queue_id: int
    timestamp_ms: int
    boundary: Boundary = "lower"
    """`lower`: the first message stored at that time or later; `upper`: the last one at that time or before."""

    def to_fields(self) -> dict[str, str]:
        return {
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "timestamp": str(self.timestamp_ms),
            "boundaryType": self.boundary,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> SearchOffsetRequest:
        name = read.text(fields, "boundaryType", "lower").lower()
        if name not in ("lower", "upper"):
            raise ProtocolError(f"field boundaryType: {name[:40]!r} is neither lower nor upper")
        return cls(
            read.text(fields, "topic"),
            read.int32(fields, "queueId"),
            read.int64(fields, "timestamp"),
            "upper" if name == "upper" else "lower",
        )


class OffsetResponse(NamedTuple):
    """An offset: the answer to 14, 29, 30 and 31."""

    offset: int

    def to_fields(self) -> dict[str, str]:
        return {"offset": str(self.offset)}

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> OffsetResponse:
        return cls(read.int64(fields, "offset"))


class StoreTimeResponse(NamedTuple):
    """When the earliest message of a queue was stored: the answer to 32; -1 for an empty queue."""

    timestamp_ms: int

    def to_fields(self) -> dict[str, str]:
        return {"timestamp": str(self.timestamp_ms)}

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> StoreTimeResponse:
        return cls(read.int64(fields, "timestamp"))
