"""The halves of conversations that rocketapp itself never speaks: what brokers write and tools read."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from rocketapp.model.pulled import Acks, Handle
from rocketapp.wire import lenient_json
from rocketapp.wire.lenient_json import text_of
from rocketapp.wire.requests.assignment import AssignedQueue

_encode = msgspec.json.Encoder(order="sorted").encode


def decode_kv_table(body: bytes) -> dict[str, str]:
    """Read a KVTable; raises ProtocolError."""
    with lenient_json.reading("key-value table", body) as data:
        return {text_of(name): text_of(value) for name, value in (data.get("table") or {}).items()}


def encode_assigned(found: list[AssignedQueue] | None) -> bytes:
    """None: the broker cannot tell."""
    entries = None
    if found is not None:
        entries = [
            {
                "messageQueue": {
                    "brokerName": each.queue.broker_name,
                    "queueId": each.queue.queue_id,
                    "topic": each.queue.topic,
                },
                "mode": each.mode,
            }
            for each in found
        ]
    return _encode({"messageQueueAssignments": entries})


def decode_acks(body: bytes) -> list[tuple[str, str, Acks]]:
    """Group, subscribed topic and acknowledged messages of each entry. Raises ProtocolError."""
    with lenient_json.reading("acknowledgements", body) as data:
        broker_name = data["brokerName"]
        return [_decode_ack(entry, broker_name) for entry in data["acks"]]


_SHORT = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}
"""What Java's client calls the members; brokers read both."""


def _decode_ack(entry: Mapping[str, Any], broker_name: str) -> tuple[str, str, Acks]:
    found = {name: entry[name] if name in entry else entry[short] for name, short in _SHORT.items()}
    start = int(found["startOffset"])
    bits = int.from_bytes(base64.b64decode(found["bitSet"]), "little")
    offsets = [start + at for at in range(bits.bit_length()) if bits >> at & 1]
    handle = Handle(
        start,
        int(found["popTime"]),
        int(found["invisibleTime"]),
        int(found["reviveQueueId"]),
        int(found["retry"]),
        broker_name,
        int(found["queueId"]),
        offsets[0] if offsets else start,
    )
    return found["consumerGroup"], found["topic"], Acks(handle, offsets)
