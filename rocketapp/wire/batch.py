"""Many messages in one body: the format of SEND_BATCH_MESSAGE and of stored inner batches.

Item: `size(4) magic(4)=0 crc(4)=0 flag(4) body-length(4) body properties-length(2)
properties`; brokers ignore magic and CRC. Java: MessageDecoder.encodeMessages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from rocketapp.errors import ProtocolError

_HEAD = struct.Struct(">iiiiI")
_SHORT = struct.Struct(">H")
_LONGEST_PROPERTIES = 32767
ITEM_BYTES = _HEAD.size + _SHORT.size
"""Bytes of an item beside its body and properties."""


def encode_batch(items: Iterable[tuple[bytes, bytes, int]]) -> bytes:
    """Encode `(body, encoded properties, flag)` items. Raises ProtocolError when properties are too long."""
    parts: list[bytes] = []
    for body, properties, flag in items:
        if len(properties) > _LONGEST_PROPERTIES:
            raise ProtocolError(f"properties of {len(properties)} bytes, limit {_LONGEST_PROPERTIES}")
        size = ITEM_BYTES + len(body) + len(properties)
        parts += (_HEAD.pack(size, 0, 0, flag, len(body)), body, _SHORT.pack(len(properties)), properties)
    return b"".join(parts)


def decode_batch(data: bytes) -> list[tuple[bytes, bytes, int]]:
    """The `(body, encoded properties, flag)` items of a body. Raises ProtocolError when it is damaged."""
    items = []
    at, end = 0, len(data)
    try:
        while at < end:
            size, _, _, flag, length = _HEAD.unpack_from(data, at)
            names = at + _HEAD.size + length
            first = names + _SHORT.size
            last = first + _SHORT.unpack_from(data, names)[0]
            if last != at + size or last > end:
                raise ProtocolError(
                    f"batch item at byte {at}: {size} bytes announced, {last - at} used, {end - at} there"
                )
            items.append((data[at + _HEAD.size : names], data[first:last], flag))
            at = last
    except struct.error:
        raise ProtocolError(f"batch item at byte {at} is cut short") from None
    return items
