"""The frames around commands: written, and found in a stream however its bytes are divided.

A frame is `length(4) serializer(1) header-length(3) header body`. The length does
not include its own 4 bytes. Java: RemotingCommand.

Rule: no byte is parsed twice. While a frame is incomplete, its bytes are only
collected. A length is checked as soon as it has arrived, and memory is never allocated in advance.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from rocketapp.errors import FrameTooLargeError, ProtocolError
from rocketapp.wire import header_binary, header_json
from rocketapp.wire.command import BINARY, JSON, Command

_PREFIX = struct.Struct(">iI")
_LONGEST_HEADER = 0xFFFFFF
_SMALLEST = 4  # serializer and header length
_LARGEST_REAL = 0x1000_0000
"""Bytes of a frame above which its length is rather the beginning of something else."""
_HTTP = (b"HTTP", b"GET ", b"HEAD", b"POST", b"PUT ")
_TLS_RECORDS, _TLS_MAJOR = range(0x14, 0x18), 3

Decode = Callable[[int, bytes, bytes], Command]
"""Makes a command of serializer, header and body. Raises ProtocolError when the header is damaged."""


def encode(command: Command) -> bytes:
    """The whole frame. Raises ProtocolError when the header is too long.

    A code above 32767 is always written with a JSON header: the
    binary form has 16 bits for it, and every decoder reads both forms.
    """
    is_binary = command.serializer == BINARY and command.code <= header_binary.LARGEST_CODE
    header = header_binary.encode(command) if is_binary else header_json.encode(command)
    size = len(header)
    if size > _LONGEST_HEADER:
        raise ProtocolError(f"command header of {size} bytes, limit {_LONGEST_HEADER}")
    body = command.body
    return b"".join((_PREFIX.pack(4 + size + len(body), is_binary << 24 | size), header, body))


def decode(serializer: int, header: bytes, body: bytes) -> Command:
    """The command in a frame. Raises ProtocolError when its header is damaged."""
    if serializer == JSON:
        return header_json.decode(header, body)
    if serializer == BINARY:
        return header_binary.decode(header, body)
    raise ProtocolError(f"unknown serializer {serializer} of a command header")


class FrameReader:
    """Takes bytes and returns commands. After an error it cannot be used: the frame borders are lost."""

    def __init__(
        self, max_frame_bytes: int, max_header_bytes: int = _LONGEST_HEADER, *, decode: Decode = decode
    ) -> None:
        self._limit, self._header_limit, self._decode = max_frame_bytes, max_header_bytes, decode
        self._waiting = bytearray()
        self._needed = 4
        self._dead: ProtocolError | None = None

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of an unfinished frame are kept."""
        return len(self._waiting)

    def feed(self, data: bytes) -> list[Command]:
        """The commands that these bytes complete, each with its own copy of the body.

        Raises ProtocolError for a damaged frame, and FrameTooLargeError for one above the limit.
        Commands that arrived in the same bytes are then lost with the connection.
        """
        if self._dead is not None:
            raise self._dead
        waiting = self._waiting
        if waiting:
            waiting += data
            if len(waiting) < self._needed:
                return []
            data = bytes(waiting)
            waiting.clear()
        try:
            return self._cut(data)
        except ProtocolError as error:
            self._dead = error
            raise

    def _cut(self, data: bytes) -> list[Command]:
        commands, decode = [], self._decode
        at, end, unpack = 0, len(data), _PREFIX.unpack_from
        while end - at >= 4:
            # A length whose second word is not there yet is judged all the same.
            length, word = unpack(data, at) if end - at >= 8 else unpack(data[at:].ljust(8, b"\0"))
            if not _SMALLEST <= length <= self._limit:
                raise self._refusal(length, data[at : at + 4])
            frame_end = at + 4 + length
            if frame_end > end:
                self._needed = 4 + length
                break
            body = at + 8 + (word & _LONGEST_HEADER)
            if body > frame_end or body - at - 8 > self._header_limit:
                problem = f"command header of {body - at - 8} bytes in a frame of {length}, limit {self._header_limit}"
                raise ProtocolError(problem)
            commands.append(decode(word >> 24, data[at + 8 : body], data[body:frame_end]))
            at = frame_end
        else:
            self._needed = 4
        if at < end:
            self._waiting += data[at:] if at else data
        return commands

    def _refusal(self, length: int, word: bytes) -> ProtocolError:
        if length < _SMALLEST:
            return ProtocolError(f"frame of {length} bytes is shorter than its own header word")
        if (other := _other_protocol(word)) and length > _LARGEST_REAL:
            return ProtocolError(f"the peer speaks {other}, which is not RocketMQ's protocol")
        return FrameTooLargeError(length, self._limit)


def _other_protocol(word: bytes) -> str:
    """What begins with these four bytes, or ""."""
    if word in _HTTP:
        return "HTTP"
    if word[0] in _TLS_RECORDS and word[1] == _TLS_MAJOR:
        return "TLS"
    text = word.decode("latin-1")
    return f"another language (it begins with {text!r})" if text.isascii() and text.isprintable() else ""
