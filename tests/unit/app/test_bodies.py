from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pydantic
import pytest

from rocketapp.app.bodies import encode_body
from rocketapp.app.publishing import outgoing


class Order(msgspec.Struct):
    id: str


class Model(pydantic.BaseModel):
    size: int


@dataclasses.dataclass
class Move:
    item: str


@pytest.mark.parametrize(
    ("body", "expected"),
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


@pytest.mark.parametrize("body", [None, 5, 1.5, True, object(), Order, Move, {"a": object()}])
def test_what_has_no_form_in_json_is_a_type_error(body: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot be published|has no form in JSON"):
        encode_body(body)


def test_a_delay_is_exactly_one_of_the_levels() -> None:
    assert outgoing("orders", b"x", delay=30).delay_level == 4
    assert outgoing("orders", b"x").delay_level == 0
    with pytest.raises(ValueError, match="nearest are 30 and 60"):
        outgoing("orders", b"x", delay=45)


def test_a_single_key_is_a_key_and_not_its_letters() -> None:
    assert outgoing("orders", b"x", keys="abc").keys == ("abc",)
    assert outgoing("orders", b"x", keys=["a", "b"]).keys == ("a", "b")
