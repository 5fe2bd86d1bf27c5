"""Compression of bodies by the producer and inflation by the consumer. Brokers store them unchanged.

Inflation needs bounded memory: at most the limit and one block, however small the compressed
body is. lz4 and zstd need optional packages; a message that needs
a missing one raises ProtocolError with the name of the extra. Java: CompressionType.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from rocketapp.errors import ProtocolError

COMPRESSED = 1
"""Bit of `sys_flag`: the body is compressed."""
KIND_MASK = 0x700
LZ4, ZSTD, ZLIB = 0x100, 0x200, 0x300
"""Values of the bits in KIND_MASK. 0, from old producers, means zlib as well."""

_BLOCK = 65536
_FLAGS = {"zlib": COMPRESSED | ZLIB, "lz4": COMPRESSED | LZ4, "zstd": COMPRESSED | ZSTD}
_LEAST_ZSTD_WINDOW = 8 * 1024 * 1024  # what every zstd decoder has to support


def sys_flag_of(kind: str) -> int:
    """The bits of `sys_flag` for this compression."""
    return _FLAGS[kind]


def compress(body: bytes, kind: str, level: int) -> bytes:
    """Compress with `zlib` (levels 0 to 9), `lz4` (frame format) or `zstd`."""
    if kind == "zlib":
        return zlib.compress(body, level)
    if kind == "lz4":
        compressed: bytes = _lz4().compress(body, compression_level=level)
        return compressed
    if kind == "zstd":
        packed: bytes = _zstd().ZstdCompressor(level=max(level, 1)).compress(body)
        return packed
    raise ValueError(f"no compression {kind!r}: zlib, lz4 and zstd are known")


def inflate(body: bytes, sys_flag: int, max_bytes: int) -> bytes:
    """The body as it was before it was compressed.

    Raises ProtocolError when it is damaged, longer than `max_bytes`, or compressed with a
    codec that is not installed.
    """
    kind = sys_flag & KIND_MASK
    if kind in (0, ZLIB):
        return _inflate_zlib(body, max_bytes)
    if kind == LZ4:
        return _inflate_lz4(body, max_bytes)
    if kind == ZSTD:
        return _inflate_zstd(body, max_bytes)
    raise ProtocolError(f"compressed body of unknown kind {kind >> 8}")


def _inflate_zlib(body: bytes, max_bytes: int) -> bytes:
    decoder = zlib.decompressobj()
    try:
        inflated = decoder.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise ProtocolError(f"compressed body is broken: {error}") from None
    if len(inflated) > max_bytes:
        raise _too_large(max_bytes)
    if not decoder.eof:
        raise _cut_short(len(body))
    return inflated


def _inflate_lz4(body: bytes, max_bytes: int) -> bytes:
    decoder = _lz4().LZ4FrameDecompressor()
    piece = body

    def read() -> bytes:
        nonlocal piece
        if decoder.eof or (decoder.needs_input and not piece):
            return b""
        block: bytes = decoder.decompress(piece, max_length=_BLOCK)
        piece = b""
        return block

    try:
        inflated = _gather(read, max_bytes)
    except (RuntimeError, ValueError, EOFError) as error:
        raise ProtocolError(f"compressed body is broken: {error}") from None
    if not decoder.eof:
        raise _cut_short(len(body))
    return inflated


def _inflate_zstd(body: bytes, max_bytes: int) -> bytes:
    zstd = _zstd()
    codec = zstd.ZstdDecompressor(max_window_size=max(max_bytes, _LEAST_ZSTD_WINDOW))
    try:
        with codec.stream_reader(body) as reader:
            inflated = _gather(lambda: reader.read(_BLOCK), max_bytes)
        # The reader does not notice a truncated frame. This decoder does, and the size is known to be
        # within the limit now.
        whole = codec.decompressobj()
        whole.decompress(body)
    except zstd.ZstdError as error:
        raise ProtocolError(f"compressed body is broken: {error}") from None
    if not whole.eof:
        raise _cut_short(len(body))
    return inflated


def _gather(read: Callable[[], bytes], max_bytes: int) -> bytes:
    blocks, size = [], 0
    while block := read():
        size += len(block)
        if size > max_bytes:
            raise _too_large(max_bytes)
        blocks.append(block)
    return b"".join(blocks)


def _too_large(max_bytes: int) -> ProtocolError:
    return ProtocolError(
        f"compressed body inflates to more than {max_bytes} bytes: see ClientConfig.max_inflated_bytes"
    )


def _cut_short(size: int) -> ProtocolError:
    return ProtocolError(f"compressed body is broken: it ends too early, after {size} bytes")


def _codec(kind: str, module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise ProtocolError(f"a body compressed with {kind} needs the extra rocketapp[{kind}]") from None


_lz4 = partial(_codec, "lz4", "lz4.frame")
_zstd = partial(_codec, "zstd", "zstandard")
