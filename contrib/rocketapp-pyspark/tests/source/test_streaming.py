"""Streams: the reader as Spark drives it, without Spark."""

from __future__ import annotations

import importlib.util
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_rocketmq.cluster import CONNECTIONS, Connections
from pyspark_rocketmq.offsets import to_json
from pyspark_rocketmq.problems import DataLossError, RecordError
from pyspark_rocketmq.streaming import StreamReader
from rocketapp import MessageQueue
from tests.peers.loading import Sent
from tests.peers.waiting import wait_until

if TYPE_CHECKING:
    from conftest import Topics

HAS_LIMITS = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
"""From Spark 4.2 on the reader hears where a batch begins and how much it may read."""
if HAS_LIMITS:
    from pyspark.sql.streaming.datasource import ReadAllAvailable
else:

    class ReadAllAvailable:  # type: ignore[no-redef]
        """A limit, told by the name of its class."""


def reader(topics: Topics, **given: Any) -> StreamReader:
    return StreamReader(topics.options(streaming=True, **{"startingOffsets": "earliest", **given}))


def send(topics: Topics, topic: str, queue_id: int, count: int, size: int = 10) -> None:
    topics.loader.send(topic, queue_id, [Sent(bytes(size)) for _ in range(count)])


class Drive:
    """Runs batches as the engine does, and keeps the checkpoint."""

    def __init__(self, source: StreamReader, at: dict[str, Any] | None = None) -> None:
        self.source = source
        self.at = source.initialOffset() if at is None else at
        self.sizes: list[int] = []
        self.rows: list[tuple[str, int, int]] = []

    def batch(self, limit: Any = None, *, told: bool = True) -> bool:
        """One trigger; whether there was anything. `told`: from Spark 4.2 on the reader hears start and limit."""
        if HAS_LIMITS:
            limit = limit or self.source.getDefaultReadLimit()
        end = self.source.latestOffset(self.at, limit) if told else self.source.latestOffset()
        if json.dumps(end) == json.dumps(self.at):
            return False
        parts = self.source.partitions(json.loads(json.dumps(self.at)), json.loads(json.dumps(end)))
        rows = [
            (row["topic"], row["queue_id"], row["queue_offset"])
            for batch in itertools.chain.from_iterable(map(self.source.read, parts))
            for row in batch.to_pylist()
        ]
        self.sizes.append(len(rows))
        self.rows += rows
        self.source.commit(end)
        self.at = end
        return True

    def all(self, **how: Any) -> list[int]:
        while self.batch(**how):
            pass
        return self.sizes


def test_a_stream_reads_what_is_there_and_what_comes(topics: Topics) -> None:
    topic = topics.new(queues=2)
    send(topics, topic, 0, 50)
    drive = Drive(reader(topics, subscribe=topic))
    assert drive.all() == [50]
    send(topics, topic, 1, 30)
    send(topics, topic, 0, 5)
    assert drive.all() == [50, 35]
    assert sorted(drive.rows) == [*((topic, 0, n) for n in range(55)), *((topic, 1, n) for n in range(30))]


def test_a_stream_begins_at_the_end_by_default(topics: Topics) -> None:
    topic = topics.new()
    send(topics, topic, 0, 5)
    drive = Drive(StreamReader(topics.options(streaming=True, subscribe=topic)))
    send(topics, topic, 0, 3)
    drive.all()
    assert [row[2] for row in drive.rows] == [5, 6, 7]


@pytest.mark.parametrize("told", [True, False], ids=["Spark 4.2", "Spark 4.0"])
def test_the_limit_of_offsets_is_kept_whether_or_not_spark_tells_the_start(here: Topics, told: bool) -> None:
    topic = here.new(queues=2)
    send(here, topic, 0, 90)
    send(here, topic, 1, 10)
    drive = Drive(reader(here, subscribe=topic, maxOffsetsPerTrigger=40))
    assert drive.all(told=told) == [40, 40, 20]


def test_a_restarted_reader_that_is_not_told_the_start_goes_on_behind_the_last_batch(here: Topics) -> None:
    topic = here.new()
    send(here, topic, 0, 100)
    options = {"subscribe": topic, "maxOffsetsPerTrigger": 30}
    first = Drive(reader(here, **options))
    begin = first.at
    first.batch(told=False)
    again = reader(here, **options)
    again.partitions(begin, first.at)
    second = Drive(again, first.at)
    assert second.all(told=False) == [30, 30, 10]
    assert [row[2] for row in first.rows + second.rows] == list(range(100))


def test_a_reader_that_is_told_no_start_at_all_reads_everything_once(here: Topics) -> None:
    """Before Spark 4.2, the first batch of a run: its end is asked for before its start."""
    topic = here.new()
    send(here, topic, 0, 50)
    source = reader(here, subscribe=topic, maxOffsetsPerTrigger=20)
    end = source.latestOffset()
    drive = Drive(source, source.initialOffset())
    (part,) = source.partitions(drive.at, end)
    assert [row for batch in source.read(part) for row in batch.column("queue_offset").to_pylist()] == list(range(50))
    drive.at = end
    send(here, topic, 0, 30)
    assert drive.all(told=False) == [20, 10]


def begun_anew(topics: Topics, at: dict[str, Any], **given: Any) -> Drive:
    """The first batch of a run before Spark 4.2: its end is asked for without the checkpoint `at`, where it begins."""
    drive = Drive(reader(topics, **given), at)
    drive.batch(told=False)
    return drive


def test_a_queue_that_came_while_no_query_ran_is_read_from_its_first_message(topics: Topics) -> None:
    topic = topics.new(queues=1)
    send(topics, topic, 0, 3)
    before = Drive(reader(topics, subscribe=topic))
    before.all()
    topics.loader.make_topic(topic, 2)
    send(topics, topic, 1, 4)
    options = topics.options(subscribe=topic)
    wait_until(lambda: len(topics.view(options).readable(topic)) == 2, within=60, what="the name server has the queue")
    assert begun_anew(topics, before.at, subscribe=topic).rows == [(topic, 1, n) for n in range(4)]
    told = Drive(reader(topics, subscribe=topic), before.at)
    told.all()
    assert told.rows == [(topic, 1, n) for n in range(4)]


def test_a_run_that_is_not_told_its_start_sees_that_messages_are_gone(here: Topics) -> None:
    topic, other = here.new(), here.new()
    send(here, topic, 0, 10)
    whole = Drive(reader(here, subscribe=f"{topic},{other}"))
    whole.all()
    ((broker, _),) = whole.at["t"][topic].items()
    beyond = to_json({MessageQueue(topic, broker, 0): 500})
    with pytest.raises(DataLossError, match="ends at 10, the stream stands at 500"):
        begun_anew(here, beyond, subscribe=topic)
    here.loader.delete_topic(other)
    with pytest.raises(DataLossError, match=f"{other}@.*not exist"):
        begun_anew(here, whole.at, subscribe=f"{topic},{other}")
    loose = begun_anew(here, beyond, subscribe=topic, failOnDataLoss="false")
    send(here, topic, 0, 2)
    loose.batch(told=False)
    assert [row[2] for row in loose.rows] == [10, 11]


def test_a_query_without_a_checkpoint_begins_where_it_was_first_asked_to(here: Topics) -> None:
    topic = here.new()
    send(here, topic, 0, 5)
    source = StreamReader(here.options(streaming=True, subscribe=topic))
    begin = source.initialOffset()
    send(here, topic, 0, 3)
    end = source.latestOffset(begin, ReadAllAvailable())
    parts = source.partitions(source.initialOffset(), end)
    rows = itertools.chain.from_iterable(batch.to_pylist() for part in parts for batch in source.read(part))
    assert [row["queue_offset"] for row in rows] == [5, 6, 7]


def test_the_limit_of_bytes_is_kept_about(here: Topics) -> None:
    topic = here.new()
    send(here, topic, 0, 200, size=1000)
    sizes = Drive(reader(here, subscribe=topic, maxBytesPerTrigger=25_000)).all()
    assert sum(sizes) == 200
    assert 17 <= sizes[0] <= 25


def test_fewer_offsets_than_the_least_wait_for_more_or_for_their_time(here: Topics) -> None:
    topic = here.new()
    drive = Drive(reader(here, subscribe=topic, minOffsetsPerTrigger=10))
    send(here, topic, 0, 9)
    assert not drive.batch()
    send(here, topic, 0, 1)
    assert drive.all() == [10]
    patient = Drive(reader(here, subscribe=topic, minOffsetsPerTrigger=100, maxTriggerDelay="0s"))
    assert patient.all() == [10]


if HAS_LIMITS:  # Spark asks for it from 4.2 on

    @pytest.mark.parametrize(
        ("given", "kind"),
        [
            ({}, "ReadAllAvailable"),
            ({"maxOffsetsPerTrigger": 5}, "ReadMaxRows"),
            ({"maxBytesPerTrigger": 5}, "ReadMaxBytes"),
            ({"minOffsetsPerTrigger": 5}, "ReadMinRows"),
        ],
    )
    def test_spark_is_told_the_limit(here: Topics, given: dict[str, int], kind: str) -> None:
        assert type(reader(here, subscribe="t", **given).getDefaultReadLimit()).__name__ == kind


def test_spark_may_ask_for_everything_whatever_the_options(here: Topics) -> None:
    topic = here.new()
    send(here, topic, 0, 50)
    drive = Drive(reader(here, subscribe=topic, maxOffsetsPerTrigger=5, minOffsetsPerTrigger=5))
    assert drive.all(limit=ReadAllAvailable()) == [50]


def test_available_now_ends_although_more_keeps_coming_and_keeps_to_the_limit(here: Topics) -> None:
    topic = here.new(queues=2)
    send(here, topic, 0, 25)
    drive = Drive(reader(here, subscribe=topic, maxOffsetsPerTrigger=10, minOffsetsPerTrigger=10))
    drive.source.prepareForTriggerAvailableNow()
    for _ in range(6):
        send(here, topic, 0, 7)
        send(here, topic, 1, 7)
        drive.batch()
    assert drive.sizes == [10, 10, 5]
    ends = {
        MessageQueue(topic, broker, n): 25 + 42 if n == 0 else 42 for broker in drive.at["t"][topic] for n in (0, 1)
    }
    behind = {"minOffsetsBehindLatest": 42, "maxOffsetsBehindLatest": 42, "avgOffsetsBehindLatest": 42.0}
    assert drive.source.reportLatestOffset() == to_json(ends) | behind


def test_a_new_queue_is_read_from_its_first_message(topics: Topics) -> None:
    topic = topics.new(queues=1)
    drive = Drive(reader(topics, subscribe=topic))
    topics.loader.make_topic(topic, 2)
    send(topics, topic, 1, 4)
    # The name server hears of the queue a little later.
    for _ in range(100):
        drive.batch()
        if len(drive.rows) == 4:
            break
        topics.pause()
    assert drive.rows == [(topic, 1, n) for n in range(4)]


def test_a_checkpoint_beyond_the_end_is_data_loss_or_reads_what_comes(here: Topics) -> None:
    topic = here.new()
    send(here, topic, 0, 10)
    at = Drive(reader(here, subscribe=topic))
    at.all()
    ((broker, _),) = at.at["t"][topic].items()
    beyond = to_json({MessageQueue(topic, broker, 0): 500})
    with pytest.raises(DataLossError, match="ends at 10, the stream stands at 500"):
        reader(here, subscribe=topic).latestOffset(beyond, ReadAllAvailable())
    loose = Drive(reader(here, subscribe=topic, failOnDataLoss="false"), beyond)
    loose.batch()
    send(here, topic, 0, 2)
    loose.batch()
    assert [row[2] for row in loose.rows] == [10, 11]


def test_a_message_that_cannot_be_read_fails_the_stream_or_is_a_row_without_a_body(topics: Topics) -> None:
    topic = topics.new()
    send(topics, topic, 0, 3)
    topics.loader.put_one(topic, 0, b"not deflated", sys_flag=1)
    send(topics, topic, 0, 3)
    wait_until(lambda: topics.loader.end(topic, 0) == 7, within=60, what="all are there")
    strict = Drive(reader(topics, subscribe=topic))
    for _ in range(2):
        with pytest.raises(RecordError, match=f"{topic}@.*:0 offset 3: .*badRecords=null"):
            strict.batch()
    assert Drive(reader(topics, subscribe=topic, badRecords="null"), strict.at).all() == [7]


def test_a_topic_that_its_broker_denies_is_data_loss_or_waits(topics: Topics) -> None:
    kept, gone = topics.new(), topics.new()
    send(topics, kept, 0, 3)
    send(topics, gone, 0, 7)
    drive = Drive(reader(topics, subscribe=f"{kept},{gone}"))
    drive.all()
    topics.loader.delete_topic(gone, topics.name_server)
    options = topics.options(subscribe=kept)
    wait_until(lambda: gone not in topics.view(options).topics(), within=60, what="the name server forgot the topic")
    with pytest.raises(DataLossError, match=f"{gone}@.*not exist"):
        reader(topics, subscribe=f"{kept},{gone}").latestOffset(drive.at, ReadAllAvailable())
    loose = Drive(reader(topics, subscribe=f"{kept},{gone},missing", failOnDataLoss="false"), drive.at)
    send(topics, kept, 0, 2)
    assert loose.all() == [2]
    assert loose.at["t"][gone] == drive.at["t"][gone]
    assert Drive(reader(topics, subscribe=kept), drive.at).all() == [2], "what is not read any more is not lost"


def test_positions_are_copied_to_the_group_when_asked_for(topics: Topics) -> None:
    topic = topics.new()
    send(topics, topic, 0, 10)
    for group, copies in (("dashboards", "true"), ("silent", "false")):
        Drive(reader(topics, subscribe=topic, consumerGroup=group, commitOffsets=copies)).all()
    assert topics.committed(topic, "dashboards") == 10
    assert topics.committed(topic, "silent") == -1


def test_a_query_that_ends_leaves_no_connection_open(here: Topics) -> None:
    topic = here.new()
    source = reader(here, subscribe=topic)
    source.initialOffset()
    kept = CONNECTIONS.take(here.name_server, source._options.reach.access, timeout=5)
    CONNECTIONS.give_back(kept)
    source.stop()
    again = CONNECTIONS.take(here.name_server, source._options.reach.access, timeout=5)
    again.close()
    assert again is not kept


def test_a_connection_that_was_lent_is_used_again_unless_its_use_failed(here: Topics) -> None:
    pool, access = Connections(), here.options(subscribe="t").reach.access
    with pool.lent(pool.take(here.name_server, access, timeout=5)) as first:
        pass
    with pytest.raises(KeyError), pool.lent(pool.take(here.name_server, access, timeout=5)) as second:
        raise KeyError("the answer is a strange one")
    assert second is first
    third = pool.take(here.name_server, access, timeout=5)
    third.close()
    assert third is not first


def test_a_failed_copy_of_positions_is_logged_and_does_not_end_the_query(
    here: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    source = reader(here, subscribe="t", consumerGroup="g", commitOffsets="true", fetchOffset__numRetries=0)
    source.commit(to_json({MessageQueue("missing", "nowhere", 0): 5}))
    assert "the offsets of group g are not moved: nowhere: it does not answer" in caplog.text
