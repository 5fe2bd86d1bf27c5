from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.columns import STAMP
from pyspark_rocketmq.encoding import RowError, encode, stamps_of
from rocketapp.wire import properties
from rocketapp.wire.batch import decode_batch

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TYPES = {
    "body": pa.binary(),
    "tags": pa.string(),
    "keys": pa.string(),
    "sharding_key": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "deliver_at": pa.timestamp("us", tz="UTC"),
}


def encoded(rows: list[dict[str, Any]], *, stamped: bool = True) -> list[tuple[bytes, dict[str, str]]]:
    """The bodies and properties that consumers see."""
    columns = {name: pa.array([row.get(name) for row in rows], TYPES[name]) for name in TYPES if name in rows[0]}
    ids = [f"ID{number}" for number in range(len(rows))]
    items = encode(columns, ids, stamps_of("q/1/2", 7, len(rows)) if stamped else None)
    found = decode_batch(b"".join(items.to_pylist()))
    assert [flag for _, _, flag in found] == [0] * len(rows)
    return [(body, properties.decode(raw)) for body, raw, _ in found]


def test_every_column_becomes_what_consumers_see() -> None:
    row = {
        "body": b"text",
        "tags": "T",
        "keys": "a b",
        "properties": [("user", "value"), ("KEYS", "of the map")],
        "sharding_key": "S",
        "deliver_at": datetime(2030, 1, 1, tzinfo=UTC),
    }
    (found,) = encoded([row])
    assert found == (
        b"text",
        {
            "user": "value",
            "KEYS": "a b",
            "TAGS": "T",
            "__SHARDINGKEY": "S",
            "UNIQ_KEY": "ID0",
            STAMP: "q/1/2/7",
            "WAIT": "true",
            "TIMER_DELIVER_MS": "1893456000000",
        },
    )


texts = st.none() | st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), max_size=8)
messages = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=20),
        "tags": texts,
        "keys": texts,
        "sharding_key": texts,
        "properties": st.none() | st.just([("user", "value")]),
        "deliver_at": st.none() | st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    }
)


@given(st.lists(messages, min_size=1, max_size=12), st.booleans())
def test_rows_with_and_without_values_are_encoded_as_one_by_one(rows: list[dict[str, Any]], stamped: bool) -> None:
    expected = []
    for number, row in enumerate(rows):
        later = row["deliver_at"]
        named = {
            **dict(row["properties"] or ()),
            "KEYS": row["keys"],
            "TAGS": row["tags"],
            "__SHARDINGKEY": row["sharding_key"],
            "UNIQ_KEY": f"ID{number}",
            STAMP: f"q/1/2/{number + 7}" if stamped else None,
            "WAIT": "true",
            "TIMER_DELIVER_MS": None if later is None else str((later - EPOCH) // timedelta(milliseconds=1)),
        }
        # An empty value reads as none.
        expected.append((row["body"], {name: value for name, value in named.items() if value}))
    assert encoded(rows, stamped=stamped) == expected


def test_bodies_of_text_are_utf_8() -> None:
    (item,) = encode({"body": pa.array(["ä"])}, ["ID"]).to_pylist()
    assert decode_batch(item)[0][0] == "ä".encode()


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"body": None}, "body is null"),
        ({"body": b"x", "properties": [("a\x01", "b")]}, "separator"),
        ({"body": b"x", "properties": None, "tags": "a\x02b"}, "'TAGS' holds a separator"),
        ({"body": b"x", "properties": [("a", "b" * 40_000)]}, "at most 32767"),
    ],
)
def test_a_row_that_no_broker_could_give_back_is_refused_by_its_number(row: dict[str, Any], problem: str) -> None:
    fine = {**dict.fromkeys(row), "body": b"fine"}
    with pytest.raises(RowError, match=problem) as caught:
        encoded([fine, fine, row, row])
    assert caught.value.row == 2
