"""What one sink of a running app consists of, put together from what was declared."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from rocketapp import SetupError
from rocketapp.plugin import AppConfig, ConsumerConfig, Surface, Tasks
from rocketapp.plugin import Sink as SinkMode
from rocketapp_lake.bad_rows import BadTable, BadTopic, Guard
from rocketapp_lake.batches import Buffer, Limits
from rocketapp_lake.committer import Attempt
from rocketapp_lake.counts import Counts
from rocketapp_lake.declared import Sink
from rocketapp_lake.errors import SinkError
from rocketapp_lake.formats import FORMATS
from rocketapp_lake.settings import LakeConfig
from rocketapp_lake.store import Store
from rocketapp_lake.worker import Worker
from rocketapp_lake.writer import Writer
from rocketapp_lake.writing import BatchWriter

log = logging.getLogger("rocketapp.lake")

DRAIN_SHARE = 0.8
"""Of `app.drain_timeout`: what is left is for the offsets and the locks."""
BUFFER_SHARE = 2
"""A sink holds at most this part of `consumer.cache_max_bytes`, as one topic does."""
QUEUE_BATCHES = 2
"""Batches that one queue may pull ahead: one is written while the next one is gathered."""
MOST_BAD = 0.05
"""The share of bad rows that a queue may have unless the sink says otherwise."""
SLOW = 4
"""Times its limits that a batch may grow to while the one before takes longer than it: no batch waits for another."""


def assembled(sink: Sink, surface: Surface, batch_writer: BatchWriter | None, tasks: Tasks) -> tuple[Writer, SinkMode]:
    """The writer of a sink, and how its topic is consumed.

    Raises SetupError for a type that no codec of the app reads, and a store that cannot do what is asked.
    """
    settings, bad = surface.options(LakeConfig), sink.of_bad_rows()
    new_store = FORMATS[sink.format].new_store
    try:
        store, rows = new_store(sink, settings, batch_writer), sink.rows(surface.reader)
    except (SinkError, TypeError, ValueError) as error:
        raise SetupError(sink.place, str(error)) from None

    bad_table = BadTable(partial(new_store, bad, settings, batch_writer), bad.name, rows, wall_clock)
    topic = BadTopic(surface.publish, sink.bad_topic, sink.cluster, sink.name)
    most_bad = MOST_BAD if sink.bad_rows_max_ratio is None else sink.bad_rows_max_ratio
    bad_stores = [bad_table.store] if sink.bad_rows == "table" else []
    held, counts = surface.options(ConsumerConfig).cache_max_bytes // BUFFER_SHARE, Counts()
    most = max(1, held // QUEUE_BATCHES)
    limits = Limits(rows=sink.flush_rows, bytes=min(sink.flush_bytes, most), seconds=sink.flush_seconds)
    guard = Guard(most_bad, topic.put if sink.bad_rows == "topic" else None) if sink.sets_aside else None
    attempt = partial(
        Attempt,
        store,
        sink.name,
        make=rows.made,
        now=wall_clock,
        evolution=sink.evolution,
        put_aside=None if guard is None else guard.put,
        names_bad=sink.bad_rows == "table",
    )
    rows_came = None if sink.compact_every is None else asyncio.Event()
    if rows_came is not None:
        tasks.start(compacting(sink, [store, *bad_stores], rows_came, counts), f"sink {sink.name} compacts")
    writer = Writer(
        sink.name,
        store,
        attempt=attempt,
        worker=Worker(f"sink {sink.name}"),
        guard=guard,
        bad_table=bad_table,
        rows_came=rows_came,
        limits=limits,
        buffer=Buffer(held, asyncio.get_running_loop().time),
        counts=counts,
        on_offset_reset=sink.on_offset_reset,
        until_now=sink.until == "now",
        drain_seconds=DRAIN_SHARE * surface.options(AppConfig).drain_timeout,
        tasks=tasks,
        wall_clock=wall_clock,
    )
    return writer, SinkMode(
        new_writer=writer.new_queue,
        records=True,
        locked=True,
        begin=writer.begin,
        until_now=sink.until == "now",
        max_messages=QUEUE_BATCHES * SLOW * limits.rows,
        max_bytes=QUEUE_BATCHES * min(SLOW * limits.bytes, most),
        is_full=writer.buffer.is_full,
    )


def wall_clock() -> float:
    """Seconds since 1970."""
    return datetime.now(UTC).timestamp()


async def compacting(sink: Sink, tables: Sequence[Store], rows_came: asyncio.Event, counts: Counts) -> None:
    """Every so many seconds of the sink's, as long as its app runs. While nothing is written nothing happens.

    `rows_came`: there is a new file; those that come while a compaction runs wait for the next one. One that is under
    way as the process ends is completed or undone by the next owner.
    """
    assert sink.compact_every is not None
    name, worker = sink.name, Worker(f"sink {sink.name} compacts")
    try:
        while True:
            await rows_came.wait()
            await asyncio.sleep(sink.compact_every)
            rows_came.clear()
            try:
                for table in tables:
                    done = await worker.run(partial(table.compact, sink.target_file_size))
                    counts.compacted += done.before
                    if done.before:
                        facts = {"sink": name, "before": done.before, "after": done.after, "bytes": done.bytes}
                        text = "sink %(sink)s: %(before)d files are %(after)d now, of %(bytes)d bytes"
                        log.info(text, facts, extra=facts)
            except Exception as error:
                log.warning("sink %s: its files cannot be put together: %s: %s", name, type(error).__name__, error)
    finally:
        worker.stop()
