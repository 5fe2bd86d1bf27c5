"""Pull the next messages of a queue.

Codes: PULL_MESSAGE 11, LITE_PULL_MESSAGE 361. Java: PullMessageRequestHeader,
PullMessageResponseHeader, PullSysFlag. The body of the response is concatenated
records: see `wire.record`.
"""

from __future__ import annotations

from rocketapp.wire.fields import Int32, Int64, MissingInt, OftenReadHeader, java_names

FLAG_COMMIT, FLAG_SUSPEND, FLAG_SUBSCRIPTION, FLAG_CLASS_FILTER, FLAG_LITE = 1, 2, 4, 8, 16
"""Store `commit_offset` | the broker may hold the pull | the request contains the subscription | legacy | lite pull."""


class PullRequest(
    OftenReadHeader,
    frozen=True,
    rename=java_names(
        offset="queueOffset",
        max_messages="maxMsgNums",
        suspend_ms="suspendTimeoutMillis",
        expression="subscription",
        max_bytes="maxMsgBytes",
    ),
):
    """Asks for messages of one queue from `offset` on."""

    group: str
    topic: str
    queue_id: Int32
    offset: Int64
    max_messages: Int32
    sys_flag: Int32
    commit_offset: Int64 = 0
    suspend_ms: Int64 = 0
    sub_version: Int64 = 0
    expression: str | None = None
    """The filter when FLAG_SUBSCRIPTION is set; otherwise the broker uses the one of the heartbeat."""
    expression_type: str = "TAG"
    max_bytes: Int32 | None = None
    broker_name: str | None = None


class PullResponse(
    OftenReadHeader,
    frozen=True,
    rename=java_names(suggested_broker_id="suggestWhichBrokerId", next_offset="nextBeginOffset"),
):
    """The offset of the next pull, and the first and last offset of the queue."""

    suggested_broker_id: MissingInt
    next_offset: Int64
    min_offset: Int64
    max_offset: Int64
