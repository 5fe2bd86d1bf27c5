"""Set the offset of a group in a queue, also while its members consume.

Codes: INVOKE_BROKER_TO_RESET_OFFSET 222 to a broker, RESET_CONSUMER_CLIENT_OFFSET 220 from there to the members. Java:
ResetOffsetRequestHeader, ResetOffsetBody, ResetOffsetBodyForC. A broker that resets by itself
(`useServerSideResetOffset`, the default of 5.x) commits the offset and answers the next pull of that queue with it.
Others tell the members, which commit the offsets of their queues.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire import lenient_json
from rocketapp.wire.fields import Header, Int32, java_names
from rocketapp.wire.lenient_json import dump, int64_of

SERVER_SIDE = "useServerSideResetOffset"
"""The broker's option that decides who moves the offset."""


class ResetOffsetRequest(Header, frozen=True, rename=java_names(group="group", timestamp_ms="timestamp")):
    """Sets one queue of a group to an offset; without a queue or an offset, every queue to a store time."""

    topic: str
    group: str
    queue_id: Int32 = -1
    offset: int = -1
    timestamp_ms: int = 0
    """-1 is the end."""
    is_force: bool = True


def encode_reset(offsets: Mapping[MessageQueue, int]) -> bytes:
    """ResetOffsetBody: what was set."""
    return dump({"offsetTable": lenient_json.dump_queue_map(offsets)})


def decode_reset(body: bytes) -> dict[MessageQueue, int]:
    """Read a ResetOffsetBody, also in the form for clients that are not Java's; raises ProtocolError."""
    with lenient_json.reading("reset offsets", body) as data:
        table = data.get("offsetTable") or {}
        if isinstance(table, list):
            return {lenient_json.queue_of(entry): int64_of(entry["offset"]) for entry in table}
        return {lenient_json.queue_of(key): int64_of(offset) for key, offset in table.items()}
