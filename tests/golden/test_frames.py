"""Every recorded frame is read, written again, and means the same: ours against Java's, not ours against ours."""

from __future__ import annotations

import json
import struct

import pytest

from rocketapp.wire.command import Command, encode
from rocketapp.wire.frame import FrameReader
from tests.golden.frames import NAMES, frame, read

ALL = pytest.mark.parametrize(("name", "side"), NAMES, ids=[f"{name}-{side}" for name, side in NAMES])


def facts(command: Command) -> tuple[object, ...]:
    """All that a frame says."""
    return (
        command.code,
        command.opaque,
        command.flag,
        command.language,
        command.version,
        command.serializer,
        command.remark or None,
        command.fields or None,
        command.body,
    )


@ALL
def test_a_frame_written_again_means_the_same(name: str, side: str) -> None:
    command = read(frame(name, side))
    assert facts(read(encode(command))) == facts(command)


@ALL
def test_the_header_is_what_an_independent_reader_sees(name: str, side: str) -> None:
    data = frame(name, side)
    command = read(data)
    length = int.from_bytes(data[5:8], "big")
    assert command.body == data[8 + length :]
    assert command.is_response == (side == "response")
    if data[4] == 1:
        code, language, version, opaque, flag, remark_length = struct.unpack_from(">hbhiii", data, 8)
        assert (command.code, command.version, command.opaque, command.flag) == (code, version, opaque, flag)
        assert (language, remark_length, command.language, command.serializer) == (0, 0, "JAVA", 1)
    else:
        header = json.loads(data[8 : 8 + length])
        assert (command.code, command.version, command.opaque) == (header["code"], header["version"], header["opaque"])
        assert (command.flag, command.language, command.serializer) == (header["flag"], "JAVA", 0)
        assert (command.fields or {}) == header.get("extFields", {})
        assert (command.remark or "") == header.get("remark", "")


@pytest.mark.parametrize("name", [name for name, _ in NAMES if name.endswith("_binary")])
def test_a_binary_frame_written_again_is_equal_to_the_byte(name: str) -> None:
    data = frame(name, "request")
    assert encode(read(data)) == data


def test_the_whole_conversation_can_come_in_any_pieces() -> None:
    stream = b"".join(frame(name, side) for name, side in NAMES)
    whole = [facts(command) for command in FrameReader(16_777_216).feed(stream)]
    assert len(whole) == len(NAMES)
    for size in (1, 7, 64, 1000):
        reader = FrameReader(16_777_216)
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [facts(command) for piece in pieces for command in reader.feed(piece)] == whole
