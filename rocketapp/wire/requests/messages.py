"""Stored messages: by their place in the commit log, and by their keys.

Codes: QUERY_MESSAGE 12, VIEW_MESSAGE_BY_ID 33. Java: QueryMessageRequestHeader,
ViewMessageRequestHeader. The body of both answers is concatenated records: see `wire.record`.
"""

from __future__ import annotations

from rocketapp.wire.fields import Header, Int32, MissingText, java_names

LATEST_MS = 2**63 - 1
UNIQUE = "_UNIQUE_KEY_QUERY"
"""Looks a message up by its unique id instead of by one of its keys (Java: MixAll.UNIQUE_MSG_QUERY_FLAG)."""


class ViewRequest(Header, frozen=True, rename=java_names(physical_offset="offset")):
    """Asks for the message at one position of the commit log."""

    topic: MissingText
    physical_offset: int


class QueryRequest(
    Header,
    frozen=True,
    rename=java_names(most="maxNum", begin_ms="beginTimestamp", end_ms="endTimestamp", unique=UNIQUE),
):
    """Asks the index of a topic for a key. The index compares hashes, so an answer may hold other messages too."""

    topic: str
    key: str
    most: Int32 = 64
    begin_ms: int = 0
    end_ms: int = LATEST_MS
    unique: bool | None = False
    """The key is a unique id. None leaves the field out."""
