from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp import DeadLetter, RocketApp, SetupError
from rocketapp.app.declare.phases import declared_of
from rocketapp.app.publishing import outgoing
from rocketapp.plugins.avro import Avro, AvroCodec
from rocketapp.testing import Done, call_sync, make_message
from tests.cases import cases

AVRO = {"content-type": "application/avro"}
FIRST = {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "string"}]}
NOTED = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "note", "type": "string"}],
}
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "int", "default": 1}],
}


@dataclass
class Order:
    id: str
    amount: int = 1
    __avro_schema__ = ORDER
    __avro_old_schemas__ = (FIRST, NOTED)


class OldOrder(msgspec.Struct):
    id: str
    __avro_schema__: ClassVar[Any] = FIRST


class NotedOrder(msgspec.Struct):
    id: str
    note: str
    __avro_schema__: ClassVar[Any] = msgspec.json.encode(NOTED).decode()


class OrderModel(pydantic.BaseModel):
    id: str
    amount: int = pydantic.Field(default=1, le=100)
    __avro_schema__: ClassVar[Any] = ORDER


class Short(msgspec.Struct):
    id: str
    amount: str
    __avro_schema__: ClassVar[Any] = ORDER


class Size(Enum):
    SMALL = "small"


class Everything(msgspec.Struct):
    at: datetime
    day: date
    price: Decimal
    key: UUID
    plain_key: UUID
    size: Size
    raw: bytes
    parts: list[OldOrder]
    counts: dict[str, int]
    maybe: int | None = None
    __avro_schema__: ClassVar[Any] = {
        "type": "record",
        "name": "Everything",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "plain_key", "type": "string"},
            {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["small"]}},
            {"name": "raw", "type": "bytes"},
            {"name": "parts", "type": {"type": "array", "items": FIRST}},
            {"name": "counts", "type": {"type": "map", "values": "long"}},
            {"name": "maybe", "type": ["null", "long"]},
        ],
    }


def outcome(kind: Any, body: bytes, properties: Any = AVRO) -> Any:
    """What becomes of a message of an app whose handler returns its payload."""
    app = RocketApp("shop", plugins=[Avro])

    def handle(payload: Any) -> Any:
        return payload

    handle.__annotations__["payload"] = kind
    app.subscribe("orders")(handle)
    return call_sync(handle, make_message(body, topic="orders", properties=properties), app=app)


def reason(kind: Any, body: bytes, properties: Any = AVRO) -> str:
    found = outcome(kind, body, properties)
    assert isinstance(found, DeadLetter)
    return found.reason


def decode(kind: Any, body: bytes) -> Any:
    decoder = AvroCodec().decoder(kind)
    assert decoder is not None
    return decoder(body)


def encode(body: Any) -> bytes:
    return AvroCodec().encode(body)


@pytest.mark.parametrize("properties", [AVRO, {"content-type": "avro/binary"}, {}])
def test_a_record_goes_there_and_back_by_content_type_or_because_the_type_has_a_schema(properties: Any) -> None:
    assert outcome(Order, encode(Order("1", 5)), properties) == Done(Order("1", 5))


def test_what_is_published_says_what_it_is_and_names_its_schema() -> None:
    payloads = declared_of(RocketApp("shop", plugins=[Avro])).payloads
    made = outgoing("orders", Order("1", 5), {}, payloads)
    assert made.properties == AVRO
    # The fingerprint is CRC-64 of the canonical form, little-endian; then a text of one byte, and 5 in zigzag.
    assert made.body == bytes.fromhex("c301 f48499dea594bc66") + b"\x021\x0a"


def test_json_is_read_and_published_where_it_is_asked_for() -> None:
    assert outcome(Order, b'{"id": "1"}', {"content-type": "application/json"}) == Done(Order("1"))
    payloads = declared_of(RocketApp("shop", plugins=[Avro])).payloads
    assert outgoing("orders", Order("1"), {"content_type": "application/json"}, payloads).body.startswith(b"{")


@pytest.mark.parametrize("body", [OldOrder("1"), NotedOrder("1", "hi")])
def test_records_of_old_schemas_are_resolved_to_the_present_one(body: Any) -> None:
    assert decode(Order, encode(body)) == Order("1", 1)


def test_a_record_without_a_fingerprint_is_of_the_types_own_schema() -> None:
    assert decode(Order, b"\x021\x0a") == Order("1", 5)


def test_every_kind_of_value_goes_there_and_back() -> None:
    value = Everything(
        at=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        day=date(2026, 1, 2),
        price=Decimal("12.50"),
        key=UUID(int=7),
        plain_key=UUID(int=8),
        size=Size.SMALL,
        raw=b"\xff",
        parts=[OldOrder("1"), OldOrder("2")],
        counts={"a": 2**40},
    )
    assert decode(Everything, encode(value)) == value


def test_pydantic_models_check_what_they_get() -> None:
    assert outcome(OrderModel, encode(OrderModel(id="1", amount=5))) == Done(OrderModel(id="1", amount=5))
    assert "field amount: Input should be less than or equal to 100" in reason(OrderModel, encode(Order("1", 101)))


@cases(
    "kind, body, what",
    [
        (Short, encode(Order("1", 5)), "as Short: field amount: Expected `str`, got `int`"),
        (Order, b"", "as Order: the record is cut short"),
        (Order, encode(Order("1", 5))[:-1], "as Order: the record is cut short"),
        (Order, encode(NotedOrder("1", "hi"))[:-1], "as Order: the record is cut short"),
        (Order, encode(Order("1", 5)) + b"..", "as Order: ValueError: 2 bytes are left behind the record"),
        (
            Order,
            b"\xc3\x01" + bytes(9),
            "LookupError: no schema has the fingerprint 0000000000000000: add the writer's",
        ),
        (Order, b"\xc3\x01", "no schema has the fingerprint "),
        (Order, b"\x01abc", "as Order: the record is cut short"),
        (Order, b"\x02\xff\x00", "UnicodeDecodeError"),
        (Order, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01abc", "as Order: the record is cut short"),
        (Order, b'{"id": "1"}', "as Order: "),
    ],
)
def test_what_cannot_be_decoded_is_a_dead_letter_at_once_with_the_reason(kind: Any, body: bytes, what: str) -> None:
    assert what in reason(kind, body)


@given(body=st.binary(max_size=64), is_single=st.booleans())
def test_any_bytes_become_a_value_or_an_exception_that_says_why(body: bytes, is_single: bool) -> None:
    try:
        assert isinstance(decode(Everything, (encode(EMPTY)[:10] if is_single else b"") + body), Everything)
    except (ValueError, msgspec.ValidationError) as error:
        assert str(error)


EMPTY = Everything(
    datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), Decimal(1), UUID(int=1), UUID(int=1), Size.SMALL, b"", [], {}
)


@dataclass
class More:
    id: str
    amount: int = 1
    extra: list[str] = field(default_factory=list)
    __avro_schema__ = ORDER


@pytest.mark.parametrize(
    ("body", "error", "what"),
    [
        (Order("1", "x"), TypeError, "on field amount"),  # type: ignore[arg-type]
        (Order("1", 2**31), ValueError, "shop.Order.amount is <2147483648>"),
        (More("1"), ValueError, "record contains more fields than the schema specifies: extra"),
        (
            {"id": "1"},
            TypeError,
            "a body of type dict has no form in Avro: give it an __avro_schema__, or publish bytes",
        ),
    ],
)
def test_what_the_schema_does_not_hold_is_not_published(body: Any, error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        encode(body)


def record(name: str, **types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": types[one]} for one in types]}


@cases(
    "schema, what",
    [
        (record("Node", next=["null", "Node"]), "Node holds itself"),
        (record("a.Node", parts={"type": "array", "items": "Node"}), "a.Node holds itself"),
        (record("A", b=record("B", a={"type": "map", "values": "A"})), "A holds itself"),
        (record("A", nothing={"type": "array", "items": "null"}), "an array has items of no bytes"),
        (record("A", e=record("E"), b={"type": "array", "items": "E"}), "an array has items of no bytes"),
        ({"type": "array", "items": "int"}, "__avro_schema__ is not a record"),
        ({"type": "recrod"}, "__avro_schema__ is not a schema: UnknownType"),
        ("{", "__avro_schema__ is not a schema: JSONDecodeError"),
    ],
)
def test_a_schema_that_is_wrong_or_unsafe_is_refused_with_the_line_of_its_type(schema: Any, what: str) -> None:
    @dataclass
    class Bad:
        __avro_schema__ = schema

    with pytest.raises(SetupError) as caught:
        AvroCodec().decoder(Bad)
    assert what in str(caught.value)
    assert str(caught.value).startswith(__file__)
    assert "\n" not in str(caught.value)


def test_old_schemas_are_a_list() -> None:
    @dataclass
    class Bad:
        __avro_schema__ = FIRST
        __avro_old_schemas__ = FIRST

    with pytest.raises(SetupError, match="Bad: __avro_old_schemas__ is a list of schemas"):
        AvroCodec().decoder(Bad)


def test_without_the_extra_the_error_names_it_in_one_line() -> None:
    program = """
import sys
sys.modules["fastavro"] = None
import dataclasses
from rocketapp.plugins.avro import AvroCodec

@dataclasses.dataclass
class Order:
    __avro_schema__ = {}

try:
    AvroCodec().decoder(Order)
except Exception as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "__main__:Order: Order: __avro_schema__ needs fastavro: pip install 'rocketapp[avro]'\n"


def test_the_plugin_imports_nothing_of_fastavro() -> None:
    program = "import sys, rocketapp.plugins.avro; print('fastavro' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_an_upcaster_of_a_type_with_a_schema_is_refused_with_its_line() -> None:
    app = RocketApp("shop")

    @app.upcaster(Order, version=1)
    def add_amount(members: dict[str, Any]) -> dict[str, Any]:
        return {**members, "amount": 1}

    @app.subscribe("orders")
    def settle(order: Order) -> None: ...

    with pytest.raises(SetupError, match=r"test_avro.py:\d+: Order is read as application/avro, which an upcaster"):
        call_sync(settle, Order("1"), app=app)
