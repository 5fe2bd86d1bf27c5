from __future__ import annotations

import zlib
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.columns import TYPES, USUAL, ddl
from pyspark_rocketmq.decoding import Rows
from pyspark_rocketmq.problems import RecordError
from rocketapp import MessageQueue
from rocketapp.wire import properties
from rocketapp.wire.batch import encode_batch
from rocketapp.wire.layout import MAGIC_V1, Record, encode_record
from rocketapp.wire.record import decode_records
from rocketapp_lake.arrow_columns import schema_of_ddl
from tests.cases import cases

QUEUE = MessageQueue("orders", "broker-a", 3)
ALL = tuple(TYPES)
WHOLE = 2**62


def rows_of(
    data: bytes, columns: tuple[str, ...] = ALL, low: int = 0, high: int = WHOLE, **more: Any
) -> pa.RecordBatch:
    rows = Rows(QUEUE, columns, **more)
    rows.add(data, low, high)
    return rows.take()


def record(offset: int = 7, body: bytes = b"body", raw: bytes = b"", **more: Any) -> bytes:
    return encode_record(Record("orders", body, raw, queue_id=3, queue_offset=offset, **more))


def test_every_column_of_a_record() -> None:
    raw = properties.encode({"KEYS": "k1 k2", "TAGS": "paid", "UNIQ_KEY": "ID", "user": "value"})
    data = record(
        raw=raw, flag=5, sys_flag=8, born_ms=1_795_169_647_947, born_port=80, stored_ms=1_795_169_648_042,
        reconsume_times=2,
    )  # fmt: skip
    assert rows_of(data).to_pylist() == [
        {
            "topic": "orders",
            "broker": "broker-a",
            "queue_id": 3,
            "queue_offset": 7,
            "body": b"body",
            "tags": "paid",
            "keys": "k1 k2",
            "msg_id": "ID",
            "born_timestamp": datetime(2026, 11, 20, 10, 14, 7, 947000, tzinfo=UTC),
            "store_timestamp": datetime(2026, 11, 20, 10, 14, 8, 42000, tzinfo=UTC),
            "born_host": "127.0.0.1:80",
            "flag": 5,
            "sys_flag": 8,
            "reconsume_times": 2,
            "properties": [("KEYS", "k1 k2"), ("TAGS", "paid"), ("UNIQ_KEY", "ID"), ("user", "value")],
            "bad_record": None,
        }
    ]


def test_a_record_without_properties_has_nulls_and_the_id_of_its_broker() -> None:
    (row,) = rows_of(record(physical_offset=10, store_port=10911)).to_pylist()
    assert (row["tags"], row["keys"], row["properties"]) == (None, None, [])
    assert row["msg_id"] == "7F00000100002A9F000000000000000A"


raws = st.dictionaries(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "a"]), st.sampled_from(["x", "y z", "ü"]))
records = st.builds(
    lambda raw, body, sys_flag, v6, **more: Record(
        "orders" if not v6 else "o" * 130,
        zlib.compress(body) if sys_flag & 1 else body,
        properties.encode(raw),
        sys_flag=sys_flag | (48 if v6 else 0),
        born_host=b"\x20\x01" + bytes(14) if v6 else b"\x0a\x00\x00\x01",
        store_host=bytes(15) + b"\x01" if v6 else b"\x0a\x00\x00\x02",
        **more,
    ),
    raws,
    st.binary(max_size=40),
    st.sampled_from([0, 1, 8, 769]),
    st.booleans(),
    queue_offset=st.integers(0, 20),
    queue_id=st.just(3),
    born_ms=st.integers(0, 2**41),
    stored_ms=st.integers(0, 2**41),
    physical_offset=st.integers(0, 2**50),
    flag=st.integers(-5, 5),
    reconsume_times=st.integers(0, 16),
)


@given(st.lists(records, min_size=1, max_size=8))
def test_columns_say_what_messages_say(given_records: list[Record]) -> None:
    data = b"".join(map(encode_record, given_records))
    found = rows_of(data)
    messages = decode_records(data, None)
    assert found.column("body").to_pylist() == [message.body for message in messages]
    assert found.column("queue_offset").to_pylist() == [message.offset for message in messages]
    assert found.column("msg_id").to_pylist() == [message.message_id for message in messages]
    assert found.column("tags").to_pylist() == [message.tag for message in messages]
    assert found.column("keys").to_pylist() == [message.properties.get("KEYS") for message in messages]
    assert found.column("born_host").to_pylist() == [message.born_host for message in messages]
    assert found.column("born_timestamp").to_pylist() == [message.born_at for message in messages]
    assert found.column("store_timestamp").to_pylist() == [message.stored_at for message in messages]
    assert found.column("sys_flag").to_pylist() == [message.sys_flag for message in messages]
    assert found.column("flag").to_pylist() == [message.flag for message in messages]
    assert found.column("reconsume_times").to_pylist() == [message.reconsume_times for message in messages]
    assert [dict(row) for row in found.column("properties").to_pylist()] == [m.properties for m in messages]


@cases("name", list(TYPES))
def test_a_column_alone_is_the_same_as_among_all(name: str) -> None:
    raw = properties.encode({"KEYS": "k", "TAGS": "t"})
    data = record(raw=raw) + record(8, raw=raw)
    assert rows_of(data, (name,)).column(0).equals(rows_of(data).column(name))


def test_an_inner_batch_is_many_rows_and_only_those_of_the_range() -> None:
    body = encode_batch([(b"a", b"", 0), (b"b", properties.encode({"TAGS": "x"}), 0), (b"c", b"", 0)])
    data = record(5, body, sys_flag=64 | 128)
    assert rows_of(data, ("queue_offset", "body", "tags"), low=6, high=7).to_pylist() == [
        {"queue_offset": 6, "body": b"b", "tags": "x"}
    ]


def test_a_range_and_tags_leave_rows_out() -> None:
    data = b"".join(record(n, raw=properties.encode({"TAGS": tag})) for n, tag in enumerate(["Aa", "BB", "Aa", "Aa"]))
    found = rows_of(data, ("queue_offset",), low=1, high=3, tags=frozenset({"Aa"}))
    assert found.column(0).to_pylist() == [2]


def test_a_body_that_cannot_be_inflated_names_its_message_and_only_when_bodies_are_read() -> None:
    data = record(9, b"not deflated", sys_flag=1)
    with pytest.raises(RecordError, match=r"orders@broker-a:3 offset 9: compressed body is broken.*badRecords=null"):
        rows_of(data, ("queue_offset", "body"))
    assert rows_of(data, ("queue_offset",)).num_rows == 1


def test_a_bad_record_is_a_row_without_a_body_that_tells_where_the_record_is() -> None:
    large = zlib.compress(bytes(2000))
    place = {"physical_offset": 10, "store_port": 10911}
    broken = record(9, b"not deflated", sys_flag=1, raw=properties.encode({"TAGS": "t"}), **place)
    batch = record(11, b"not deflated", sys_flag=1 | 64 | 128, **place)
    data = record(8) + broken + record(10, large, sys_flag=1, **place) + batch + record(12, b"")
    found = rows_of(data, ("queue_offset", "body", "bad_record"), max_inflated_bytes=1000).to_pylist()
    assert [(row["queue_offset"], row["body"]) for row in found] == [
        (8, b"body"),
        (9, None),
        (10, None),
        (11, None),
        (12, b""),
    ]
    problems = [row["bad_record"] for row in found]
    assert problems[0] is problems[-1] is None
    for problem, said in zip(
        problems[1:-1], ("is broken", "more than 1000 bytes", "batch cannot be read"), strict=True
    ):
        assert problem.startswith("7F00000100002A9F000000000000000A: ")
        assert said in problem
    tagged = rows_of(data, ("body", "bad_record"), max_inflated_bytes=1000, tags=frozenset({"t"}))
    assert (tagged.num_rows, tagged.column("bad_record").null_count) == (1, 0)


def test_records_that_are_cut_short_are_refused_wherever_they_were_cut() -> None:
    whole = record(9, raw=b"")
    for cut in range(1, 98):
        with pytest.raises(RecordError, match="orders@broker-a:3 from offset 9 on: "):
            rows_of(record(8) + whole[: len(whole) - cut])


@pytest.mark.parametrize("length", [0, 3, 5, 2**32 - 1])
def test_a_body_is_not_another_length_than_it_says(length: int) -> None:
    data = bytearray(record(body=b"\0" * 4, raw=b"\0" * 20))
    data[84:88] = length.to_bytes(4, "big")
    with pytest.raises(RecordError, match=r"orders@broker-a:3 from offset 7 on: .*its parts are not as long"):
        rows_of(record(6) + bytes(data) + record(8))


@pytest.mark.parametrize("magic", [MAGIC_V1, 0])
def test_a_record_that_cannot_be_told_from_the_next_one_is_looked_for_where_it_should_be(magic: int) -> None:
    nonsense = (0 if magic else 100).to_bytes(4, "big") + magic.to_bytes(4, "big", signed=True) + bytes(92)
    with pytest.raises(RecordError, match="orders@broker-a:3 from offset 5 on: "):
        rows_of(nonsense, low=5)
    with pytest.raises(RecordError, match="orders@broker-a:3 from offset 8 on: "):
        rows_of(record(6) + record(7, zlib.compress(b"x"), sys_flag=1) + nonsense, low=5)


@given(st.binary(max_size=200))
def test_any_bytes_are_rows_or_refused(data: bytes) -> None:
    rows = Rows(QUEUE, ("body", "msg_id"))
    try:
        rows.add(data, 0, WHOLE)
        rows.take()
    except RecordError:
        return
    assert rows.take().num_rows == 0


def test_wild_clocks_are_null() -> None:
    found = rows_of(record(born_ms=2**62) + record(8, born_ms=-5), ("born_timestamp",))
    assert found.column(0).to_pylist() == [None, datetime(1969, 12, 31, 23, 59, 59, 995000, tzinfo=UTC)]


def test_text_that_is_no_utf8_is_replaced() -> None:
    found = rows_of(record(raw=b"TAGS\x01\xff\x02KEYS\x01k\x02") + record(8), ("tags", "keys"))
    assert found.to_pylist() == [{"tags": "\ufffd", "keys": "k"}, {"tags": None, "keys": None}]


def test_batches_are_cut_by_rows_and_by_bytes_and_gather_anew() -> None:
    rows = Rows(QUEUE, USUAL, max_rows=2, max_bytes=1000)
    rows.add(record(0), 0, WHOLE)
    assert not rows.are_enough
    rows.add(record(1), 0, WHOLE)
    assert rows.are_enough
    assert rows.take().num_rows == 2
    rows.add(record(2, bytes(1000)), 0, WHOLE)
    assert rows.are_enough
    assert rows.take().column("queue_offset").to_pylist() == [2]


def test_the_schema_is_the_one_that_spark_derives() -> None:
    import inspect

    from pyspark.sql import types
    from pyspark.sql.pandas.types import to_arrow_schema

    of_spark = {
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "binary": types.BinaryType(),
        "timestamp": types.TimestampType(),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
    }
    spark = types.StructType()
    for name, kind in TYPES.items():
        spark = spark.add(name, of_spark[kind])
    # Older versions always take UTC.
    zone = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    assert to_arrow_schema(spark, **zone).equals(schema_of_ddl(ddl(ALL)))
