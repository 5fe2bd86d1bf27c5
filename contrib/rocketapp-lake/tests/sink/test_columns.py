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
import pydantic
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileOptions
from google.protobuf.timestamp_pb2 import Timestamp

from rocketapp_lake.arrow_columns import schema_of_ddl
from rocketapp_lake.columns import TIMESTAMP, Columns
from rocketapp_lake.declared import columns_of
from tests.cases import cases


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
    return row_from(columns, msgspec.json.decode(body, type=columns.kind))


def row_from(columns: Columns, payload: Any) -> dict[str, Any]:
    values = columns.values(payload)
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


class Address(pydantic.BaseModel):
    city: str
    since: date


class Customer(pydantic.BaseModel):
    id: int = pydantic.Field(gt=0)
    name: str | None = None
    at: datetime
    addresses: list[Address] = []


def test_a_pydantic_model_has_columns_and_rows() -> None:
    columns = columns_of(Customer)
    assert columns.schema.field("addresses").type == pa.list_(
        pa.struct([("city", pa.string()), ("since", pa.date32())])
    )
    body = b'{"id": 1, "at": "2026-11-22T05:00:00Z", "addresses": [{"city": "Rome", "since": "2020-01-02"}]}'
    assert row_from(columns, Customer.model_validate_json(body)) == {
        "id": 1,
        "name": None,
        "at": datetime(2026, 11, 22, 5, tzinfo=UTC),
        "addresses": [{"city": "Rome", "since": date(2020, 1, 2)}],
    }


class Paid(msgspec.Struct, tag="paid"):
    id: int
    amount: int


class Refunded(msgspec.Struct, tag="refunded"):
    id: int
    reason: str | None


class Odd(msgspec.Struct, tag="odd"):
    id: str


def test_several_types_are_one_table_with_their_tag() -> None:
    kind = Paid | Refunded
    assert columns_of(kind).schema.names == ["type", "id", "amount", "reason"]
    assert row_of(kind, b'{"type": "refunded", "id": 2, "reason": "broken"}') == {
        "type": "refunded",
        "id": 2,
        "amount": None,
        "reason": "broken",
    }


@cases(
    "kind, problem",
    [
        (Paid | Odd, "field 'id' has not the same type in all of them"),
        (Paid | int, "all of them are msgspec Structs with a tag"),
        (pa.schema([("_rmq_offset", pa.int64())]), "names that begin with _rmq_ are those of the sink"),
        (pa.schema([("at", pa.duration("us"))]), r"column 'at' is duration\[us\]: no body fills it"),
        (pa.schema([("a", pa.int64()), ("a", pa.int64())]), "two columns have the same name"),
        ("id BIGINT, id", "a type is expected at character 13"),
        ("id NUMBER", "bodies cannot become 'number': give another type of Spark"),
        ("id BIGINT NOT", "NULL is expected"),
        ("id BIGINT; x INT", "the end or a comma is expected at character 9"),
    ],
)
def test_what_makes_no_table_is_refused(kind: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        columns_of(kind)


DDL = """id BIGINT NOT NULL, item: STRING COMMENT 'what, exactly', price DECIMAL(10,2), small TINYINT, share FLOAT,
 at TIMESTAMP, day DATE, raw BINARY, `odd name` INT,
 lines ARRAY<STRUCT<item: STRING, counts: MAP<STRING, INT>>>"""


def test_ddl_names_the_columns() -> None:
    assert schema_of_ddl(DDL) == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("item", pa.string()),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("small", pa.int8()),
            pa.field("share", pa.float32()),
            pa.field("at", TIMESTAMP),
            pa.field("day", pa.date32()),
            pa.field("raw", pa.binary()),
            pa.field("odd name", pa.int32()),
            pa.field(
                "lines", pa.list_(pa.struct([("item", pa.string()), ("counts", pa.map_(pa.string(), pa.int32()))]))
            ),
        ]
    )


def test_a_body_fills_columns_that_were_given_themselves() -> None:
    body = b"""{"id": 1, "price": "1.50", "small": 7, "share": 0.5, "at": "2026-11-22T05:00:00Z", "day": "2026-11-22",
      "raw": "YQ==", "odd name": 3, "lines": [{"item": "x", "counts": {"a": 1}}, null], "unknown": true}"""
    found = row_of(DDL, body)
    assert (found["id"], found["item"], found["price"], found["odd name"]) == (1, None, Decimal("1.50"), 3)
    assert (found["raw"], found["at"]) == (b"a", datetime(2026, 11, 22, 5, tzinfo=UTC))
    assert found["lines"] == [{"item": "x", "counts": [("a", 1)]}, None]


@pytest.mark.parametrize(
    ("body", "problem"), [(b'{"id": 1, "small": 300}', "<= 127"), (b"{}", "missing required field `id`")]
)
def test_a_body_that_does_not_fit_the_given_columns_is_refused(body: bytes, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        row_of(DDL, body)


def test_a_protobuf_class_has_columns_and_rows() -> None:
    columns = columns_of(FieldDescriptorProto)
    assert columns.schema.field("number").type == pa.int32()
    found = row_from(columns, FieldDescriptorProto(name="a", number=3, type=FieldDescriptorProto.TYPE_BYTES))
    assert (found["name"], found["number"], found["type"], found["label"]) == ("a", 3, "TYPE_BYTES", None)
    assert row_from(columns_of(Timestamp), Timestamp(seconds=5)) == {"seconds": 5, "nanos": 0}
    assert pa.types.is_list(columns_of(FileOptions).schema.field("uninterpreted_option").type)


def test_a_protobuf_class_that_holds_itself_is_refused() -> None:
    with pytest.raises(TypeError, match="DescriptorProto holds itself"):
        columns_of(DescriptorProto)
