"""What a slave asks of its master besides the log.

Codes: GET_ALL_DELAY_OFFSET 45, GET_TIMER_CHECK_POINT 60, GET_TIMER_METRICS 61; and those of administrators that slaves
use too: 21, 28, 43, 201, 402. Where the log can be copied: EXCHANGE_BROKER_HA_INFO 906. Administrators ask how far
slaves are, slaves where the log ends: GET_BROKER_HA_STATUS 907. Java: SlaveSynchronize, TimerCheckpoint, TimerMetrics,
ExchangeHAInfoResponseHeader, HARuntimeInfo.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from rocketapp.wire import lenient_json
from rocketapp.wire.lenient_json import int64_of, text_of

_CHECKPOINT = struct.Struct(">qqqqqqq")
LOG_ADDRESS = "masterHaAddress"


def encode_timer_checkpoint(done_ms: int, first: int, read_to: int, version_ms: int) -> bytes:
    """Timers that were due before `done_ms` are delivered, as far as their queue was read: up to `read_to`.

    `first`: the offset of the first one that waits. The version is the time when the checkpoint was made.
    """
    return _CHECKPOINT.pack(done_ms, 0, first, read_to, 0, version_ms, version_ms)


def decode_timer_checkpoint(body: bytes) -> tuple[int, int]:
    """Up to when timers were delivered, in milliseconds, and up to where their queue was read. Raises ValueError."""
    if len(body) != _CHECKPOINT.size:
        raise ValueError(f"a checkpoint has {_CHECKPOINT.size} bytes, not {len(body)}")
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


def encode_copy_status(end: int, copies_from: str) -> bytes:
    """HARuntimeInfo of a slave whose log ends there. `copies_from`: the address at its master; empty for none."""
    copy = {"maxOffset": end, "masterAddr": copies_from, "activated": bool(copies_from), "transferredByteInSecond": 0}
    return msgspec.json.encode({"master": False, "haConnectionInfo": [], "haClientRuntimeInfo": copy})


class HaStatus(NamedTuple):
    """What a broker says of its copies."""

    is_master: bool
    end: int
    """Where its log ends."""
    slaves: int
    """Connections of slaves that a master serves."""
    copies_from: str
    """The address from which a slave copies the log; empty when it knows none."""


def decode_ha_status(body: bytes) -> HaStatus:
    """Read the answer to 907 of a master or of a slave; raises ProtocolError."""
    with lenient_json.reading("replication", body) as data:
        if data.get("master"):
            slaves = data.get("haConnectionInfo") or ()
            return HaStatus(True, int64_of(data["masterCommitLogMaxOffset"]), len(slaves), "")
        copy = data["haClientRuntimeInfo"]
        return HaStatus(False, int64_of(copy["maxOffset"]), 0, text_of(copy.get("masterAddr") or ""))


def decode_log_begin(body: bytes) -> int:
    """Where the log begins, as far as the answer to 28 says so. Raises ProtocolError."""
    with lenient_json.reading("KVTable", body) as info:
        return int64_of(info["table"].get("commitLogMinOffset", 0))


def decode_offsets(body: bytes) -> dict[tuple[str, int], int]:
    """The committed offset by `topic@group` and queue: the answer to 43. Raises ProtocolError."""
    with lenient_json.reading("committed offsets", body) as data:
        table = data.get("offsetTable") or {}
        return {
            (text_of(key), int64_of(queue_id)): int64_of(offset)
            for key, offsets in table.items()
            for queue_id, offset in offsets.items()
        }


def decode_delay_offsets(body: bytes) -> dict[int, int]:
    """How many messages of each delay level were delivered: the answer to 45. Raises ProtocolError."""
    with lenient_json.reading("progress of delays", body) as data:
        return {int64_of(level): int64_of(offset) for level, offset in (data.get("offsetTable") or {}).items()}
