from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from rocketapp import Context, DeadLetter, RocketApp, Topic, TypeByTag
from rocketapp.app.declare.phases import declared_of
from rocketapp.app.publishing import outgoing
from rocketapp.plugins.protobuf import Protobuf, ProtobufCodec
from rocketapp.testing import Done, TestApp, call_sync, make_message
from rocketapp.testing.records import Published
from tests.unit.plugins.protobuf_classes import Order, Parcel

PROTOBUF = {"content-type": "application/protobuf"}


class Note(msgspec.Struct):
    text: str


def app_with(kind: Any, **options: Any) -> tuple[RocketApp, Callable[..., Any]]:
    """An app whose handler returns its payload, and the handler."""
    app = RocketApp("shop", plugins=[Protobuf])

    def handle(payload: Any) -> Any:
        return payload

    handle.__annotations__["payload"] = kind
    app.subscribe("orders", **options)(handle)
    return app, handle


def outcome(kind: Any, body: bytes, properties: dict[str, str] | None = None) -> Any:
    """What becomes of one message."""
    app, handle = app_with(kind)
    return call_sync(handle, make_message(body, topic="orders", properties=properties), app=app)


def reason(kind: Any, body: bytes, properties: dict[str, str] | None = None) -> str:
    found = outcome(kind, body, properties)
    assert isinstance(found, DeadLetter)
    return found.reason


@pytest.mark.parametrize(
    "properties",
    [
        PROTOBUF,
        {"content-type": "Application/X-Protobuf; messageType=shop.Order"},
        {"content-type": "application/vnd.google.protobuf"},
        {"content-type": "application/octet-stream"},
        {},
    ],
)
def test_a_generated_class_is_decoded_by_content_type_or_because_the_handler_asks_for_it(properties: Any) -> None:
    order = Order(id="1", amount=5, part_of=Order(id="0"))
    assert outcome(Order, order.SerializeToString(), properties) == Done(order)


def test_a_published_message_says_what_it_is() -> None:
    app, _ = app_with(Order)
    made = outgoing("orders", Timestamp(seconds=7), {}, declared_of(app).payloads)
    assert (made.body, made.properties) == (b"\x08\x07", PROTOBUF)


def test_publish_and_handle_and_publish_again() -> None:
    app = RocketApp("shop", plugins=[Protobuf])
    orders: Topic[Any] = Topic("orders", Order)

    @app.subscribe(orders)
    async def handle(order: Order, context: Context) -> None:
        await context.publish("paid", Timestamp(seconds=order.amount))

    with TestApp(app) as t:
        t.publish(orders, Order(id="1", amount=3))
        t.settle()
    (published,) = t.published
    assert isinstance(published, Published)
    assert published.payload(Timestamp) == Timestamp(seconds=3)


def test_a_payload_given_to_a_handler_under_test_is_encoded() -> None:
    app, handle = app_with(Order)
    assert call_sync(handle, Order(id="1"), app=app) == Done(Order(id="1"))


def test_a_tag_tells_generated_classes_and_other_types_apart() -> None:
    kind = Annotated[Any, TypeByTag({"order": Order, "note": Note})]
    app, handle = app_with(kind)
    order = make_message(Order(id="1").SerializeToString(), topic="orders", tag="order", properties=PROTOBUF)
    assert call_sync(handle, order, app=app) == Done(Order(id="1"))
    assert call_sync(handle, make_message(Note("hi"), topic="orders", tag="note"), app=app) == Done(Note("hi"))


@pytest.mark.parametrize(
    ("kind", "body", "properties", "what"),
    [
        (Order, b'{"id": "1"}', {}, "as Order: Error parsing message with type 'shop.Order'"),
        (Order, b"\x0a\xff", PROTOBUF, "as Order: Error parsing message"),
        (Order, b"{}", {"content-type": "application/json"}, "has no codec for it: known are application/protobuf"),
        (Parcel, b"\x0a\x00", PROTOBUF, "as Parcel: field to.city: missing, and shop.Parcel requires it"),
        (Note, b"\x0a\x00", PROTOBUF, "'application/protobuf' has no codec for it: known are application/json"),
    ],
)
def test_what_cannot_be_decoded_is_a_dead_letter_at_once_with_the_reason(
    kind: Any, body: bytes, properties: Any, what: str
) -> None:
    assert what in reason(kind, body, properties)


def test_a_body_nested_a_thousand_times_is_a_dead_letter() -> None:
    body = b""
    for _ in range(1000):
        length = len(body)
        body = b"\x1a" + (bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])) + body
    assert "as Order: Error parsing message" in reason(Order, body)


@given(body=st.binary(max_size=64))
def test_any_bytes_become_a_message_or_an_exception(body: bytes) -> None:
    decode = ProtobufCodec().decoder(Parcel)
    assert decode is not None
    try:
        assert isinstance(decode(body), Parcel)
    except (DecodeError, ValueError) as error:
        assert str(error)


def test_a_message_without_a_required_field_is_not_published() -> None:
    app, _ = app_with(Order)
    with pytest.raises(ValueError, match=r"^field to\.city: missing, and shop\.Parcel requires it$"):
        outgoing("orders", Parcel(to={}), {}, declared_of(app).payloads)


def test_other_types_have_no_form_in_protobuf() -> None:
    app, _ = app_with(Order)
    with pytest.raises(TypeError, match=r"^a body of type Note has no form in Protobuf: give a message of a generated"):
        outgoing("orders", Note("hi"), {"content_type": "application/protobuf"}, declared_of(app).payloads)


def test_without_the_extra_the_error_names_it_in_one_line() -> None:
    """An interpreter in which `google.protobuf` cannot be found."""
    program = """
import sys
sys.modules["google"] = None
from rocketapp.plugins.protobuf import Protobuf
codec = Protobuf().payload_codec()
print(codec.claims(dict), codec.decoder(dict))
try:
    codec.encode({"id": "1"})
except TypeError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [
        "False None",
        "content_type='application/protobuf' needs Protobuf: pip install 'rocketapp[protobuf]'",
    ]


def test_the_plugin_imports_nothing_of_protobuf() -> None:
    program = "import sys, rocketapp.plugins.protobuf; print('google.protobuf' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
