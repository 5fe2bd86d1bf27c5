"""Ranges of real queues, pulled without Spark."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_rocketmq.planning import Range
from pyspark_rocketmq.problems import DataLossError, OptionError
from pyspark_rocketmq.reading import RangePartition, read_partition
from pyspark_rocketmq.resolving import batch_ranges, queues_of
from rocketapp import MessageQueue, NoRouteError, TransportError
from tests.peers.loading import Sent

if TYPE_CHECKING:
    from conftest import Topics


def rows(topics: Topics, **given: Any) -> list[dict[str, Any]]:
    """What a batch read with these options gives, without Spark."""
    options = topics.options(**given)
    whole = batch_ranges(topics.view(options), options)
    batches = itertools.chain.from_iterable(read_partition(options, RangePartition(part)) for part in whole)
    return [row for batch in batches for row in batch.to_pylist()]


def numbered(count: int, *, tags: str = "", size: int = 0) -> list[Sent]:
    return [
        Sent(str(n).encode().ljust(size, b"."), tag=tags[n % len(tags)] if tags else None, unique_id=f"ID{n}")
        for n in range(count)
    ]


@pytest.mark.parametrize("depth", [1, 8])
def test_every_message_of_every_queue_comes_once_and_in_order(topics: Topics, depth: int) -> None:
    topic = topics.new(queues=3)
    for queue_id, count in ((0, 1000), (2, 37)):
        topics.loader.send(topic, queue_id, numbered(count))
    found = rows(topics, subscribe=topic, pullDepth=depth)
    assert [(row["queue_id"], row["queue_offset"], row["body"]) for row in found] == [
        *((0, n, str(n).encode()) for n in range(1000)),
        *((2, n, str(n).encode()) for n in range(37)),
    ]


def test_large_messages_come_whole_although_a_pull_holds_few_of_them(topics: Topics) -> None:
    topic = topics.new()
    topics.loader.send(topic, 0, numbered(40, size=60_000), at_once=10)
    found = rows(topics, subscribe=topic)
    assert [row["queue_offset"] for row in found] == list(range(40))
    assert {len(row["body"]) for row in found} == {60_000}


@pytest.mark.parametrize("tags", ["a", "a || c", "BB"])
def test_tags_select_messages_and_what_they_leave_out_is_no_data_loss(topics: Topics, tags: str) -> None:
    topic = topics.new()
    chosen = [part.strip() for part in tags.split("||")]
    # `Aa` and `BB` have one hash, by which brokers select.
    names = ["a", "b", "c", "Aa", "BB"]
    topics.loader.send(topic, 0, [Sent(b"x", tag=names[n % 5]) for n in range(2000)])
    found = rows(topics, subscribe=topic, tags=tags)
    assert [row["queue_offset"] for row in found] == [n for n in range(2000) if names[n % 5] in chosen]


def test_places_and_offsets_bound_a_read(topics: Topics) -> None:
    topic = topics.new()
    topics.loader.send(topic, 0, numbered(100))
    (queue,) = queues_of(topics.view(topics.options(subscribe=topic)), topics.options(subscribe=topic).topics)
    start, end = (f'{{"{topic}": {{"{queue.broker_name}": {{"0": {offset}}}}}}}' for offset in (10, 20))
    found = rows(topics, subscribe=topic, startingOffsets=start, endingOffsets=end)
    assert [row["queue_offset"] for row in found] == list(range(10, 20))
    assert rows(topics, subscribe=topic, startingOffsets="latest") == []


def test_times_bound_a_read(topics: Topics) -> None:
    topic = topics.new()
    topics.loader.send(topic, 0, numbered(50), at_once=10)
    stored = [int(row["store_timestamp"].timestamp() * 1000) for row in rows(topics, subscribe=topic)]
    middle = stored[25]
    inside = [n for n, ms in enumerate(stored) if ms >= middle]
    assert [row["queue_offset"] for row in rows(topics, subscribe=topic, startingTimestamp=middle)] == inside
    below = [row["queue_offset"] for row in rows(topics, subscribe=topic, endingTimestamp=middle)]
    assert below == list(range(inside[0]))
    late = stored[-1] + 60_000
    with pytest.raises(OptionError, match="no message at or after"):
        rows(topics, subscribe=topic, startingTimestamp=late)
    later = rows(topics, subscribe=topic, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert later == []
    assert len(rows(topics, subscribe=topic, endingTimestamp=late)) == 50


def test_times_may_be_given_by_queue(topics: Topics) -> None:
    topic = topics.new(queues=2)
    for queue_id in (0, 1):
        topics.loader.send(topic, queue_id, numbered(5))
    broker = rows(topics, subscribe=topic)[0]["broker"]
    late = 4_000_000_000_000
    times = f'{{"{topic}": {{"{broker}": {{"1": {late}}}}}}}'
    found = rows(topics, subscribe=topic, startingOffsetsByTimestamp=times, startingOffsetsByTimestampStrategy="latest")
    assert {row["queue_id"] for row in found} == {0}
    early = f'{{"{topic}": {{"{broker}": {{"1": 0}}}}}}'
    assert {row["queue_id"] for row in rows(topics, subscribe=topic, endingOffsetsByTimestamp=early)} == {0}


def test_topics_by_list_pattern_and_assignment(topics: Topics) -> None:
    first, second = topics.new(queues=2), topics.new(queues=2)
    for topic in (first, second):
        for queue_id in (0, 1):
            topics.loader.send(topic, queue_id, numbered(3))

    def read(**given: Any) -> set[tuple[str, int]]:
        return {(row["topic"], row["queue_id"]) for row in rows(topics, **given)}

    every = {(first, 0), (first, 1), (second, 0), (second, 1)}
    assert read(subscribe=f"{first},{second}") == every
    assert read(subscribePattern=f"({first}|{second})") == every
    broker = rows(topics, subscribe=first)[0]["broker"]
    assert read(assign=f'{{"{second}": {{"{broker}": [1]}}}}') == {(second, 1)}
    with pytest.raises(OptionError, match="does not exist"):
        read(assign=f'{{"{second}": {{"{broker}": [2]}}}}')


def test_a_topic_that_the_cluster_does_not_know_is_named(topics: Topics) -> None:
    with pytest.raises(NoRouteError, match="topic missing"):
        rows(topics, subscribe="missing", fetchOffset__numRetries=0)


def test_messages_behind_the_end_of_a_queue_are_lost_or_skipped(topics: Topics) -> None:
    topic = topics.new()
    topics.loader.send(topic, 0, numbered(10))
    broker = rows(topics, subscribe=topic)[0]["broker"]
    part = RangePartition(Range(MessageQueue(topic, broker, 0), 4, 30))
    with pytest.raises(DataLossError, match=r"messages from offset \d+ are gone: the queue ends at 10"):
        list(read_partition(topics.options(subscribe=topic), part))
    loose = topics.options(subscribe=topic, failOnDataLoss="false")
    found = [row for batch in read_partition(loose, part) for row in batch.to_pylist()]
    assert [row["queue_offset"] for row in found] == list(range(4, 10))


def test_sql_selects_messages(topics: Topics, cluster: Any) -> None:
    topic = topics.new()
    topics.loader.send(topic, 0, [Sent(b"x", extra=(("size", str(n % 10)),)) for n in range(200)])
    if cluster.name == "apache":
        topics.loader.configure("enablePropertyFilter=true")
    found = rows(topics, subscribe=topic, sql="size > 7")
    assert [row["queue_offset"] for row in found] == [n for n in range(200) if n % 10 > 7]


def test_an_unreachable_name_server_is_named() -> None:
    from pyspark_rocketmq.cluster import Cluster
    from pyspark_rocketmq.options import read_options

    options = read_options(
        {"nameServer": "127.0.0.1:1", "subscribe": "t", "fetchOffset.numRetries": "0"}, streaming=False
    )
    with pytest.raises(TransportError, match=r"127\.0\.0\.1:1: cannot connect"):
        Cluster(options.reach).readable("t")


def test_a_partition_without_a_range_has_no_rows(here: Topics) -> None:
    from pyspark.sql.datasource import InputPartition

    assert list(read_partition(here.options(subscribe="t"), InputPartition(None))) == []
