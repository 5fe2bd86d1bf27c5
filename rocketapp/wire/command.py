"""One request or response (code, id, fields, body) and the frame around it.

A frame is `length(4) serializer(1) header-length(3) header body`. The length does
not include its own 4 bytes. Java: RemotingCommand.
"""

from __future__ import annotations

import struct

from rocketapp.errors import ProtocolError
from rocketapp.wire import header_binary, header_json
from rocketapp.wire.signing import SECRET_FIELDS

LANGUAGE = "PYTHON"
VERSION = 479
"""The ordinal of V5_3_3 in Java's MQVersion: the protocol version that peers may expect."""
VERSION_NAME = "V5_3_3"

FLAG_RESPONSE, FLAG_ONE_WAY = 1, 2
JSON, BINARY = 0, 1
"""Serializers of the header."""

_PREFIX = struct.Struct(">iI")
_LONGEST_HEADER = 0xFFFFFF


class Command:
    """A request or a response. `serializer` is the form in which its header was read or will be written."""

    __slots__ = ("body", "code", "fields", "flag", "language", "opaque", "remark", "serializer", "version")

    def __init__(
        self,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        remark: str | None = None,
        opaque: int = 0,
        flag: int = 0,
        language: str = LANGUAGE,
        version: int = VERSION,
        serializer: int = JSON,
    ) -> None:
        self.code: int = code
        self.fields: dict[str, str] | None = fields
        self.body: bytes = body
        self.remark: str | None = remark
        self.opaque: int = opaque
        self.flag: int = flag
        self.language: str = language
        self.version: int = version
        self.serializer: int = serializer

    @property
    def is_response(self) -> bool:
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_one_way(self) -> bool:
        """Whether the request gets no response, not even an error."""
        return bool(self.flag & FLAG_ONE_WAY)

    @staticmethod
    def response(
        request: Command,
        code: int,
        *,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> Command:
        """A response to `request`, with its id and its serializer."""
        return Command(
            code,
            fields,
            body,
            remark=remark,
            opaque=request.opaque,
            flag=FLAG_RESPONSE,
            serializer=request.serializer,
        )

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "one-way request" if self.is_one_way else "request"
        shown = {name: value for name, value in (self.fields or {}).items() if name not in SECRET_FIELDS}
        return f"<Command {kind} code={self.code} opaque={self.opaque} {shown} body={len(self.body)} bytes>"


def encode(command: Command) -> bytes:
    """The whole frame. Raises ProtocolError when the header is too long.

    A code above 32767 is always written with a JSON header: the
    binary form has 16 bits for it, and every decoder reads both forms.
    """
    serializer = command.serializer
    if serializer == BINARY and command.code > header_binary.LARGEST_CODE:
        serializer = JSON
    write = header_binary.encode if serializer == BINARY else header_json.encode
    header = write(
        code=command.code,
        fields=command.fields,
        flag=command.flag,
        language=command.language,
        opaque=command.opaque,
        remark=command.remark,
        version=command.version,
    )
    size = len(header)
    if size > _LONGEST_HEADER:
        raise ProtocolError(f"command header of {size} bytes, limit {_LONGEST_HEADER}")
    body = command.body
    return b"".join((_PREFIX.pack(4 + size + len(body), serializer << 24 | size), header, body))


def decode(serializer: int, header: bytes, body: bytes) -> Command:
    """The command in a frame. Raises ProtocolError when its header is damaged."""
    if serializer == JSON:
        read = header_json.decode(header)
        ext = read.extFields
        return Command(
            read.code,
            ext if isinstance(ext, dict) else None,
            body,
            remark=read.remark if isinstance(read.remark, str) else None,
            opaque=read.opaque,
            flag=read.flag,
            language=read.language,
            version=read.version,
        )
    if serializer == BINARY:
        code, fields, flag, language, opaque, remark, version = header_binary.decode(header)
        return Command(
            code,
            fields,
            body,
            remark=remark,
            opaque=opaque,
            flag=flag,
            language=language,
            version=version,
            serializer=BINARY,
        )
    raise ProtocolError(f"unknown serializer {serializer} of a command header")
