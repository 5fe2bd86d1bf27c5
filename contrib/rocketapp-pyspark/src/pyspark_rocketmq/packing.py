"""Items of messages into requests: batches for one queue below a size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from rocketapp import MessageQueue
from rocketapp.wire import properties as names
from rocketapp.wire.batch import decode_batch
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.requests.send import SendRequest

K = TypeVar("K")


class Packed(NamedTuple):
    """The items of one request."""

    items: bytes
    number: int


class Payload(NamedTuple):
    """What one request carries: one message, or a batch for one queue."""

    queue: MessageQueue
    packed: Packed

    def request(self, *, topic: str, group: str, now_ms: int) -> tuple[RequestCode, dict[str, str], bytes]:
        """Code, fields and body of the request."""
        items, number = self.packed
        single = number == 1
        if single:
            ((items, raw, _),) = decode_batch(items)
        request = SendRequest(
            producer_group=group,
            topic=topic,
            queue_id=self.queue.queue_id,
            born_ms=now_ms,
            properties=(raw if single else names.encode({names.WAIT: "true"})).decode(),
            batch=not single,
            broker_name=self.queue.broker_name,
        )
        code = RequestCode.SEND_MESSAGE_V2 if single else RequestCode.SEND_BATCH_MESSAGE
        return code, request.to_fields(), items


class _Waiting:
    """What is not yet enough for a request."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._count = self.size = 0

    def add(self, piece: bytes, count: int) -> None:
        self._pieces.append(piece)
        self._count += count
        self.size += len(piece)

    def take(self) -> Iterator[Packed]:
        if self._count:
            yield Packed(b"".join(self._pieces), self._count)
        self._pieces.clear()
        self._count = self.size = 0


class Packing(Generic[K]):
    """Gathers items by where they go, in order."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._waiting: dict[K, _Waiting] = {}

    def add(self, where: K, items: Any, alone: Any = None) -> Iterator[Packed]:
        """Take items (a `large_binary` array); give what they complete.

        `alone`: a mask of those that may not be in a batch, as delayed ones may not. One above the size is alone too.
        """
        _, edges, data = items.buffers()
        offsets = np.frombuffer(edges, np.int64)[items.offset : items.offset + len(items) + 1]
        view, waiting = memoryview(data), self._waiting.setdefault(where, _Waiting())
        single = np.diff(offsets) > self._max_bytes
        ends = np.append(np.flatnonzero(single if alone is None else single | alone), len(items))
        start = 0
        for end in ends.tolist():
            while start < end:
                room = offsets[start] + self._max_bytes - waiting.size
                stop = min(end, int(np.searchsorted(offsets, room, side="right")) - 1)
                if stop > start:
                    waiting.add(bytes(view[offsets[start] : offsets[stop]]), stop - start)
                if stop < end:
                    yield from waiting.take()
                start = max(start, stop)
            if end < len(items):
                yield from waiting.take()
                yield Packed(bytes(view[offsets[end] : offsets[end + 1]]), 1)
                start = end + 1

    def rest(self) -> Iterator[tuple[K, Packed]]:
        """What was not complete."""
        for where, waiting in self._waiting.items():
            for packed in waiting.take():
                yield where, packed
