"""Which rows of a written frame go together, and where."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.encoding import RowError, refuse
from pyspark_rocketmq.offsets import Queue

Place = tuple[str, Queue | None]
"""A topic, and the queue if a row says which one. Without one, batches go to its queues in turn."""
_IN_TURN = -1
_TOGETHER = 16 * 1024 * 1024
"""Bytes of rows that are encoded at once, about."""
_ROWS = 10_000
_TYPES = {
    "body": pa.binary(),
    "properties": pa.map_(pa.string(), pa.string()),
    "queue_id": pa.int64(),
    "deliver_at": pa.timestamp("us", tz="UTC"),
}
"""Of columns that come as rows, all that hold something else than text."""


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
    while some := list(itertools.islice(rows, _ROWS)):
        arrays = [
            pa.array(map(_plain, values), _TYPES.get(name, pa.string()))
            for name, values in zip(columns, zip(*some, strict=True), strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


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


def by_queue(columns: Mapping[str, Any], rows: Any, queues: Sequence[Queue]) -> Iterator[tuple[Queue | None, Any]]:
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
