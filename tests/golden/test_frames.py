"""Every recorded frame is read, and written again byte for byte: ours against Java's, not ours against ours."""

from __future__ import annotations

import json
import struct

from rocketapp.wire.command import Command
from rocketapp.wire.frame import FrameReader, encode
from tests.golden.frames import NAMES, frame, read


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


def test_a_frame_is_written_again_byte_for_byte() -> None:
    changed = [(name, side) for name, side in NAMES if encode(read(frame(name, side))) != frame(name, side)]
    assert changed == []


def test_the_header_is_what_an_independent_reader_sees() -> None:
    for name, side in NAMES:
        data = frame(name, side)
        command = read(data)
        length = int.from_bytes(data[5:8], "big")
        assert command.body == data[8 + length :], name
        assert command.is_response == (side == "response"), name
        if data[4] == 1:
            code, language, version, opaque, flag, remark_length = struct.unpack_from(">hbhiii", data, 8)
            own = command.code, command.version, command.opaque, command.flag
            assert own == (code, version, opaque, flag), name
            assert (language, remark_length, command.language, command.serializer) == (0, 0, "JAVA", 1), name
        else:
            header = json.loads(data[8 : 8 + length])
            own = command.code, command.version, command.opaque, command.flag
            assert own == (header["code"], header["version"], header["opaque"], header["flag"]), name
            assert (command.language, command.serializer) == ("JAVA", 0), name
            assert (command.fields or {}) == header.get("extFields", {}), name
            assert (command.remark or "") == header.get("remark", ""), name


def test_the_whole_conversation_can_come_in_any_pieces() -> None:
    stream = b"".join(frame(name, side) for name, side in NAMES)
    whole = [facts(command) for command in FrameReader(16_777_216).feed(stream)]
    assert len(whole) == len(NAMES)
    for size in (1, 7, 64, 1000):
        reader = FrameReader(16_777_216)
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [facts(command) for piece in pieces for command in reader.feed(piece)] == whole
