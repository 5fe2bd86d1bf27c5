"""JSON headers of peers that are not us."""

from __future__ import annotations

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.wire import header_json
from rocketapp.wire.command import Command
from tests.cases import cases


def decode(data: bytes) -> Command:
    return header_json.decode(data, b"")


def test_unknown_members_and_any_language_are_accepted() -> None:
    header = decode(b' {"code":1, "language":"KLINGON", "new":{"deep":[1,2]}, "opaque":5} ')
    assert (header.code, header.language, header.opaque, header.flag) == (1, "KLINGON", 5, 0)


def test_values_that_are_no_strings_become_strings() -> None:
    header = decode(b'{"code":1,"extFields":{"a":1,"b":true,"c":null,"d":1.5,"e":"x","f":{"g":[1]}},"remark":7}')
    assert header.fields == {"a": "1", "b": "true", "d": "1.5", "e": "x", "f": '{"g":[1]}'}
    assert header.remark == "7"


def test_quoted_numbers_and_null_members_are_accepted() -> None:
    header = decode(b'{"code":"11","opaque":"3","extFields":null,"remark":null,"language":null}')
    assert (header.code, header.opaque, header.language) == (11, 3, "OTHER")


def test_the_last_of_equal_names_wins() -> None:
    header = decode(b'{"code":1,"code":2,"extFields":{"a":"1","a":"2"}}')
    assert (header.code, header.fields) == (2, {"a": "2"})


def test_broken_utf8_is_replaced() -> None:
    assert decode(b'{"code":1,"remark":"\xff"}').remark == "\ufffd"


@cases(
    "data",
    [
        b"",
        b"{}",
        b"null",
        b"[]",
        b"7",
        b'{"code":1',
        b'{"code":null}',
        b'{"code":true}',
        b'{"code":"x"}',
        b'{"code":1e999}',
        b'{"code":2147483648}',
        b'{"code":1,"opaque":99999999999999999999999}',
        b'{"code":1,"opaque":-2147483649}',
        b'{"code":1,"version":2147483648}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1,"extFields":"x"}',
        b'{"code":1,"remark":"\\ud800"}',
        b'{"code":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"code":1,"extFields":{"a":' + b"[" * 100_000,
        b'{"code":1,"extFields":' + b'{"a":' * 100_000,
        b'{"code":' + b"1" * 100_000 + b"}",
    ],
)
def test_what_is_no_header_raises_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data)
