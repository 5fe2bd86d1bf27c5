"""Pull the next messages of a queue.

Codes: PULL_MESSAGE 11, LITE_PULL_MESSAGE 361. Java: PullMessageRequestHeader,
PullMessageResponseHeader, PullSysFlag. The body of the response is concatenated
records: see `wire.record`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rocketapp.wire import fields as read

FLAG_COMMIT, FLAG_SUSPEND, FLAG_SUBSCRIPTION, FLAG_CLASS_FILTER, FLAG_LITE = 1, 2, 4, 8, 16
"""Store `commit_offset` | the broker may hold the pull | the request contains the subscription | legacy | lite pull."""


class PullRequest(NamedTuple):
    """Asks for messages of one queue from `offset` on."""

    group: str
    topic: str
    queue_id: int
    offset: int
    max_messages: int
    sys_flag: int
    commit_offset: int
    suspend_ms: int
    sub_version: int
    expression: str | None = None
    """The filter when FLAG_SUBSCRIPTION is set; otherwise the broker uses the one of the heartbeat."""
    expression_type: str = "TAG"
    max_bytes: int | None = None
    broker_name: str | None = None

    def to_fields(self) -> dict[str, str]:
        fields = {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.offset),
            "maxMsgNums": str(self.max_messages),
            "sysFlag": str(self.sys_flag),
            "commitOffset": str(self.commit_offset),
            "suspendTimeoutMillis": str(self.suspend_ms),
            "subVersion": str(self.sub_version),
            "expressionType": self.expression_type,
        }
        if self.expression is not None:
            fields["subscription"] = self.expression
        if self.max_bytes is not None:
            fields["maxMsgBytes"] = str(self.max_bytes)
        if self.broker_name is not None:
            fields["bname"] = self.broker_name
        return fields

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> PullRequest:
        return cls(
            group=read.text(fields, "consumerGroup"),
            topic=read.text(fields, "topic"),
            queue_id=read.int32(fields, "queueId"),
            offset=read.int64(fields, "queueOffset"),
            max_messages=read.int32(fields, "maxMsgNums"),
            sys_flag=read.int32(fields, "sysFlag"),
            commit_offset=read.int64(fields, "commitOffset", 0),
            suspend_ms=read.int64(fields, "suspendTimeoutMillis", 0),
            sub_version=read.int64(fields, "subVersion", 0),
            expression=read.optional_text(fields, "subscription"),
            expression_type=read.text(fields, "expressionType", "TAG"),
            max_bytes=read.optional_int32(fields, "maxMsgBytes"),
            broker_name=read.optional_text(fields, "bname"),
        )


class PullResponse(NamedTuple):
    """The offset of the next pull, and the first and last offset of the queue."""

    suggested_broker_id: int
    next_offset: int
    min_offset: int
    max_offset: int

    def to_fields(self) -> dict[str, str]:
        return {
            "suggestWhichBrokerId": str(self.suggested_broker_id),
            "nextBeginOffset": str(self.next_offset),
            "minOffset": str(self.min_offset),
            "maxOffset": str(self.max_offset),
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> PullResponse:
        return cls(
            read.int64(fields, "suggestWhichBrokerId", 0),
            read.int64(fields, "nextBeginOffset"),
            read.int64(fields, "minOffset"),
            read.int64(fields, "maxOffset"),
        )
