"""Batch reads through Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.peers.loading import Sent

if TYPE_CHECKING:
    from conftest import Topics
    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.timeout(600)
"""Spark on a busy machine takes its time."""


def frame(spark: SparkSession, topics: Topics, **given: Any) -> DataFrame:
    reader = spark.read.format("rocketmq").option("nameServer", topics.name_server)
    for name, value in given.items():
        reader = reader.option(name, str(value))
    return reader.load()


def tasks_of(frame: DataFrame) -> int:
    """How many tasks read it, those without rows as well."""

    def once(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"n": pa.array([1], pa.int32())})

    return frame.mapInArrow(once, "n int").count()


def test_spark_finds_the_source_and_reads_a_topic(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new(queues=2)
    for queue_id in (0, 1):
        topics.loader.send(topic, queue_id, [Sent(f"{queue_id}-{n}".encode(), tag="t") for n in range(500)])
    found = frame(spark, topics, subscribe=topic, columns="queue_id,queue_offset,body,tags,properties")
    rows = {(row.queue_id, row.queue_offset): row for row in found.collect()}
    assert {place: bytes(row.body) for place, row in rows.items()} == {
        (queue_id, n): f"{queue_id}-{n}".encode() for queue_id in (0, 1) for n in range(500)
    }
    assert rows[0, 7].properties["TAGS"] == "t" == rows[0, 7].tags


def test_an_empty_read_has_no_rows_and_the_whole_schema(spark: SparkSession, here: Topics) -> None:
    topic = here.new()
    found = frame(spark, here, subscribe=topic, columns="body,store_timestamp")
    assert found.schema.simpleString() == "struct<body:binary,store_timestamp:timestamp>"
    assert found.collect() == []


@pytest.mark.parametrize(("option", "value", "parts"), [("minPartitions", 4, 4), ("maxRecordsPerPartition", 25, 4)])
def test_large_ranges_are_read_by_many_tasks(
    spark: SparkSession, here: Topics, option: str, value: int, parts: int
) -> None:
    topic = here.new()
    here.loader.send(topic, 0, [Sent(str(n).encode()) for n in range(100)])
    found = frame(spark, here, subscribe=topic, **{option: value})
    assert tasks_of(found) == parts
    assert sorted(int(row.body) for row in found.collect()) == list(range(100))


def test_filters_cut_what_is_read_when_asked_for(spark: SparkSession, here: Topics) -> None:
    if spark.version.startswith("4.0."):
        pytest.skip("Spark tells sources no filters before 4.1")
    topic = here.new(queues=3)
    for queue_id in range(3):
        here.loader.send(topic, queue_id, [Sent(b"x") for _ in range(40)])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = frame(spark, here, subscribe=topic, maxRecordsPerPartition=10, pushdown=True)
        some = found.where("queue_id = 1 AND queue_offset >= 5 AND queue_offset < 25")
        assert tasks_of(some) == 2
        assert sorted(row.queue_offset for row in some.collect()) == list(range(5, 25))
        whole = frame(spark, here, subscribe=topic, maxRecordsPerPartition=10)
        assert tasks_of(whole.where("queue_id = 1")) == 12
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_wrong_option_fails_at_load_or_planning_with_its_one_line(spark: SparkSession, here: Topics) -> None:
    with pytest.raises(Exception, match="unknown option 'subcribe': the nearest known one is 'subscribe'"):
        frame(spark, here, subcribe="t").collect()


def test_secrets_are_in_no_plan_and_no_error(spark: SparkSession, here: Topics, capsys: Any) -> None:
    topic = here.new()
    found = frame(spark, here, subscribe=topic, accessKey="AK", secretKey="S3CRET")
    found.explain(mode="extended")
    with pytest.raises(Exception, match="subscribePattern") as caught:
        frame(spark, here, subscribe=topic, subscribePattern="x", accessKey="AK", secretKey="S3CRET").collect()
    assert "S3CRET" not in capsys.readouterr().out + str(caught.value) + repr(found)


def test_executors_need_no_event_loop_no_plugin_manager_and_no_container() -> None:
    program = (
        "import sys, pyspark_rocketmq.reading\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('rocketapp.')}\n"
        "print(sorted(rooms & {'app', 'hooks', 'plugins', 'consumer', 'producer', 'client', 'transport', 'broker'}))\n"
        "print(sorted({'pluggy', 'dependency_injector', 'dynaconf', 'opentelemetry', 'click'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "[]\n[]\n"
