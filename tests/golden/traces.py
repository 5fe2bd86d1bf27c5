"""Records of message trace, ours and as the Java client's encoder is asked for them.

`traces.json` holds what Java made of them; `python -m tests.golden.traces` asks Java again, which needs a JDK.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

from rocketapp.wire.trace import (
    CallCode,
    PubRecord,
    begun_line,
    ended_line,
)


class SubBeforeRecord(NamedTuple):
    """A handler is called. `request_id` is the same in the record of the call's end."""

    at_ms: int
    region: str
    group: str
    request_id: str
    message_id: str
    retries: int
    keys: str | None

    def encode(self) -> str:
        about = self.message_id, self.region, self.retries, self.keys, ""
        return begun_line(about, self.at_ms, self.group, self.request_id)[0]


class SubAfterRecord(NamedTuple):
    """The call of a handler has ended."""

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str | None
    code: int
    at_ms: int
    group: str

    def encode(self) -> str:
        about, code = (self.message_id, "", 0, self.keys, ""), CallCode(self.code)
        return ended_line(about, self.at_ms, self.group, self.request_id, cost_ms=self.cost_ms, code=code)[0]


TraceRecord = PubRecord | SubBeforeRecord | SubAfterRecord
_KINDS = {
    kind.__name__.removesuffix("Record"): (kind, tuple(get_type_hints(kind).values())) for kind in get_args(TraceRecord)
}
_READ: dict[object, Callable[[str], object]] = {
    int: int,
    str: str,
    bool: "true".__eq__,
    str | None: lambda word: None if word == "null" else word,
}


def decode(body: bytes) -> list[TraceRecord]:
    """The records of a trace message."""
    found: list[TraceRecord] = []
    for line in body.decode().split("\x02")[:-1]:
        kind, *words = line.split("\x01")
        made, types = _KINDS[kind]
        found.append(made(*(_READ[wanted](word) for wanted, word in zip(types, words, strict=True))))
    return found


GOLDEN = Path(__file__).with_name("traces.json")
ID = "7F0000010A2B1B2C3D4E000001020003"
OFFSET_ID = "7F00000100002A9F0000000000001F40"
AT = 1_795_000_000_123
_HOST, _REQUEST = "127.0.0.1:10911", "0123456789ABCDEF0000000000000001"
_BODY = 512

RECORDS: list[TraceRecord] = [
    PubRecord(AT, "DefaultRegion", "shop", "orders", ID, "paid", "1 two", _HOST, _BODY, 7, 0, OFFSET_ID, True),
    PubRecord(AT, "eu", "shop", "orders", ID, None, None, _HOST, 0, 0, 1, OFFSET_ID, False),
    PubRecord(AT, "DefaultRegion", "шоп", "orders", ID, "日本", "clé", _HOST, 3, 1, 3, OFFSET_ID, True),
    SubBeforeRecord(AT, "DefaultRegion", "billing", _REQUEST, ID, 2, "1 two"),
    SubBeforeRecord(AT, "DefaultRegion", "billing", _REQUEST, ID, 0, None),
    SubAfterRecord(_REQUEST, ID, 12, True, "1 two", 0, AT, "billing"),
    SubAfterRecord(_REQUEST, ID, 900_000, False, None, 1, AT, "billing"),
    SubAfterRecord(_REQUEST, ID, 3, False, None, 4, AT, "billing"),
]

_JAVA = {
    "at_ms": "timeStamp",
    "region": "regionId",
    "group": "groupName",
    "message_id": "msgId",
    "tag": "tags",
    "store_host": "storeHost",
    "body_bytes": "bodyLength",
    "cost_ms": "costTime",
    "kind": "msgType",
    "offset_message_id": "offsetMsgId",
    "request_id": "requestId",
    "retries": "retryTimes",
    "code": "contextCode",
}
"""Our names, where TraceContext and TraceBean have others."""


def asked(record: TraceRecord) -> dict[str, Any]:
    """The same record in Java's names."""
    kind = type(record).__name__.removesuffix("Record")
    return {"type": kind, **{_JAVA.get(name, name): value for name, value in record._asdict().items()}}


if __name__ == "__main__":
    from tests.peers.java_client import Peer

    with tempfile.TemporaryDirectory() as home:
        peer = Peer(Path(home))
        made = peer.call("trace_encode", records=[asked(record) for record in RECORDS])
        peer.stop()
    GOLDEN.write_text(json.dumps(made, indent=1) + "\n")
