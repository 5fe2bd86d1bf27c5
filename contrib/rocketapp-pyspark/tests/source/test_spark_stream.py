"""Streams and writes through Spark."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
import pytest

from tests.peers.loading import Sent
from tests.peers.waiting import wait_until

if TYPE_CHECKING:
    from conftest import Topics
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)
"""Spark on a busy machine takes its time."""


def stream(spark: SparkSession, topics: Topics, **given: Any) -> DataFrame:
    reader = spark.readStream.format("rocketmq").option("nameServer", topics.name_server)
    for name, value in {"startingOffsets": "earliest", **given}.items():
        reader = reader.option(name, str(value))
    return reader.load()


def read(spark: SparkSession, topics: Topics, topic: str) -> DataFrame:
    options = {"nameServer": topics.name_server, "subscribe": topic, "includeProperties": "true"}
    return spark.read.format("rocketmq").options(**options).load()


def send(topics: Topics, topic: str, numbers: range) -> None:
    topics.loader.send(topic, numbers.start % 2, [Sent(str(n).encode()) for n in numbers])


def sizes(rows: Path) -> list[int]:
    """The rows of each batch of a stream into Parquet files, by the log that Spark keeps beside them.

    Spark Connect tells no progress of a query, of Spark's own sources neither.
    """
    found, seen = [], set[str]()
    for file in sorted((rows / "_spark_metadata").glob("[0-9]*"), key=lambda file: int(file.stem)):
        files = {json.loads(line)["path"] for line in file.read_text().splitlines()[1:]} - seen
        seen |= files
        found.append(sum(pq.read_metadata(unquote(urlsplit(path).path)).num_rows for path in files))
    return [count for count in found if count]


def test_a_stream_ends_with_what_was_there_in_batches_of_the_limit_and_goes_on_after_a_restart(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.new(queues=2)
    rows, seen = tmp_path / "rows", list[int]()
    send(topics, topic, range(250))

    def run() -> list[int]:
        """One run to the end; the rows of each batch."""
        frame = stream(spark, topics, subscribe=topic, maxOffsetsPerTrigger=100, columns="queue_id,queue_offset,body")
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(rows))
        )
        query.awaitTermination()
        before = len(seen)
        seen[:] = sizes(rows)
        return seen[before:]

    assert run() == ([250] if before_4_2(spark) else [100, 100, 50])
    send(topics, topic, range(251, 321))
    assert run() == [70]
    assert run() == []
    found = spark.read.parquet(str(rows)).collect()
    assert sorted(int(row.body) for row in found) == [*range(250), *range(251, 321)]
    assert len({(row.queue_id, row.queue_offset) for row in found}) == 320


@contextmanager
def live_load(topics: Topics, topic: str) -> Iterator[list[int]]:
    """Sends to both queues of a topic, a few hundred a second, until the end; yields the numbers that are sent."""
    sent: list[int] = []
    ended = threading.Event()

    def feed() -> None:
        while not ended.wait(0.05):
            some = range(len(sent), len(sent) + 20)
            topics.loader.send(topic, len(sent) // 20 % 2, [Sent(str(n).encode()) for n in some])
            sent.extend(some)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()


def test_available_now_ends_under_live_load_and_keeps_to_its_limit(
    spark: SparkSession, here: Topics, tmp_path: Path
) -> None:
    topic = here.new(queues=2)
    with live_load(here, topic) as sent:
        wait_until(lambda: len(sent) >= 400, within=60, what="400 messages are sent")
        frame = stream(spark, here, subscribe=topic, maxOffsetsPerTrigger=150, columns="queue_id,queue_offset")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "rows"))
        assert query.awaitTermination(300)
        after = len(sent)
        wait_until(lambda: len(sent) > after, within=60, what="the load goes on")
    batches = sizes(tmp_path / "rows")
    assert before_4_2(spark) or (max(batches) == 150 and len(batches) >= 3)
    places = sorted((row.queue_id, row.queue_offset) for row in spark.read.parquet(str(tmp_path / "rows")).collect())
    read = [sum(queue_id == number for queue_id, _ in places) for number in (0, 1)]
    assert 400 <= sum(read) < len(sent)
    assert places == [(number, offset) for number in (0, 1) for offset in range(read[number])]


def test_a_stream_that_breaks_within_batches_and_is_restarted_gives_the_rows_of_one_read(
    spark: SparkSession, here: Topics, tmp_path: Path
) -> None:
    topic = here.new(queues=2)
    for queue_id in (0, 1):
        some = [Sent(f"{queue_id}-{n}".encode(), tag="t", keys=f"k{n}") for n in range(300)]
        here.loader.send(topic, queue_id, some)
    flags = [tmp_path / "first", tmp_path / "second"]
    breaks = list(zip(map(str, flags), (120, 260), strict=True))

    def trip(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            last = max(batch.column("queue_offset").to_pylist(), default=-1)
            for flag, offset in breaks:
                if last >= offset and not os.path.exists(flag):  # noqa: PTH110 - this runs in a worker of Spark
                    raise RuntimeError(f"broken at {offset}")
            yield batch

    def run() -> None:
        frame = stream(
            spark, here, subscribe=topic, maxOffsetsPerTrigger=200, maxRecordsPerPartition=40, includeProperties=True
        )
        writer = frame.mapInArrow(trip, frame.schema).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.start(str(tmp_path / "rows")).awaitTermination()

    for flag, (_, offset) in zip(flags, breaks, strict=True):
        with pytest.raises(Exception, match=f"broken at {offset}"):
            run()
        flag.touch()
    run()
    found = spark.read.parquet(str(tmp_path / "rows")).orderBy("queue_id", "queue_offset").collect()
    assert found == read(spark, here, topic).orderBy("queue_id", "queue_offset").collect()
    assert len(found) == 600


def test_three_restarts_read_the_same_bytes_again_and_a_delta_table_has_each_row_once(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, table, kept = topics.new(queues=2), str(tmp_path / "table"), tmp_path / "kept"
    kept.mkdir()
    order = [("queue_id", "ascending"), ("queue_offset", "ascending")]

    def store(frame: DataFrame, number: int) -> None:
        """The first attempt at each of three batches breaks, ahead of the table's commit or behind it."""
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

        rows = frame.toArrow().sort_by(order)
        attempt = len(list(kept.glob(f"{number}-*")))
        pq.write_table(rows.combine_chunks(), kept / f"{number}-{attempt}")
        is_broken = attempt == 0 and number < 3
        if is_broken and number != 1:
            raise RuntimeError(f"broken ahead of commit {number}")
        done = DeltaTable(table).transaction_version("query") if DeltaTable.is_deltatable(table) else None
        if done is None or done < number:
            once = CommitProperties(app_transactions=[Transaction("query", number)])
            write_deltalake(table, rows, mode="append", commit_properties=once)
        if is_broken:
            raise RuntimeError(f"broken behind commit {number}")

    def run() -> None:
        frame = stream(spark, topics, subscribe=topic, maxOffsetsPerTrigger=40)
        writer = frame.writeStream.foreachBatch(store).option("checkpointLocation", str(tmp_path / "checkpoint"))
        # Before Spark 4.2 a query that repeats its last batch reads nothing new in the same run.
        for _ in range(2 if before_4_2(spark) else 1):
            writer.trigger(availableNow=True).start().awaitTermination()

    for number in range(3):
        send(topics, topic, range(61 * number, 61 * number + 60))
        with pytest.raises(Exception, match=rf"broken (ahead of|behind) commit {number}"):
            run()
    run()
    for number in range(3):
        assert (kept / f"{number}-0").read_bytes() == (kept / f"{number}-1").read_bytes()
    assert not list(kept.glob("*-2"))
    from deltalake import DeltaTable

    found = DeltaTable(table).to_pyarrow_table().sort_by(order)
    whole = read(spark, topics, topic).drop("properties")
    assert found.to_pylist() == whole.toArrow().sort_by(order).to_pylist()
    assert found.num_rows == 180


def is_remote() -> bool:
    """Whether the session is one of Spark Connect."""
    return os.environ.get("ROCKETAPP_TESTS_SPARK") == "connect"


def before_4_2(spark: SparkSession) -> bool:
    """Whether a query with AvailableNow is one batch."""
    return tuple(map(int, spark.version.split(".")[:2])) < (4, 2)


def test_the_progress_of_a_query_tells_the_ends_of_the_queues(
    spark: SparkSession, here: Topics, tmp_path: Path
) -> None:
    if before_4_2(spark):
        pytest.skip("sources do not report it before Spark 4.2")
    if is_remote():
        pytest.skip("Spark Connect tells no progress of a query")
    topic = here.new()
    send(here, topic, range(30))
    query = (
        stream(spark, here, subscribe=topic, maxOffsetsPerTrigger=10)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    first = next(progress for progress in query.recentProgress if progress["numInputRows"])
    (source,) = first["sources"]
    assert '"0": [10, 9,' in str(source["endOffset"]).replace("'", '"')
    latest = str(source["latestOffset"]).replace("'", '"')
    assert '"0": 30' in latest
    for figure in ("min", "max", "avg"):
        assert f'"{figure}OffsetsBehindLatest": 20' in latest


def test_a_frame_is_written_and_read_again(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new(queues=2)
    frame = spark.range(1000).selectExpr(
        "CAST(id AS STRING) AS body", "concat('k', id) AS keys", "CAST(id % 2 AS INT) AS queue_id",
        "map('user', CAST(id AS STRING)) AS properties",
    )  # fmt: skip
    frame.write.format("rocketmq").options(nameServer=topics.name_server, topic=topic).mode("append").save()
    wait_until(
        lambda: sum(topics.loader.end(topic, queue_id) for queue_id in (0, 1)) == 1000, within=60, what="all is there"
    )
    found = read(spark, topics, topic).collect()
    assert sorted(int(row.body) for row in found) == list(range(1000))
    for row in found:
        number = int(row.body)
        assert (row.keys, row.queue_id, row.properties["user"]) == (f"k{number}", number % 2, str(number))
    stamps = {row.properties["SPARK_ROW"] for row in found}
    assert len(stamps) == 1000
    assert len({stamp.partition("/")[0] for stamp in stamps}) == 1


def test_a_stream_is_written_and_each_row_names_its_query_and_batch(
    spark: SparkSession, here: Topics, tmp_path: Path
) -> None:
    source, target = here.new(), here.new()
    send(here, source, range(40))
    frame = stream(spark, here, subscribe=source, maxOffsetsPerTrigger=20, columns="body,tags")
    query = (
        frame.writeStream.format("rocketmq")
        .options(nameServer=here.name_server, topic=target, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = read(spark, here, target).collect()
    assert sorted(int(row.body) for row in found) == list(range(40))
    batches = {"0"} if before_4_2(spark) else {"0", "1"}
    assert {tuple(row.properties["SPARK_ROW"].split("/")[:2]) for row in found} == {(query.id, n) for n in batches}


@pytest.mark.parametrize(
    ("frame", "options", "problem"),
    [
        ("id AS bdy", {"topic": "t"}, "the nearest is 'body'"),
        ("CAST(id AS STRING) AS body", {}, "option topic or a column topic"),
        ("CAST(id AS STRING) AS body", {"topik": "t"}, "unknown option 'topik': the nearest known one is 'topic'"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_sent(
    spark: SparkSession, here: Topics, frame: str, options: dict[str, str], problem: str
) -> None:
    rows = spark.range(3).selectExpr(frame)
    with pytest.raises(Exception, match=problem):
        rows.write.format("rocketmq").options(nameServer=here.name_server, **options).mode("append").save()


def test_messages_are_not_overwritten(spark: SparkSession, here: Topics) -> None:
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS body")
    with pytest.raises(Exception, match="use mode"):
        rows.write.format("rocketmq").options(nameServer=here.name_server, topic="t").mode("overwrite").save()


def test_a_failed_send_fails_the_write(spark: SparkSession, here: Topics) -> None:
    rows = spark.range(1).selectExpr("repeat('x', 5000000) AS body")
    with pytest.raises(Exception, match="refused a message"):
        rows.write.format("rocketmq").options(nameServer=here.name_server, topic=here.new()).mode("append").save()
