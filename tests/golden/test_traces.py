"""Records of message trace are those of Java's encoder, byte for byte."""

from __future__ import annotations

import json

from rocketapp.wire.trace import pack
from tests.cases import cases
from tests.golden.traces import GOLDEN, RECORDS, TraceRecord, decode

MADE = json.loads(GOLDEN.read_text())


@cases("record, made", list(zip(RECORDS, MADE, strict=True)))
def test_a_record_is_written_and_read_as_java_does(record: TraceRecord, made: dict[str, object]) -> None:
    assert record.encode() == made["text"]
    assert decode(record.encode().encode()) == [record]
    ((body, keys),) = pack([(record.encode(), f"{record.message_id} {record.keys or ''}".rstrip())])
    assert body.decode() == made["text"]
    assert sorted(keys) == made["keys"]
