"""Streams cut into commands."""

from __future__ import annotations

import struct
import time
import tracemalloc

import pytest

from rocketapp.errors import FrameTooLargeError, ProtocolError
from rocketapp.wire.command import Command
from rocketapp.wire.frame import FrameReader, encode

LIMIT = 16_777_216


def frame_of(length: int) -> bytes:
    """A frame of exactly this number of bytes behind its length."""
    empty = len(encode(Command(11))) - 4
    return encode(Command(11, body=bytes(length - empty)))


def test_frames_in_one_piece_are_all_there() -> None:
    stream = b"".join(encode(Command(11, {"n": str(n)}, bytes(n), opaque=n)) for n in range(5))
    commands = FrameReader(LIMIT).feed(stream)
    assert [(c.opaque, c.fields, c.body) for c in commands] == [(n, {"n": str(n)}, bytes(n)) for n in range(5)]


def test_bytes_that_come_one_by_one_are_collected() -> None:
    reader = FrameReader(LIMIT)
    stream = encode(Command(11, {"a": "b"}, b"body", opaque=1)) + encode(Command(12, opaque=2))
    commands = [command for at in range(len(stream)) for command in reader.feed(stream[at : at + 1])]
    assert [(c.code, c.body) for c in commands] == [(11, b"body"), (12, b"")]


def test_an_empty_piece_changes_nothing() -> None:
    reader = FrameReader(LIMIT)
    stream = encode(Command(11, body=b"x"))
    assert reader.feed(b"") == []
    assert reader.feed(stream[:7]) == []
    assert reader.feed(b"") == []
    assert [c.body for c in reader.feed(stream[7:])] == [b"x"]


def test_a_body_is_bytes_of_its_own() -> None:
    stream = bytearray(encode(Command(11, body=b"abc")))
    (command,) = FrameReader(LIMIT).feed(bytes(stream))
    assert type(command.body) is bytes


@pytest.mark.parametrize("length", [0, 1, 3, -1, -(2**31)])
def test_a_length_below_the_header_word_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError, match="shorter"):
        FrameReader(LIMIT).feed(struct.pack(">i", length))


@pytest.mark.parametrize("length", [LIMIT + 1, 2**31 - 1])
def test_a_frame_beyond_the_limit_is_refused_as_soon_as_its_length_is_seen(length: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(FrameTooLargeError) as raised:
            FrameReader(LIMIT).feed(struct.pack(">i", length))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert (raised.value.size, raised.value.limit) == (length, LIMIT)


def test_a_frame_of_exactly_the_limit_is_read_and_one_byte_more_is_not() -> None:
    assert len(FrameReader(1024).feed(frame_of(1024))) == 1
    with pytest.raises(FrameTooLargeError):
        FrameReader(1024).feed(frame_of(1025))


def test_a_length_is_not_allocated_before_its_bytes_arrive() -> None:
    reader = FrameReader(LIMIT)
    tracemalloc.start()
    try:
        assert reader.feed(struct.pack(">ii", LIMIT, 100)) == []
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("header", [5, 0xFFFFFF])
def test_a_header_longer_than_its_frame_is_refused(header: int) -> None:
    with pytest.raises(ProtocolError, match="in a frame of 8"):
        FrameReader(LIMIT).feed(struct.pack(">iI", 8, header) + b"{}{}")


@pytest.mark.parametrize("word", [0x0200_0002, 0xFF00_0002])
def test_an_unknown_kind_of_header_is_refused(word: int) -> None:
    with pytest.raises(ProtocolError, match="serializer"):
        FrameReader(LIMIT).feed(struct.pack(">iI", 6, word) + b"{}")


def test_an_empty_header_is_refused() -> None:
    with pytest.raises(ProtocolError):
        FrameReader(LIMIT).feed(struct.pack(">iI", 4, 0))


def test_a_reader_that_failed_stays_dead() -> None:
    reader = FrameReader(LIMIT)
    with pytest.raises(ProtocolError):
        reader.feed(struct.pack(">i", 0))
    with pytest.raises(ProtocolError, match="shorter"):
        reader.feed(encode(Command(11)))


def test_a_large_frame_in_small_pieces_takes_time_in_proportion() -> None:
    """Sixteen times the bytes in pieces of equal size take about sixteen times as long, not 256 times."""

    def seconds(size: int) -> float:
        stream, reader = frame_of(size), FrameReader(LIMIT)
        began = time.process_time()
        found = [command for at in range(0, len(stream), 256) for command in reader.feed(stream[at : at + 256])]
        assert len(found) == 1
        return time.process_time() - began

    small = min(seconds(LIMIT // 16) for _ in range(5))
    assert min(seconds(LIMIT) for _ in range(3)) < 80 * small


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the peer speaks HTTP,"),
        (b"GET / HTTP/1.1\r\n\r\n", "the peer speaks HTTP,"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "the peer speaks TLS,"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the peer speaks another language"),
    ],
)
def test_another_protocol_is_told_by_its_name(data: bytes, found: str) -> None:
    with pytest.raises(ProtocolError, match=f"{found}.*which is not RocketMQ's protocol"):
        FrameReader(LIMIT).feed(data)
