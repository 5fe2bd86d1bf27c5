"""The broker's filters: tags by their hash in the consume queue, SQL92 by the properties in the record."""

from __future__ import annotations

from typing import NamedTuple

from rocketapp.broker.store.reading import LEAST_SCANNED, MOST_BYTES, Matches, ReadResult, ReadStatus
from rocketapp.broker.store.store import MessageStore
from rocketapp.errors import BrokerError
from rocketapp.model.subscription import ALL_TAGS, SQL92, TAGS, SubscriptionData, parse_tags
from rocketapp.state.sql_filter import Accepts, compile_sql
from rocketapp.wire import properties as names
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.java import string_hash
from rocketapp.wire.layout import take_apart

MOST_READ_BYTES = 4 * MOST_BYTES
"""Bytes of records that one pull with SQL reads. Other requests wait meanwhile, and the reader asks again."""


class Filter(NamedTuple):
    """A filter; both fields None: all messages match."""

    tags: Matches | None = None
    sql: Accepts | None = None


def filter_of(subscription: SubscriptionData) -> Filter:
    """The broker's part of filtering. Raises ValueError for an expression that is illegal, or of an unknown kind."""
    kind = subscription.expression_type
    if kind == SQL92:
        return Filter(sql=compile_sql(subscription.expression))
    if kind not in ("", TAGS):
        raise ValueError(f"{kind[:40]} is no kind of filter: TAG and SQL92 are")
    return Filter(frozenset(map(string_hash, subscription.tags)).__contains__ if subscription.tags else None)


def read_filtered(
    store: MessageStore,
    queue: tuple[str, int],
    offset: int,
    *,
    max_messages: int,
    max_bytes: int,
    wanted: Filter,
    trusts: bool = False,
) -> ReadResult:
    """Read the matching messages of a queue from `offset` on; the result is as of `MessageStore.read`."""
    accepts, at, scanned = wanted.sql, offset, 0
    while True:
        result = store.read(
            *queue, at, max_messages=max_messages, max_bytes=max_bytes, matches=wanted.tags, trusts=trusts
        )
        if accepts is None or (result.status is not ReadStatus.FOUND and at == offset):
            return result
        records = _accepted(result.body, accepts)
        if records:
            return result._replace(body=b"".join(records), count=len(records))
        scanned += len(result.body)
        has_more = result.status is ReadStatus.FOUND and result.next_offset < result.max_offset
        at = result.next_offset
        if not has_more or at >= offset + LEAST_SCANNED or scanned >= MOST_READ_BYTES:
            return result._replace(status=ReadStatus.NO_MATCHED_MESSAGE, body=b"", count=0)


def _accepted(body: bytes, accepts: Accepts) -> list[bytes]:
    records, at = [], 0
    while at < len(body):
        parts = take_apart(body, at)
        if accepts(names.decode(parts.properties)):
            records.append(body[at : parts.end])
        at = parts.end
    return records


def asked_filter(topic: str, expression: str | None, expression_type: str) -> Filter:
    """The filter of a request that contains its subscription. Raises BrokerError when it is illegal."""
    expression, kind = expression or ALL_TAGS, expression_type or TAGS
    try:
        tags = parse_tags(expression) if kind == TAGS else frozenset()
        return filter_of(SubscriptionData(topic, expression, tags, expression_type=kind))
    except ValueError as error:
        raise BrokerError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
        ) from None
