"""One command and its frame, in both header forms."""

from __future__ import annotations

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.wire.command import BINARY, Command
from rocketapp.wire.frame import FrameReader, decode, encode


def read(frame: bytes) -> Command:
    (command,) = FrameReader(1 << 24).feed(frame)
    return command


def test_a_json_header_is_written_as_java_writes_it() -> None:
    header = (
        b'{"code":105,"extFields":{"topic":"T1"},"flag":0,"language":"PYTHON","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    assert encode(Command(105, {"topic": "T1"}, opaque=7)) == bytes.fromhex("000000820000007e") + header


def test_a_binary_header_is_written_as_java_writes_it() -> None:
    assert encode(Command(105, {"topic": "T1"}, opaque=7, serializer=BINARY)) == bytes.fromhex(
        "0000002601000022006903" + "01df00000007000000000000" + "00000000000d0005746f706963000000025431"
    )


def test_null_members_are_left_out_and_empty_fields_are_not() -> None:
    assert b"extFields" not in encode(Command(34))
    assert b"remark" not in encode(Command(34))
    assert b'"extFields":{}' in encode(Command(34, {}))
    assert read(encode(Command(34))).fields is None
    assert read(encode(Command(34, {}))).fields == {}


@pytest.mark.parametrize("serializer", [0, BINARY])
def test_a_response_echoes_the_id_and_the_form_of_its_request(serializer: int) -> None:
    request = read(encode(Command(11, {"a": "b"}, opaque=99, serializer=serializer)))
    response = read(encode(Command.response(request, 19, fields={"x": "y"}, body=b"b", remark="why")))
    assert (response.code, response.opaque, response.serializer) == (19, 99, serializer)
    assert (response.fields, response.body, response.remark) == ({"x": "y"}, b"b", "why")
    assert response.is_response
    assert not response.is_one_way


def test_flags_tell_requests_responses_and_one_way_requests_apart() -> None:
    assert not Command(1).is_response
    assert Command(1, flag=2).is_one_way
    assert "one-way" in repr(Command(1, flag=2))
    assert "response" in repr(Command(1, flag=1))


def test_a_code_that_the_binary_form_would_cut_is_written_as_json() -> None:
    command = read(encode(Command(200050, {"topic": "T"}, serializer=BINARY)))
    assert (command.code, command.serializer) == (200050, 0)


def test_an_unknown_serializer_is_refused() -> None:
    with pytest.raises(ProtocolError, match="serializer 2"):
        decode(2, b"{}", b"")


def test_a_header_that_no_frame_can_hold_is_refused() -> None:
    with pytest.raises(ProtocolError, match="limit 16777215"):
        encode(Command(10, {"i": "x" * (1 << 24)}))


@pytest.mark.parametrize("serializer", [0, BINARY])
def test_a_text_with_lone_surrogates_does_not_cost_the_connection(serializer: int) -> None:
    command = read(encode(Command(1, {"file\udcff": "\udcfe"}, remark="no file \udcff", serializer=serializer)))
    assert command.remark == "no file ?"
    assert command.fields == {"file?": "?"}
