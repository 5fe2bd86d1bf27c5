"""Rows into messages: which columns a written frame may have, and what each means. Pure."""

from __future__ import annotations

import difflib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pyspark_rocketmq.offsets import Queue
from pyspark_rocketmq.problems import OptionError, WriteError
from rocketapp import ProtocolError
from rocketapp.wire import properties as names
from rocketapp.wire.batch import ITEM_BYTES, encode_batch
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.requests.send import SendRequest

STAMP = "SPARK_ROW"
"""The property that names the row a message was written from: query, batch, partition and row."""
SHARDING_KEY = "__SHARDINGKEY"
"""The property that other producers put the sharding key into."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string",),
    "properties": ("map<string,string>",),
    "sharding_key": ("string",),
    "queue_id": ("int", "bigint"),
    "deliver_at": ("timestamp",),
}
"""What a written frame may have, with Spark's types. Only `body` is required."""


def check_schema(fields: Iterable[tuple[str, str]], *, has_topic: bool) -> None:
    """Refuse a frame that cannot be written. `fields`: names and types. `has_topic`: whether an option names one."""
    given = dict(fields)
    for name, sql_type in given.items():
        if name not in COLUMNS:
            nearest = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.0)[0]
            raise OptionError(
                f"column {name!r} is none that can be written: the nearest is {nearest!r}; drop or rename it"
            )
        if sql_type not in COLUMNS[name]:
            raise OptionError(f"column {name} is {sql_type}: cast it to {' or '.join(COLUMNS[name])}")
    if "body" not in given:
        raise OptionError("the frame has no column body: select what is to be sent as body")
    if not has_topic and "topic" not in given:
        raise OptionError("where to? give the option topic or a column topic")


class Row(NamedTuple):
    """A row as it is written; columns that a frame lacks are None."""

    body: bytes | str | None = None
    topic: str | None = None
    tags: str | None = None
    keys: str | None = None
    properties: Any = None
    sharding_key: str | None = None
    queue_id: int | None = None
    deliver_at: datetime | None = None


class Item(NamedTuple):
    """A message without its place."""

    body: bytes
    raw_properties: bytes

    @property
    def size(self) -> int:
        return ITEM_BYTES + len(self.body) + len(self.raw_properties)


class Payload(NamedTuple):
    """What one request carries: one message, or a batch for one queue."""

    queue: Queue
    items: tuple[Item, ...]

    def request(self, *, topic: str, group: str, now_ms: int) -> tuple[RequestCode, dict[str, str], bytes]:
        """Code, fields and body of the request."""
        single = len(self.items) == 1
        request = SendRequest(
            producer_group=group,
            topic=topic,
            queue_id=self.queue.queue_id,
            born_ms=now_ms,
            properties=self.items[0].raw_properties.decode() if single else names.encode({names.WAIT: "true"}).decode(),
            batch=not single,
            broker_name=self.queue.broker,
        )
        if single:
            return RequestCode.SEND_MESSAGE_V2, request.to_fields(), self.items[0].body
        body = encode_batch((item.body, item.raw_properties, 0) for item in self.items)
        return RequestCode.SEND_BATCH_MESSAGE, request.to_fields(), body


def item_of(row: Row, *, unique_id: str, stamp: str | None) -> Item:
    """The message of a row. Raises WriteError."""
    body = row.body.encode() if isinstance(row.body, str) else row.body
    if body is None:
        raise WriteError("its body is null")
    named = dict(row.properties or ())
    named |= {
        names.KEYS: row.keys,
        names.TAGS: row.tags,
        SHARDING_KEY: row.sharding_key,
        names.UNIQ_KEY: unique_id,
        STAMP: stamp,
        names.WAIT: "true",
    }
    if row.deliver_at is not None:
        named[names.TIMER_DELIVER_MS] = str(int(row.deliver_at.timestamp() * 1000))
    try:
        raw = names.encode(named)
    except ProtocolError as error:
        raise WriteError(str(error)) from None
    if len(raw) > names.LONGEST:
        raise WriteError(f"its properties are {len(raw)} bytes long, at most {names.LONGEST} are legal")
    return Item(bytes(body), raw)


def chosen(row: Row, queues: Sequence[Queue], turn: int) -> Queue:
    """The queue of a row: the one it names, that of its sharding key, or the one whose turn it is.

    A number that several brokers have means the first of them by name. Raises WriteError.
    """
    if row.queue_id is not None:
        for queue in queues:
            if queue.queue_id == row.queue_id:
                return queue
        raise WriteError(f"topic {queues[0].topic} has no queue {row.queue_id} that may be written")
    if row.sharding_key is not None:
        return queues[zlib.crc32(row.sharding_key.encode()) % len(queues)]
    return queues[turn % len(queues)]


class Packing:
    """Gathers messages of many queues into payloads below a size."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._items: dict[Queue, list[Item]] = {}
        self._sizes: dict[Queue, int] = {}

    def add(self, queue: Queue, item: Item, *, alone: bool) -> list[Payload]:
        """The payloads that this message completes. `alone`: it may not be in a batch, as delayed ones may not."""
        full = []
        if alone or self._sizes.get(queue, 0) + item.size > self._max_bytes:
            full += self._take(queue)
        if alone or item.size > self._max_bytes:
            return [*full, Payload(queue, (item,))]
        self._items.setdefault(queue, []).append(item)
        self._sizes[queue] = self._sizes.get(queue, 0) + item.size
        return full

    def rest(self) -> list[Payload]:
        """What was not complete."""
        return [payload for queue in list(self._items) for payload in self._take(queue)]

    def _take(self, queue: Queue) -> list[Payload]:
        items = self._items.pop(queue, [])
        self._sizes.pop(queue, None)
        return [Payload(queue, tuple(items))] if items else []
