"""The stream in which a slave copies its master's log, on a port of its own.

The slave speaks first and says where its log ends, as eight bytes, again and again. The master sends blocks: a position
of the log, a size, and so many bytes of the log as they are. A block is never part of two files of the log, cuts
records anywhere, and without bytes says that the master is there (Java: DefaultHAConnection, DefaultHAClient).
"""

from __future__ import annotations

import struct

from rocketapp.errors import ProtocolError

_REPORT, _HEAD = struct.Struct(">q"), struct.Struct(">qi")
HEAD_BYTES = 12
MOST_BLOCK_BYTES = 4_194_304
"""Most bytes of a block that a slave takes. Masters send 32 KiB; a slave of Apache RocketMQ has room for so many."""


def last_report(received: bytes) -> tuple[int | None, bytes]:
    """Where the slave's log ends, as the last whole report says it, and the bytes that begin the next one."""
    whole = len(received) - len(received) % _REPORT.size
    if not whole:
        return None, received
    return _REPORT.unpack_from(received, whole - _REPORT.size)[0], received[whole:]


def encode_report(end: int) -> bytes:
    return _REPORT.pack(end)


def block_head(position: int, size: int) -> bytes:
    """What comes before the bytes of a block."""
    return _HEAD.pack(position, size)


def read_head(data: bytes) -> tuple[int, int]:
    """Position and size of a block. Raises ProtocolError for a head that no master sends."""
    position, size = _HEAD.unpack(data)
    if position < 0 or not 0 <= size <= MOST_BLOCK_BYTES:
        raise ProtocolError(f"a block of {size} bytes at position {position}")
    return position, size
