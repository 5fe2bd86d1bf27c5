"""The writers that Spark asks for. A task ends when the broker has stored every message of it."""

from __future__ import annotations

import itertools
import os
import socket
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_rocketmq.cluster import Cluster
from pyspark_rocketmq.columns import COLUMNS, check_schema
from pyspark_rocketmq.encoding import RowError, encode, refuse, stamps_of
from pyspark_rocketmq.options import WriteOptions
from pyspark_rocketmq.packing import Packed, Packing, Payload
from pyspark_rocketmq.problems import OptionError, WriteError
from pyspark_rocketmq.sending import BrokerSender
from rocketapp import MessageQueue
from rocketapp.wire.message_id import UniqueIds
from rocketapp_lake.arrow_columns import schema_of_ddl

_StreamArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)
"""Spark 4.0 hands rows to the writer of a stream."""


class Task:
    """Writes the rows of one task."""

    def __init__(self, options: WriteOptions, columns: list[str], *, query: str, batch: str, partition: int) -> None:
        self._options, self._columns = options, columns
        self._place = f"{query}/{batch}/{partition}"
        self._cluster = Cluster(options.reach)
        self._packing = Packing[Place](options.max_batch_bytes)
        self._queues: dict[str, list[MessageQueue]] = {}
        self._senders: dict[str, BrokerSender] = {}
        self._turn = partition
        self._ids = UniqueIds(socket.inet_aton("127.0.0.1"), os.getpid(), uuid.uuid4().int & 0xFFFF_FFFF)

    def write(self, given: Iterable[Any]) -> int:
        """Write Arrow batches or rows; return how many messages the brokers stored. Raises WriteError."""
        count = 0
        try:
            for batch in batches_of(given, self._columns):
                self._write(dict(zip(self._columns, batch.columns, strict=True)), batch.num_rows, count)
                count += batch.num_rows
            for place, packed in self._packing.rest():
                self._send(place, packed)
            for sender in self._senders.values():
                sender.settle()
        except BaseException:
            for sender in self._senders.values():
                sender.close()
            raise
        return count

    def _write(self, columns: dict[str, Any], count: int, first: int) -> None:
        """Rows from the number `first` of the task on."""
        now, next_id = time.time_ns() / 1e9, self._ids.next
        stamps = stamps_of(self._place, first, count) if self._options.stamp else None
        delayed = columns["deliver_at"].is_valid().to_numpy(zero_copy_only=False) if "deliver_at" in columns else None
        try:
            items = encode(columns, [next_id(now) for _ in range(count)], stamps)
            for place, rows in self._places(columns, count):
                some = items if len(rows) == count else items.take(pa.array(rows))
                for packed in self._packing.add(place, some, alone=None if delayed is None else delayed[rows]):
                    self._send(place, packed)
        except RowError as error:
            raise WriteError(f"row {first + error.row} of {self._place}: {error.problem}") from None

    def _places(self, columns: dict[str, Any], count: int) -> Iterator[tuple[Place, Any]]:
        """Where rows go, each place with the numbers of its rows in order."""
        for topic, rows in by_topic(columns.get("topic"), count, default=self._options.topic):
            queues = self._writable(topic)
            if not queues:
                raise RowError(int(rows[0]), f"topic {topic} has no queue that may be written")
            for queue, some in by_queue(columns, rows, queues):
                yield (topic, queue), some

    def _writable(self, topic: str) -> list[MessageQueue]:
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = self._cluster.writable(topic)
        return queues

    def _send(self, place: Place, packed: Packed) -> None:
        topic, queue = place
        if queue is None:
            queues = self._queues[topic]
            queue = queues[self._turn % len(queues)]
            self._turn += 1
        sender = self._senders.get(queue.broker_name)
        if sender is None:
            group, depth = self._options.producer_group, self._options.send_depth
            sender = BrokerSender(self._cluster, queue.broker_name, group=group, depth=depth)
            self._senders[queue.broker_name] = sender
        sender.send(Payload(queue, packed))


def _checked(options: WriteOptions, schema: StructType, overwrite: bool) -> list[str]:
    """The names of the columns. Raises OptionError for a frame or a mode that cannot be written."""
    if overwrite:
        raise OptionError('messages cannot be overwritten: use mode("append")')
    check_schema(
        ((field.name, field.dataType.simpleString()) for field in schema.fields), has_topic=bool(options.topic)
    )
    return [field.name for field in schema.fields]


class BatchWriter(DataSourceArrowWriter):
    """Writes a frame."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._options, self._columns = options, _checked(options, schema, overwrite)
        self._query = str(uuid.uuid4())
        """Made on the driver, so that a task that runs again stamps its rows as before."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _written(self._options, self._columns, self._query, "0", iterator)


class StreamWriter(_StreamArrowWriter):  # type: ignore[misc]
    """Writes the batches of a stream."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._options, self._columns = options, _checked(options, schema, overwrite)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _written(self._options, self._columns, None, None, iterator)


def _written(
    options: WriteOptions, columns: list[str], query: str | None, batch: str | None, rows: Iterator[Any]
) -> WriterCommitMessage:
    """What a task of Spark gives. `query`, `batch`: None for those that Spark tells the tasks of a stream."""
    context = TaskContext.get()
    assert context is not None, "writers run in tasks of Spark"
    query = context.getLocalProperty("sql.streaming.queryId") or "" if query is None else query
    batch = context.getLocalProperty("streaming.sql.batchId") or "" if batch is None else batch
    Task(options, columns, query=query, batch=batch, partition=context.partitionId()).write(rows)
    return WriterCommitMessage()


Place = tuple[str, MessageQueue | None]
"""A topic, and the queue if a row says which one. Without one, batches go to its queues in turn."""
_IN_TURN = -1
_TOGETHER = 16 * 1024 * 1024
"""Bytes of rows that are encoded at once, about."""
_ROWS = 10_000


def batches_of(given: Iterable[Any], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Arrow batches, cut where they are large, or the same of rows, which Spark 4.0 hands to the writer of a stream."""
    items = iter(given)
    first = next(items, None)
    if first is None:
        return
    items = itertools.chain([first], items)
    for batch in items if isinstance(first, pa.RecordBatch) else _of_rows(items, columns):
        step = max(1, _TOGETHER * batch.num_rows // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)


def _of_rows(rows: Iterator[Any], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    schema = schema_of_ddl(", ".join(f"{name} {COLUMNS[name][0]}" for name in columns))
    while some := list(itertools.islice(rows, _ROWS)):
        values = zip(schema, zip(*some, strict=True), strict=True)
        arrays = [pa.array(map(_plain, column), field.type) for field, column in values]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plain(value: Any) -> Any:
    """A value of a row as Arrow takes it: pairs of a map, and times, which have no zone in rows, as those of a zone."""
    if isinstance(value, dict):
        return list(value.items())
    return value.astimezone(UTC) if hasattr(value, "astimezone") else value


def by_topic(topics: Any, count: int, *, default: str) -> Iterator[tuple[str, Any]]:
    """Each topic with the numbers of its rows. Raises RowError for a row without any."""
    if topics is None or topics.null_count == count:
        topics = pa.nulls(count, pa.string())
    topics = pc.if_else(pc.equal(topics, ""), pa.scalar(None, topics.type), topics)
    if default:
        topics = topics.fill_null(default)
    refuse(topics.is_null(), lambda _: "its topic is null, and no option names one")
    encoded = topics.dictionary_encode()
    codes = encoded.indices.to_numpy()
    for code, topic in enumerate(encoded.dictionary.to_pylist()):
        yield topic, np.flatnonzero(codes == code)


def by_queue(
    columns: Mapping[str, Any], rows: Any, queues: Sequence[MessageQueue]
) -> Iterator[tuple[MessageQueue | None, Any]]:
    """Each queue with the numbers of its rows: the one that a row names, or that of its sharding key, or None.

    A number that several brokers have means the first of them by name. Raises RowError for one that none has.
    """
    where = np.full(len(rows), _IN_TURN)
    if "sharding_key" in columns:
        keys = columns["sharding_key"].take(pa.array(rows)).to_pylist()
        where = np.array([_IN_TURN if key is None else zlib.crc32(key.encode()) % len(queues) for key in keys])
    if "queue_id" in columns:
        places = {queue.queue_id: index for index, queue in reversed(list(enumerate(queues)))}
        for number, queue_id in enumerate(columns["queue_id"].take(pa.array(rows)).to_pylist()):
            if queue_id is None:
                continue
            if queue_id not in places:
                raise RowError(
                    int(rows[number]), f"topic {queues[0].topic} has no queue {queue_id} that may be written"
                )
            where[number] = places[queue_id]
    for index in np.unique(where).tolist():
        yield (None if index == _IN_TURN else queues[index]), rows[where == index]
