from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import datasource as spark

from pyspark_rocketmq.planning import Range
from pyspark_rocketmq.pushdown import Wanted, wanted_of
from pyspark_rocketmq.resolving import batch_ranges
from rocketapp import MessageQueue
from tests.cases import cases
from tests.peers.loading import Sent

if TYPE_CHECKING:
    from conftest import Topics

if not hasattr(spark, "EqualTo"):
    pytest.skip("Spark tells sources no filters before 4.1", allow_module_level=True)

AT = datetime(2026, 1, 1, 0, 0, 0, 1500, tzinfo=UTC)
AT_MS = 1_767_225_600_001


@cases(
    "filters, expected",
    [
        ([], Wanted()),
        ([spark.EqualTo(("queue_id",), 1)], Wanted(among={"queue_id": frozenset({1})})),
        ([spark.In(("topic",), ("a", "b")), spark.EqualTo(("topic",), "a")], Wanted(among={"topic": frozenset({"a"})})),
        ([spark.EqualNullSafe(("broker",), "b")], Wanted(among={"broker": frozenset({"b"})})),
        ([spark.GreaterThan(("queue_offset",), 5), spark.LessThan(("queue_offset",), 9)], Wanted(first=6, last=8)),
        (
            [spark.GreaterThanOrEqual(("queue_offset",), 5), spark.LessThanOrEqual(("queue_offset",), 9)],
            Wanted(first=5, last=9),
        ),
        ([spark.GreaterThan(("queue_offset",), 5), spark.GreaterThan(("queue_offset",), 7)], Wanted(first=8)),
        ([spark.EqualTo(("queue_offset",), 5)], Wanted(first=5, last=5)),
        ([spark.GreaterThan(("store_timestamp",), AT)], Wanted(since_ms=AT_MS)),
        ([spark.LessThan(("store_timestamp",), AT)], Wanted(until_ms=AT_MS + 1)),
        ([spark.EqualTo(("tags",), "x"), spark.IsNotNull(("queue_id",))], Wanted()),
        ([spark.Not(spark.EqualTo(("queue_id",), 1)), spark.EqualTo(("properties", "queue_id"), 1)], Wanted()),
    ],
)  # fmt: skip
def test_filters_leave_queues_offsets_and_times(filters: list[Any], expected: Wanted) -> None:
    assert wanted_of(filters) == expected


def test_what_is_left_of_a_range() -> None:
    whole = Range(MessageQueue("t", "b", 0), 10, 20)
    assert Wanted(first=15, last=17).within(whole) == whole._replace(start=15, end=18)
    assert Wanted(first=0, last=100).within(whole) == whole
    assert Wanted(first=30).within(whole) == whole._replace(start=30, end=30)


def test_times_are_bounded_by_what_brokers_find(topics: Topics) -> None:
    topic = topics.new(queues=2)
    for queue_id in (0, 1):
        topics.loader.send(topic, queue_id, [Sent(b"x") for _ in range(10)])
    options = topics.options(subscribe=topic)
    view = topics.view(options)
    late = 4_000_000_000_000
    assert batch_ranges(view, options, Wanted(since_ms=late)) == []
    assert batch_ranges(view, options, Wanted(until_ms=5)) == []
    whole = batch_ranges(view, options)
    assert batch_ranges(view, options, Wanted(since_ms=5, until_ms=late)) == whole
    assert batch_ranges(view, options, Wanted(among={"queue_id": frozenset({1})}, last=3)) == [whole[1]._replace(end=4)]
