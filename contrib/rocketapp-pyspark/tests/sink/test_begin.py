"""Where a queue begins: at the table, and not at all when the broker has lost what the table has not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rocketapp.plugin import MessageQueue, QueueStart, Tasks
from rocketapp_pyspark.batches import Limits
from rocketapp_pyspark.conformance import put
from rocketapp_pyspark.errors import SinkError
from rocketapp_pyspark.parquet import ParquetStore
from rocketapp_pyspark.writer import Writer

QUEUE = MessageQueue("orders", "broker-a", 0)


def write(rows: pa.Table, directory: Path) -> None:
    directory.mkdir()
    pq.write_table(rows, directory / "part.parquet")


@pytest.fixture
async def writer(tmp_path: Path) -> AsyncIterator[Writer]:
    """Its table has the first ten messages of the queue."""
    store = ParquetStore(tmp_path, "one", write=write)
    put(store, "a", *range(10))
    made = Writer(
        "one",
        store,
        to_table=lambda batch: None,
        limits=Limits(),
        drain_seconds=1.0,
        tasks=Tasks(),
        wall_clock=lambda: 1.0,
    )
    yield made
    made.close()


@pytest.mark.parametrize("committed", [0, 10, 25])
async def test_a_queue_begins_at_the_table_whatever_was_committed(writer: Writer, committed: int) -> None:
    assert await writer.begin(QueueStart(QUEUE, committed, 0, 30)) == 10


async def test_a_queue_that_the_table_has_never_seen_begins_where_the_group_does(writer: Writer) -> None:
    assert await writer.begin(QueueStart(QUEUE._replace(queue_id=5), 7, 0, 30)) is None


@pytest.mark.parametrize(
    ("min_offset", "max_offset", "problem"),
    [
        (0, 4, "the table has it up to #9, and the broker only up to #3: if the topic was created anew"),
        (15, 30, "the table has it up to #9, and the broker from #15 on: what lies between has expired"),
    ],
)
async def test_a_queue_whose_broker_has_lost_messages_does_not_begin(
    writer: Writer, min_offset: int, max_offset: int, problem: str
) -> None:
    with pytest.raises(SinkError, match=problem):
        await writer.begin(QueueStart(QUEUE, 0, min_offset, max_offset))
