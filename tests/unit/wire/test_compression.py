"""Bodies compressed and inflated."""

from __future__ import annotations

import sys
import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard

from rocketapp.errors import ProtocolError
from rocketapp.wire.compression import LZ4, ZLIB, ZSTD, compress, inflate, sys_flag_of
from tests.cases import cases

KINDS = ["zlib", "lz4", "zstd"]
BODY = b"The quick brown fox. " * 10_000
MIB = 1024 * 1024


@cases("kind", KINDS)
@cases("body", [b"", b"x", BODY])
def test_what_was_compressed_is_inflated(kind: str, body: bytes) -> None:
    assert inflate(compress(body, kind, 5), sys_flag_of(kind), len(body)) == body


def test_sys_flags_tell_the_kind() -> None:
    assert [sys_flag_of(kind) for kind in KINDS] == [769, 257, 513]


def test_old_producers_say_no_kind_and_mean_zlib() -> None:
    assert inflate(zlib.compress(b"hello"), 1, 100) == b"hello"


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_of_exactly_the_limit_passes_and_one_byte_more_does_not(kind: str) -> None:
    packed = compress(BODY, kind, 5)
    assert inflate(packed, sys_flag_of(kind), len(BODY)) == BODY
    with pytest.raises(ProtocolError, match="max_inflated_bytes"):
        inflate(packed, sys_flag_of(kind), len(BODY) - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_defused_before_it_fills_the_memory(kind: str) -> None:
    bomb = compress(bytes(64 * MIB), kind, 5)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="more than 1048576 bytes"):
            inflate(bomb, sys_flag_of(kind), MIB)
        assert tracemalloc.get_traced_memory()[1] < 3 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_ends_too_early_is_broken(kind: str) -> None:
    packed = compress(BODY, kind, 5)
    for cut in (0, 1, 10, len(packed) // 2, len(packed) - 5, len(packed) - 1):
        with pytest.raises(ProtocolError):
            inflate(packed[:cut], sys_flag_of(kind), MIB)


@cases("kind", KINDS)
@cases("body", [b"\x00" * 50, b"hello world, hello world", b"\xff" * 20])
def test_a_body_that_is_nothing_of_the_kind_is_broken(kind: str, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        inflate(body, sys_flag_of(kind), MIB)


def test_streams_without_a_written_size_are_inflated_as_java_writes_them() -> None:
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    assert inflate(packer.compress(BODY) + packer.flush(), 1 | ZSTD, MIB) == BODY
    with lz4.frame.LZ4FrameCompressor() as frames:
        packed = frames.begin() + frames.compress(BODY) + frames.flush()
    assert inflate(packed, 1 | LZ4, MIB) == BODY


@pytest.mark.parametrize("flag", [0x400, 0x500, 0x700])
def test_an_unknown_kind_is_refused(flag: int) -> None:
    with pytest.raises(ProtocolError, match="unknown kind"):
        inflate(b"x", 1 | flag, MIB)
    with pytest.raises(ValueError, match="snappy"):
        compress(b"x", "snappy", 1)


@pytest.mark.parametrize(("module", "extra", "flag"), [("lz4.frame", "lz4", LZ4), ("zstandard", "zstd", ZSTD)])
def test_a_missing_codec_is_told_with_the_extra_that_brings_it(
    module: str, extra: str, flag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ProtocolError, match=rf"rocketapp\[{extra}\]"):
        inflate(b"x", 1 | flag, MIB)
    assert inflate(zlib.compress(b"x"), 1 | ZLIB, MIB) == b"x"
