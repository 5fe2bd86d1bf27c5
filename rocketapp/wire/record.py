"""A stored message: the record of the commit log, which pulls return as well.

`decode_records` is the hottest code of the package. Per message it unpacks what every message needs of the
fixed part, and keeps the bytes: `Message` unpacks them when it is asked for more. IPv6 hosts, long topics,
compression and inner batches take a slower path.
`wire.layout` describes the bytes. Java: MessageDecoder, MessageClientExt.
"""

from __future__ import annotations

import struct
from typing import Any

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.batch import decode_batch
from rocketapp.wire.compression import COMPRESSED, inflate
from rocketapp.wire.layout import (
    BORN_IPV6,
    INNER_BATCH,
    MAGIC_V1,
    NEED_UNWRAP,
    OF_PULLS,
    STORE_IPV6,
    Parts,
    take_apart,
    wrong_size,
)
from rocketapp.wire.message import BrokenMessage, CompressedMessage, Message

# Other rooms import messages from here.
__all__ = ["BrokenMessage", "CompressedMessage", "Message", "decode_records"]

_SLOW = COMPRESSED | BORN_IPV6 | STORE_IPV6 | NEED_UNWRAP | INNER_BATCH
_UNWRAP = NEED_UNWRAP | INNER_BATCH


def decode_records(data: bytes, queue: MessageQueue | None, *, max_inflated_bytes: int = 16_777_216) -> list[Message]:
    """The messages in concatenated records, as a pull from `queue` returns them.

    Raises ProtocolError when the records are damaged. A body that cannot be
    inflated raises only when it is read.
    """
    messages: list[Message] = []
    append, unpack, new, slow = messages.append, OF_PULLS.unpack_from, Message, _SLOW
    at, end, quick_magic = 0, len(data), None if queue is None else MAGIC_V1
    try:
        while at < end:
            size, magic, offset, sys_flag, length = unpack(data, at)
            if magic != quick_magic or sys_flag & slow:
                at = _decode_slowly(data, at, queue, max_inflated_bytes, messages)
                continue
            body = at + 88
            body_end = body + length
            start = body_end + 3 + data[body_end]
            stop = start + (data[start - 2] << 8 | data[start - 1])
            if stop != at + size:
                raise wrong_size(at, size, stop)
            message = new()
            message._head = data[at:body]
            message._facts = None
            message.body = data[body:body_end]
            message.raw_properties = data[start:stop]
            message.offset = offset
            message.size = size
            message.queue = queue
            append(message)
            at = stop
    except (struct.error, IndexError):
        raise ProtocolError(f"record at byte {at} of {end} is cut short") from None
    if at != end:
        raise ProtocolError(f"the last record ends {at - end} bytes behind the end")
    return messages


def _decode_slowly(data: bytes, at: int, queue: MessageQueue | None, max_bytes: int, messages: list[Message]) -> int:
    """Add the messages of one record of any kind; return where the next record begins."""
    parts = take_apart(data, at)
    if parts.fixed[7] & _UNWRAP == _UNWRAP:
        messages += _unwrap(parts, queue, max_bytes)
    elif parts.fixed[7] & COMPRESSED:
        packed = CompressedMessage()
        packed._packed, packed._max_bytes = parts.body, max_bytes
        messages.append(_fill(packed, parts, queue))
    else:
        message = Message()
        message.body = parts.body
        messages.append(_fill(message, parts, queue))
    return parts.end


def _fill(message: Message, parts: Parts, queue: MessageQueue | None) -> Message:
    message._facts = parts.fixed
    message.raw_properties = parts.properties
    message.offset = parts.fixed[5]
    message.size = parts.fixed[0]
    message.queue = queue
    if queue is None:
        message._topic = parts.topic.decode("utf-8", "replace")
    return message


def _unwrap(parts: Parts, queue: MessageQueue | None, max_bytes: int) -> list[Message]:
    """The messages of an inner batch. Item i has the record's offset + i, and its own body, properties and flag."""
    fixed = parts.fixed
    try:
        body = inflate(parts.body, fixed[7], max_bytes) if fixed[7] & COMPRESSED else parts.body
        items = decode_batch(body)
    except ProtocolError as error:
        broken = BrokenMessage()
        broken._problem = f"stored batch cannot be read: {error}"
        return [_fill(broken, parts, queue)]
    sys_flag = fixed[7] & ~(_UNWRAP | COMPRESSED)
    messages = []
    for index, (item, raw, flag) in enumerate(items):
        own: Any = (
            len(item) + len(raw),
            *fixed[1:4],
            flag,
            fixed[5] + index,
            fixed[6],
            sys_flag,
            *fixed[8:14],
            len(item),
        )
        message = Message()
        message.body = item
        messages.append(_fill(message, Parts(own, item, parts.topic, raw, parts.end), queue))
    return messages
