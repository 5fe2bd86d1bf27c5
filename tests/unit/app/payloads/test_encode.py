from __future__ import annotations

import dataclasses
import math
from typing import Any, cast

import msgspec
import pydantic
import pytest

from rocketapp.app.publishing import outgoing, timeout_of
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outgoing import MessageOptions
from rocketapp.wire.body import encode_body
from tests.cases import cases


class Order(msgspec.Struct):
    id: str


class Model(pydantic.BaseModel):
    size: int


@dataclasses.dataclass
class Move:
    item: str


@cases(
    "body, expected",
    [
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        ("grün", "grün".encode()),
        ({"a": [1, None]}, b'{"a":[1,null]}'),
        ([1, "x"], b'[1,"x"]'),
        (Order("7"), b'{"id":"7"}'),
        (Move("x"), b'{"item":"x"}'),
        (Model(size=2), b'{"size":2}'),
        ({"model": Model(size=2), "move": Move("x")}, b'{"model":{"size":2},"move":{"item":"x"}}'),
    ],
)
def test_a_body_is_encoded_by_its_type(body: Any, expected: bytes) -> None:
    encoded = encode_body(body)
    assert (type(encoded), encoded) == (bytes, expected)


@cases("body", [None, 5, 1.5, True, object(), Order, Move, {"a": object()}])
def test_what_has_no_form_in_json_is_a_type_error(body: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot be published|has no form in JSON"):
        encode_body(body)


class Measure(pydantic.BaseModel):
    size: float | None = None


def test_text_that_utf_8_cannot_encode_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cannot be published: 'utf-8' codec .* surrogates not allowed: give bytes"):
        encode_body("\ud800")


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_number_that_json_does_not_have_is_refused_and_not_sent_as_null(number: float) -> None:
    for body in ({"a": [None, number]}, [(number,)], Measure(size=number), {"of": Measure(size=number)}):
        with pytest.raises(ValueError, match="JSON has no such number"):
            encode_body(body)
    assert encode_body({"a": None, "model": Measure(), "text": "null"}).count(b"null") == 3


@pytest.mark.parametrize(
    ("options", "level", "seconds"),
    [
        ({}, 0, 0.0),
        ({"delay": 30}, 4, 0.0),
        ({"delay": 45}, 0, 45.0),
        ({"delay": 0.25}, 0, 0.25),
        ({"delay": 30, "recallable": True}, 0, 30.0),
        ({"delay": 45, "rounding": "up", "recallable": True}, 0, 60.0),
    ],
)
def test_a_delay_is_a_level_or_counted_by_a_timer(options: MessageOptions, level: int, seconds: float) -> None:
    message = outgoing("orders", b"x", options)
    assert (message.delay_level, message.delay) == (level, seconds)


def test_a_queue_is_fixed_or_chosen_and_no_key_is_beside_it() -> None:
    queue = MessageQueue("orders", "broker-a", 3)
    assert outgoing("orders", b"x", {"queue": queue}).queue == queue
    assert outgoing("orders", b"x", {"queue": min}).select is min
    with pytest.raises(ValueError, match="queue= and order_key="):
        outgoing("orders", b"x", {"queue": queue, "order_key": "k"})


def test_only_what_is_delayed_can_be_taken_back() -> None:
    with pytest.raises(ValueError, match="recallable=True: only a message with a delay"):
        outgoing("orders", b"x", {"recallable": True})


def test_a_single_key_is_a_key_and_not_its_letters() -> None:
    assert outgoing("orders", b"x", {"keys": "abc"}).keys == ("abc",)
    assert outgoing("orders", b"x", {"keys": ["a", "b"]}).keys == ("a", "b")


@cases(
    "arguments, text",
    [
        ({"topic": 5}, "topic=5: topic takes a str"),
        ({"tag": 5}, "tag=5: tag takes a str or None"),
        ({"keys": 5}, "keys=5: keys takes"),
        ({"keys": [5]}, r"keys=\[5\]: keys takes"),
        ({"keys": b"ab"}, "keys=b'ab': keys takes"),
        ({"properties": {"a": 5}}, "properties={'a': 5}: properties takes a mapping of str to str"),
        ({"properties": {5: "a"}}, "properties takes a mapping of str to str"),
        ({"properties": "a=b"}, "properties takes a mapping of str to str"),
        ({"order_key": 5}, "order_key=5: order_key takes a str or None"),
        ({"queue": 3}, "queue=3: queue takes a MessageQueue, a function"),
        ({"recallable": 1}, "recallable=1: recallable takes True or False"),
        ({"delay": "10s"}, "delay='10s': delay takes seconds as a number"),
        ({"delay": True}, "delay=True: delay takes seconds as a number"),
    ],
)
def test_an_argument_of_a_wrong_kind_is_named_with_what_it_takes(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        outgoing(arguments.pop("topic", "orders"), b"x", cast(MessageOptions, arguments))


def test_keys_and_properties_of_any_shape_that_holds_texts_are_taken() -> None:
    assert outgoing("orders", b"x", {"keys": {"a": 1}.keys()}).keys == ("a",)  # type: ignore[arg-type]
    assert outgoing("orders", b"x", {"properties": {"a": "b"}}).properties == {"a": "b"}


@pytest.mark.parametrize("delay", [-1, 0, 1e308, 10**400, math.nan, math.inf])
def test_a_delay_is_above_zero_and_not_for_ages(delay: float) -> None:
    with pytest.raises(ValueError, match="give seconds above 0, at most 1000000000, or leave it out"):
        outgoing("orders", b"x", {"delay": delay})


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf])
def test_a_timeout_is_above_zero(timeout: float) -> None:
    with pytest.raises(ValueError, match="give seconds above 0"):
        timeout_of({"timeout": timeout})
    timeout_of({"timeout": None})
    timeout_of({"timeout": 0.5})


def test_a_timeout_is_a_number() -> None:
    with pytest.raises(TypeError, match="timeout takes seconds as a number"):
        timeout_of({"timeout": "5"})  # type: ignore[arg-type]
