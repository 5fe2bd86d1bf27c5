"""Java's hashes of strings, which RocketMQ stores."""

from __future__ import annotations

import struct


def string_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, a signed 32-bit number."""
    units: tuple[int, ...] | bytes
    if text.isascii():
        units = text.encode()
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(raw) // 2}H", raw)
    total = 0
    for unit in units:
        total = (31 * total + unit) & 0xFFFFFFFF
    return total - 0x1_0000_0000 if total & 0x8000_0000 else total


def tags_code(tag: str | None) -> int:
    """The tags code of a message in a consume queue: the hash of its tag, or 0 without a tag."""
    return string_hash(tag) if tag else 0
