"""What a slave asks of its master besides the log.

Codes: GET_ALL_DELAY_OFFSET 45, GET_TIMER_CHECK_POINT 60, GET_TIMER_METRICS 61; and those of administrators that slaves
use too: 21, 43, 201, 402. Administrators ask how far slaves are: GET_BROKER_HA_STATUS 907. Java: SlaveSynchronize,
TimerCheckpoint, TimerMetrics, HARuntimeInfo.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

_CHECKPOINT = struct.Struct(">qqqqqqq")


def encode_timer_checkpoint(done_ms: int, first: int, read_to: int, version: int, version_ms: int) -> bytes:
    """Timers that were due before `done_ms` are delivered, as far as their queue was read: up to `read_to`.

    `first`: the offset of the first one that waits. The version is that of the checkpoint, and when it was made.
    """
    return _CHECKPOINT.pack(done_ms, 0, first, read_to, 0, version_ms, version)


def decode_timer_checkpoint(body: bytes) -> tuple[int, int]:
    """Up to when timers were delivered, in milliseconds, and up to where their queue was read."""
    done_ms, _, _, read_to, *_ = _CHECKPOINT.unpack(body)
    return done_ms, read_to


class SlaveStatus(NamedTuple):
    """How far one slave is: it has confirmed the log up to a position, and is sent it from another one on."""

    host: str
    confirmed: int
    position: int


def encode_ha_status(end: int, slaves: Iterable[SlaveStatus], most_behind: int) -> bytes:
    """HARuntimeInfo of a master whose log ends there. A slave that lacks less than `most_behind` bytes is in sync."""
    lines: list[dict[str, Any]] = [
        {
            "addr": slave.host,
            "slaveAckOffset": slave.confirmed,
            "diff": end - slave.confirmed,
            "inSync": end - slave.confirmed < most_behind,
            "transferredByteInSecond": 0,
            "transferFromWhere": slave.position,
        }
        for slave in slaves
    ]
    status = {
        "master": True,
        "masterCommitLogMaxOffset": end,
        "inSyncSlaveNums": sum(line["inSync"] for line in lines),
        "haConnectionInfo": lines,
    }
    return msgspec.json.encode(status)
