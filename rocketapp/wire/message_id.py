"""Message ids: the broker's, which encodes where a message is stored, and the producer's, which is only unique.

Java: MessageDecoder.createMessageId, MessageClientIDSetter.
"""

from __future__ import annotations

import struct
from datetime import datetime

from rocketapp.errors import ProtocolError

_PLACE = struct.Struct(">iq")


def offset_id(host: bytes, port: int, physical_offset: int) -> str:
    """The broker's id in upper-case hex: store host (4 or 16 bytes), port and position in the commit log."""
    return (host + _PLACE.pack(port, physical_offset)).hex().upper()


def parse_offset_id(text: str) -> tuple[bytes, int, int]:
    """Host (4 or 16 bytes), port and physical offset of a broker's id. Raises ProtocolError when it is malformed."""
    try:
        raw = bytes.fromhex(text) if len(text) in (32, 56) else b""
    except ValueError:
        raw = b""
    if len(raw) not in (16, 28):
        raise ProtocolError(f"{text[:64]!r} is not an offset message id: give 32 or 56 hexadecimal digits")
    port, physical_offset = _PLACE.unpack_from(raw, len(raw) - _PLACE.size)
    return raw[: -_PLACE.size], port, physical_offset


class UniqueIds:
    """Makes the unique ids of a producer's messages (property UNIQ_KEY).

    An id consists of address, process id, a number that is fixed for this object, milliseconds since
    the start of the month (local time, as Java's tools expect) and a 16-bit counter. The ids
    of one object differ for a month, even when the clock stands still or goes back.
    """

    def __init__(self, ip: bytes, pid: int, stable: int) -> None:
        if len(ip) not in (4, 16):
            raise ValueError(f"an address has 4 or 16 bytes, not {len(ip)}")
        self._prefix = (ip + struct.pack(">HI", pid & 0xFFFF, stable & 0xFFFF_FFFF)).hex().upper()
        self._counter = -1
        self._last_ms = 0
        self._month_ms = self._next_month_ms = 0

    def next(self, now: float) -> str:
        """A new id; `now` is seconds since 1970."""
        now_ms = max(int(now * 1000), self._last_ms)
        self._counter += 1
        if self._counter > 0xFFFF:
            self._counter = 0
            now_ms = max(now_ms, self._last_ms + 1)
        self._last_ms = now_ms
        if now_ms >= self._next_month_ms:
            self._begin_month(now_ms)
        return f"{self._prefix}{now_ms - self._month_ms:08X}{self._counter:04X}"

    def _begin_month(self, now_ms: int) -> None:
        today = datetime.fromtimestamp(now_ms / 1000)
        first = datetime(today.year, today.month, 1)
        following = datetime(today.year + today.month // 12, today.month % 12 + 1, 1)
        self._month_ms, self._next_month_ms = int(first.timestamp() * 1000), int(following.timestamp() * 1000)
