"""The binary form of a command header (serialize type 1, "ROCKETMQ").

Every length is checked against the bytes that are there before anything is allocated.
Codes have 16 bits in this form, so larger ones need the JSON form. A string of
length 0 means null. Java: RocketMQSerializable, LanguageCode.
"""

from __future__ import annotations

import struct

from rocketapp.errors import ProtocolError
from rocketapp.wire.command import BINARY, Command

LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST",
    "NODE_JS",
)  # fmt: skip
"""Names of languages by number."""
_OTHER = LANGUAGES.index("OTHER")
_NUMBERS = {name: number for number, name in enumerate(LANGUAGES)}
LARGEST_CODE = 0x7FFF

_FIXED = struct.Struct(">hbhii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_LONGEST_NAME = 0x7FFF


def encode(command: Command) -> bytes:
    """The header of a command. Its code must fit into 16 bits; its version is cut to 16 bits, as in Java."""
    number = _NUMBERS.get(command.language, _OTHER)
    short_version = (command.version + 0x8000 & 0xFFFF) - 0x8000
    text = (command.remark or "").encode("utf-8", "replace")
    ext = b"".join(map(_entry, command.fields.items())) if command.fields else b""
    fixed = _FIXED.pack(command.code, number, short_version, command.opaque, command.flag)
    return b"".join((fixed, _INT.pack(len(text)), text, _INT.pack(len(ext)), ext))


def _entry(item: tuple[str, str]) -> bytes:
    name, value = item[0].encode("utf-8", "replace"), item[1].encode("utf-8", "replace")
    if len(name) > _LONGEST_NAME:
        raise ProtocolError(f"header field {item[0][:40]!r}...: name of {len(name)} bytes, limit {_LONGEST_NAME}")
    return b"".join((_SHORT.pack(len(name)), name, _INT.pack(len(value)), value))


def decode(data: bytes, body: bytes) -> Command:
    """The command with this header, behind which bytes are ignored. Raises ProtocolError when it is damaged."""
    try:
        code, number, version, opaque, flag = _FIXED.unpack_from(data)
        remark, at = _text(data, _FIXED.size, _INT)
        length = _INT.unpack_from(data, at)[0]
    except struct.error:
        raise ProtocolError(f"binary command header ends after {len(data)} bytes") from None
    language = LANGUAGES[number] if 0 <= number < len(LANGUAGES) else "OTHER"
    fields = _decode_fields(data, at + 4, length) if length else None
    known = {"opaque": opaque, "flag": flag, "version": version, "serializer": BINARY}
    return Command(code, fields, body, remark=remark or None, language=language, **known)


def _decode_fields(data: bytes, at: int, length: int) -> dict[str, str]:
    end = at + length
    if length < 0 or end > len(data):
        raise ProtocolError(f"binary command header: {length} bytes of fields announced, {len(data) - at} are there")
    data = data[:end]
    fields = {}
    try:
        while at < end:
            name, at = _text(data, at, _SHORT)
            value, at = _text(data, at, _INT)
            if value:
                fields[name] = value
    except struct.error:
        raise ProtocolError("binary command header: its fields end inside an entry") from None
    return fields


def _text(data: bytes, at: int, prefix: struct.Struct) -> tuple[str, int]:
    """The string after the length at `at`, and the position of its end."""
    length = prefix.unpack_from(data, at)[0]
    start = at + prefix.size
    end = start + length
    if length < 0 or end > len(data):
        raise ProtocolError(f"binary command header: text of {length} bytes announced, {len(data) - start} are there")
    return data[start:end].decode("utf-8", "replace"), end
