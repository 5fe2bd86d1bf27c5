"""The writers that Spark asks for. A task ends when the broker has stored every message of it."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_rocketmq.cluster import Cluster
from pyspark_rocketmq.offsets import Queue
from pyspark_rocketmq.options import WriteOptions
from pyspark_rocketmq.outgoing import Packing, Payload, Row, check_schema, chosen, item_of
from pyspark_rocketmq.problems import OptionError, WriteError
from pyspark_rocketmq.sending import BrokerLane
from rocketapp.wire.message_id import UniqueIds

_StreamArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)
"""Spark 4.0 hands rows to the writer of a stream."""


class Written(WriterCommitMessage):
    """What a task reports."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


class Task:
    """Writes the rows of one task."""

    def __init__(self, options: WriteOptions, columns: list[str], *, query: str, batch: str, partition: int) -> None:
        self._options, self._columns = options, columns
        self._place = f"{query}/{batch}/{partition}"
        self._cluster = Cluster(options.reach)
        self._packing = Packing(options.max_batch_bytes)
        self._queues: dict[str, list[Queue]] = {}
        self._lanes: dict[str, BrokerLane] = {}
        self._turn = partition
        self._ids = UniqueIds(socket.inet_aton("127.0.0.1"), os.getpid(), uuid.uuid4().int & 0xFFFF_FFFF)

    def write(self, batches: Iterable[Any]) -> int:
        """Write Arrow batches or rows; return how many messages the brokers stored. Raises WriteError."""
        count = 0
        try:
            for row in self._rows(batches):
                self._write_row(row, count)
                count += 1
            for payload in self._packing.rest():
                self._send(payload)
            for lane in self._lanes.values():
                lane.settle()
        except BaseException:
            for lane in self._lanes.values():
                lane.close()
            raise
        return count

    def _rows(self, batches: Iterable[Any]) -> Iterator[Row]:
        for batch in batches:
            if hasattr(batch, "columns"):
                for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    yield Row(**dict(zip(self._columns, values, strict=True)))
            else:
                yield Row(**dict(zip(self._columns, batch, strict=True)))

    def _write_row(self, row: Row, number: int) -> None:
        topic = row.topic or self._options.topic
        try:
            if not topic:
                raise WriteError("its topic is null, and no option names one")
            queue = chosen(row, self._writable(topic), self._turn)
            item = item_of(
                row,
                unique_id=self._ids.next(time.time_ns() / 1e9),
                stamp=f"{self._place}/{number}" if self._options.stamp else None,
            )
        except WriteError as error:
            raise WriteError(f"row {number} of {self._place}: {error}") from None
        for payload in self._packing.add(queue, item, alone=row.deliver_at is not None):
            self._send(payload)
            self._turn += 1

    def _writable(self, topic: str) -> list[Queue]:
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = self._cluster.writable(topic)
            if not queues:
                raise WriteError(f"topic {topic} has no queue that may be written")
        return queues

    def _send(self, payload: Payload) -> None:
        broker = payload.queue.broker
        lane = self._lanes.get(broker)
        if lane is None:
            options = self._options
            lane = BrokerLane(self._cluster, options.reach, broker, group=options.group, depth=options.depth)
            self._lanes[broker] = lane
        lane.send(payload)


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
        partition = _task_context().partitionId()
        task = Task(self._options, self._columns, query=self._query, batch="0", partition=partition)
        return Written(task.write(iterator))


class StreamWriter(_StreamArrowWriter):  # type: ignore[misc]
    """Writes the batches of a stream."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._options, self._columns = options, _checked(options, schema, overwrite)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = _task_context()
        task = Task(
            self._options,
            self._columns,
            query=context.getLocalProperty("sql.streaming.queryId") or "",
            batch=context.getLocalProperty("streaming.sql.batchId") or "",
            partition=context.partitionId(),
        )
        return Written(task.write(iterator))


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "writers run in tasks of Spark"
    return context
