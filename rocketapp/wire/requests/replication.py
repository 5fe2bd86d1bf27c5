"""What a slave asks of its master besides the log.

Codes: GET_ALL_DELAY_OFFSET 45, GET_TIMER_CHECK_POINT 60, GET_TIMER_METRICS 61; and those of administrators that slaves
use too: 21, 43, 201, 402. Java: SlaveSynchronize, TimerCheckpoint, TimerMetrics.
"""

from __future__ import annotations

import struct

_CHECKPOINT = struct.Struct(">qqqqqqq")


def encode_timer_checkpoint(done_ms: int, first: int, read_to: int, version: int, version_ms: int) -> bytes:
    """Timers that were due before `done_ms` are delivered, as far as their queue was read: up to `read_to`.

    `first`: the offset of the first one that waits. The version is that of the checkpoint, and when it was made.
    """
    return _CHECKPOINT.pack(done_ms, 0, first, read_to, 0, version_ms, version)


def decode_timer_checkpoint(body: bytes) -> tuple[int, int]:
    """`done_ms` and `read_to`."""
    done_ms, _, _, read_to, *_ = _CHECKPOINT.unpack(body)
    return done_ms, read_to
