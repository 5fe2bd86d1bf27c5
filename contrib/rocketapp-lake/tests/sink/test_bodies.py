"""Bodies that are stored as they are: the same rows by columns as by messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypedDict

import pyarrow as pa
import pytest

import rocketapp_lake.rows
from rocketapp import Message, MessageQueue
from rocketapp.wire import properties
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.record import decode_records
from rocketapp.wire.stored_records import StoredRecords, stored_records
from rocketapp_lake.batches import Batch
from rocketapp_lake.positions import Span
from rocketapp_lake.rows import BadRows, Rows
from rocketapp_lake.typed_columns import typed_columns


class Size(TypedDict):
    size: int


QUEUES = [MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 2)]


def pull(queue: MessageQueue, first: int, count: int) -> bytes:
    place = {"queue_id": queue.queue_id, "born_ms": 1, "born_port": 1, "store_port": 1}
    return b"".join(
        encode_record(
            Record(
                topic=queue.topic,
                body=b"x" * (at % 50),
                raw_properties=properties.encode({"KEYS": f"k{at} j", **({"TAGS": "t"} if at % 3 else {})}),
                queue_offset=at,
                stored_ms=1_800_000_000_000 + at,
                **place,
            )
        )
        for at in range(first, first + count)
    )


def batch(decoded: bool) -> Batch:
    pieces = {}
    for queue, first in zip(QUEUES, (0, 700), strict=True):
        pulls = [pull(queue, first + 32 * number, 32) for number in range(20)]
        made: list[Any] = [stored_records(data, queue) for data in pulls]
        pieces[queue] = [StoredRecords.of(decode_records(data, queue), queue) for data in pulls] if decoded else made
    return Batch(pieces, {queue: Span(held[0].offset, held[-1].end) for queue, held in pieces.items()})


@pytest.mark.parametrize("bad_rows", ["fail", "column"])
@pytest.mark.parametrize("portion", [5_000, 1 << 30])
def test_columns_of_records_are_those_of_their_messages(
    bad_rows: BadRows, portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocketapp_lake.rows, "_PORTION", portion)
    found, wanted = (Rows(None, None, bad_rows, lambda: None).made(batch(decoded)).table for decoded in (False, True))
    assert isinstance(found, pa.Table)
    assert found.equals(wanted)
    assert found.num_rows == 1280


def test_a_batch_of_which_a_part_is_in_the_table_gives_the_rest() -> None:
    rows = Rows(None, None, "fail", lambda: None).made(batch(False).trimmed({QUEUES[0]: 33, QUEUES[1]: 1339})).table
    assert rows is not None
    assert rows["_rmq_offset"].to_pylist() == [*range(33, 640), 1339]


@pytest.mark.parametrize("portion", [1, 100, 1 << 20])
def test_bad_rows_are_the_same_however_many_are_made_at_once(portion: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocketapp_lake.rows, "_MESSAGES", portion)

    def read(message: Message) -> dict[str, int]:
        if message.offset % 100 == 7:
            raise ValueError(f"bad {message.offset}")
        return {"size": len(message.body)}

    columns = typed_columns(Size)
    refused = {(QUEUES[1], 1000): "refused"}
    rows = Rows(columns, read, "table", lambda: None)
    table, found = rows.made(replace(batch(False), refused=refused))
    bad = [(one.queue, one.message.offset, one.problem) for one in found]
    first = [(QUEUES[0], at, f"bad {at}") for at in range(7, 640, 100)]
    second = [(QUEUES[1], at, f"bad {at}") for at in range(707, 1340, 100)]
    assert bad == sorted([*first, *second, (QUEUES[1], 1000, "refused")])
    assert table is not None
    assert table["_rmq_offset"].to_pylist() == [
        at
        for queue, start in zip(QUEUES, (0, 700), strict=True)
        for at in range(start, start + 640)
        if (queue, at) not in {(queue, offset) for queue, offset, _ in bad}
    ]


def test_times_that_a_function_makes_are_those_that_tables_have() -> None:
    def times(rows: pa.Table) -> pa.Table:
        stored = rows["_rmq_store_ts"]
        kinds = {"home": pa.timestamp("ms", "Europe/Berlin"), "fine": pa.timestamp("ns")}
        return pa.table({name: stored.cast(kind, safe=False) for name, kind in kinds.items()})

    table = Rows(None, None, "fail", lambda: times).made(batch(False)).table
    assert table is not None
    assert table.schema == pa.schema([("home", pa.timestamp("ms", "UTC")), ("fine", pa.timestamp("us"))])
