"""Declared types are columns, and bodies are their rows."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, TypedDict

import msgspec
import pyarrow as pa
import pytest

from rocketapp_pyspark.columns import TIMESTAMP, columns_of


class State(enum.Enum):
    NEW = "new"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Line:
    item: str
    count: int


class Everything(msgspec.Struct):
    truth: bool
    number: int
    share: float
    text: str
    raw: bytes
    at: datetime
    day: date
    key: uuid.UUID
    price: Decimal
    state: State
    level: Level
    size: Literal["s", "m"]
    lines: list[Line]
    counts: dict[str, int]
    first: Line
    maybe: int | None = None


class Row(TypedDict, total=False):
    name: str
    age: int


def row_of(kind: Any, body: bytes) -> dict[str, Any]:
    """What a reader of the table sees of this body."""
    columns = columns_of(kind)
    values = columns.values(msgspec.json.decode(body, type=columns.kind))
    made = [value if plain is None else plain(value) for value, plain in zip(values, columns.plain, strict=True)]
    arrays = [pa.array([value], field.type) for value, field in zip(made, columns.schema, strict=True)]
    (found,) = pa.Table.from_arrays(arrays, schema=columns.schema).to_pylist()
    return found


LINE = pa.struct([("item", pa.string()), ("count", pa.int64())])


def test_each_type_has_its_column() -> None:
    columns = {field.name: field.type for field in columns_of(Everything).schema}
    assert columns == {
        "truth": pa.bool_(),
        "number": pa.int64(),
        "share": pa.float64(),
        "text": pa.string(),
        "raw": pa.binary(),
        "at": TIMESTAMP,
        "day": pa.date32(),
        "key": pa.string(),
        "price": pa.decimal128(38, 9),
        "state": pa.string(),
        "level": pa.int64(),
        "size": pa.string(),
        "lines": pa.list_(LINE),
        "counts": pa.map_(pa.string(), pa.int64()),
        "first": LINE,
        "maybe": pa.int64(),
    }


def test_a_body_becomes_a_row_of_these_columns() -> None:
    value = Everything(
        truth=True,
        number=1,
        share=0.5,
        text="a",
        raw=b"b",
        at=datetime(2026, 11, 22, tzinfo=UTC),
        day=date(2026, 11, 22),
        key=uuid.UUID(int=1),
        price=Decimal("1.50"),
        state=State.NEW,
        level=Level.LOW,
        size="s",
        lines=[Line("x", 2)],
        counts={"x": 2},
        first=Line("y", 3),
    )
    found = row_of(Everything, msgspec.json.encode(value))
    assert (found["key"], found["state"], found["level"]) == (str(uuid.UUID(int=1)), "new", 1)
    assert (found["lines"], found["counts"]) == ([{"item": "x", "count": 2}], [("x", 2)])
    assert (found["at"], found["price"], found["maybe"]) == (value.at, Decimal("1.5"), None)


def test_what_a_typed_dict_lacks_is_empty() -> None:
    assert row_of(Row, b'{"age": 3}') == {"name": None, "age": 3}


@pytest.mark.parametrize(("kind", "problem"), [(int, "has no fields"), (list[int], "has no fields")])
def test_a_type_without_fields_has_no_columns(kind: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        columns_of(kind)


class Open(msgspec.Struct):
    anything: Any


def test_a_field_without_a_type_is_refused_with_its_name() -> None:
    with pytest.raises(TypeError, match="field 'anything' has no column: AnyType"):
        columns_of(Open)
