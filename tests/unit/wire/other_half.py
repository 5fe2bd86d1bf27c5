"""The halves of conversations that rocketapp itself never speaks: what brokers write and tools read."""

from __future__ import annotations

from rocketapp.wire import lenient_json
from rocketapp.wire.lenient_json import text_of


def decode_kv_table(body: bytes) -> dict[str, str]:
    """Read a KVTable; raises ProtocolError."""
    with lenient_json.reading("key-value table", body) as data:
        return {text_of(name): text_of(value) for name, value in (data.get("table") or {}).items()}
