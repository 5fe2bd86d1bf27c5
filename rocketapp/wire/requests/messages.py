"""Stored messages: by their place in the commit log, and by their keys.

Codes: QUERY_MESSAGE 12, VIEW_MESSAGE_BY_ID 33. Java: QueryMessageRequestHeader,
ViewMessageRequestHeader. The body of both answers is concatenated records: see `wire.record`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rocketapp.wire import fields as read

LATEST_MS = 2**63 - 1
UNIQUE = "_UNIQUE_KEY_QUERY"
"""Looks a message up by its unique id instead of by one of its keys (Java: MixAll.UNIQUE_MSG_QUERY_FLAG)."""


class ViewRequest(NamedTuple):
    """Asks for the message at one position of the commit log."""

    topic: str
    physical_offset: int

    def to_fields(self) -> dict[str, str]:
        return {"topic": self.topic, "offset": str(self.physical_offset)}

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> ViewRequest:
        return cls(read.text(fields, "topic", ""), read.int64(fields, "offset"))


class QueryRequest(NamedTuple):
    """Asks the index of a topic for a key. The index compares hashes, so an answer may hold other messages too."""

    topic: str
    key: str
    most: int = 64
    begin_ms: int = 0
    end_ms: int = LATEST_MS
    unique: bool = False
    """The key is a unique id."""

    def to_fields(self) -> dict[str, str]:
        return {
            "topic": self.topic,
            "key": self.key,
            "maxNum": str(self.most),
            "beginTimestamp": str(self.begin_ms),
            "endTimestamp": str(self.end_ms),
            UNIQUE: read.boolean_text(self.unique),
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> QueryRequest:
        return cls(
            read.text(fields, "topic"),
            read.text(fields, "key"),
            read.int32(fields, "maxNum"),
            read.int64(fields, "beginTimestamp"),
            read.int64(fields, "endTimestamp"),
            read.boolean(fields, UNIQUE),
        )
