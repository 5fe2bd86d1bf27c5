"""The records of one pull, counted and not decoded: for ways of consuming that read columns and not messages.

`wire.record` makes messages of records and `wire.layout` describes the bytes.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.compression import COMPRESSED
from rocketapp.wire.layout import BORN_IPV6, INNER_BATCH, MAGIC_V1, NEED_UNWRAP, STORE_IPV6, wrong_size
from rocketapp.wire.record import Message, decode_records

_UNUSUAL = COMPRESSED | BORN_IPV6 | STORE_IPV6 | NEED_UNWRAP | INNER_BATCH
_CUT = struct.Struct(">ii28xi44xI")
"""The fields that are needed to find the next record: size, magic, sys flag, body length."""
_OFFSET, _STORED_MS = struct.Struct(">20xq"), struct.Struct(">56xq")


class StoredRecords:
    """One or more records of one queue, in offset order. `len` says how many messages they hold."""

    __slots__ = ("_count", "_messages", "data", "end", "max_inflated_bytes", "offset", "queue", "size", "starts")

    queue: MessageQueue
    offset: int
    """The offset of the first message."""
    end: int
    """The offset behind the last message."""
    size: int
    """Bytes of the records."""
    data: bytes
    """The records, one behind the other; empty when they were decoded already."""
    starts: array[int]
    """Where each record begins in `data`; empty when they were decoded already.

    All of them are usual ones: version 1, IPv4 hosts, not compressed, one message each.
    """
    max_inflated_bytes: int
    """The most bytes of an inflated body."""
    _messages: Sequence[Message] | None
    _count: int

    @classmethod
    def of(cls, messages: Sequence[Message], queue: MessageQueue) -> StoredRecords:
        """Make them from one or more decoded messages."""
        made = cls()
        made.queue, made._messages, made._count = queue, messages, len(messages)
        made.data, made.starts, made.max_inflated_bytes = b"", array("i"), 0
        made.offset, made.end = messages[0].offset, messages[-1].offset + 1
        made.size = sum(message.size for message in messages)
        return made

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<StoredRecords {self.queue} #{self.offset} to #{self.end - 1}: {self._count} messages>"

    @property
    def are_decoded(self) -> bool:
        """Whether `messages` costs nothing, and `data` has nothing."""
        return self._messages is not None

    @property
    def stored_ms(self) -> int:
        """When the broker stored the first message, in milliseconds since 1970."""
        if self._messages is not None:
            return self._messages[0].stored_ms
        stored_ms: int = _STORED_MS.unpack_from(self.data, self.starts[0])[0]
        return stored_ms

    def messages(self) -> Sequence[Message]:
        """The messages. They are decoded each time."""
        if self._messages is not None:
            return self._messages
        return decode_records(self.data[self.starts[0] :], self.queue, max_inflated_bytes=self.max_inflated_bytes)

    def since(self, offset: int) -> StoredRecords | None:
        """Only the messages from this offset on; None without such messages."""
        if offset <= self.offset:
            return self
        if self._messages is not None:
            left = [message for message in self._messages if message.offset >= offset]
            return StoredRecords.of(left, self.queue) if left else None
        first = bisect_left(self.starts, offset, key=self._offset_at)
        return None if first == self._count else _made(self, self.starts[first:])

    def _offset_at(self, start: int) -> int:
        offset: int = _OFFSET.unpack_from(self.data, start)[0]
        return offset


def stored_records(data: bytes, queue: MessageQueue, *, max_inflated_bytes: int = 16_777_216) -> StoredRecords | None:
    """The records that a pull from `queue` returned; None for none.

    Raises ProtocolError for damaged ones, as `decode_records` does: what is refused here is this queue's trouble alone,
    and what is found by a reader of many queues is that of all of them.
    """
    starts, unpack, usual, unusual = array("i"), _CUT.unpack_from, MAGIC_V1, _UNUSUAL
    add, at, end = starts.append, 0, len(data)
    try:
        while at < end:
            size, magic, sys_flag, body_size = unpack(data, at)
            if magic != usual or sys_flag & unusual:
                messages = decode_records(data, queue, max_inflated_bytes=max_inflated_bytes)
                return StoredRecords.of(messages, queue) if messages else None
            body_end = at + 88 + body_size
            start = body_end + 3 + data[body_end]
            stop = start + (data[start - 2] << 8 | data[start - 1])
            if stop != at + size:
                raise wrong_size(at, size, stop)
            add(at)
            at = stop
    except (struct.error, IndexError):
        raise ProtocolError(f"record at byte {at} of {end} is cut short") from None
    if at != end:
        raise ProtocolError(f"the last record ends {at - end} bytes behind the end")
    if not starts:
        return None
    whole = StoredRecords()
    whole.queue, whole.data, whole.max_inflated_bytes = queue, data, max_inflated_bytes
    return _made(whole, starts)


def _made(whole: StoredRecords, starts: array[int]) -> StoredRecords:
    """The records of `whole` that begin at `starts`."""
    made = StoredRecords()
    made.queue, made.data, made.max_inflated_bytes = whole.queue, whole.data, whole.max_inflated_bytes
    made.starts, made._count, made._messages = starts, len(starts), None
    made.offset, made.end = made._offset_at(starts[0]), made._offset_at(starts[-1]) + 1
    made.size = len(made.data) - starts[0]
    return made
