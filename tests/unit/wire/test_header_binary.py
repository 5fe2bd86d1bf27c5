"""Binary headers, also hostile ones."""

from __future__ import annotations

import struct

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.wire import header_binary
from rocketapp.wire.command import Command
from rocketapp.wire.header_binary import encode
from tests.cases import cases

FIXED = struct.pack(">hbhii", 11, 9, 479, 3, 2)
NO_REMARK = struct.pack(">i", 0)


def decode(data: bytes) -> Command:
    return header_binary.decode(data, b"")


def header(fields: bytes, length: int | None = None) -> bytes:
    return FIXED + NO_REMARK + struct.pack(">i", len(fields) if length is None else length) + fields


def entry(name: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value


def test_texts_of_length_zero_are_null() -> None:
    read = decode(header(entry(b"a", b"") + entry(b"b", b"c")))
    assert read.remark is None
    assert read.fields == {"b": "c"}
    assert decode(header(b"")).fields is None


def test_languages_are_numbers_and_unknown_ones_are_other() -> None:
    assert decode(header(b"")).language == "GO"
    assert decode(struct.pack(">hbhii", 1, -1, 0, 0, 0) + NO_REMARK * 2).language == "OTHER"
    written = encode(Command(1, language="KLINGON"))
    assert decode(written).language == "OTHER"


def test_a_version_is_cut_to_16_bits_and_codes_are_signed() -> None:
    written = encode(Command(-1000, version=0x1_0005))
    assert (decode(written).code, decode(written).version) == (-1000, 5)


def test_the_last_of_equal_names_wins() -> None:
    assert decode(header(entry(b"a", b"1") + entry(b"a", b"2"))).fields == {"a": "2"}


@cases(
    "data",
    [
        b"",
        FIXED,
        FIXED + struct.pack(">i", -1),
        FIXED + struct.pack(">i", 2**31 - 1),
        FIXED + NO_REMARK,
        header(b"", length=-1),
        header(b"", length=2**31 - 1),
        header(entry(b"a", b"b"), length=3),
        header(entry(b"a", b"b"), length=99),
        header(struct.pack(">h", -1) + b"abcdef"),
        header(struct.pack(">h", 32767) + b"abcdef"),
        header(struct.pack(">h", 1) + b"a" + struct.pack(">i", -5)),
        header(struct.pack(">h", 1) + b"a" + struct.pack(">i", 2**31 - 1)),
        header(b"\x00"),
    ],
)
def test_lengths_that_lie_raise_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data)


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(ProtocolError, match="limit 32767"):
        encode(Command(1, {"a" * 32768: "b"}))
