"""The JSON form of a command header (serialize type 0).

Written as Java writes it: members sorted, null members omitted, and the values of
`extFields` strings in any order. Reading is tolerant: unknown members are
ignored, numbers and booleans become strings where strings are expected, and broken UTF-8 is
replaced. An unreadable header raises ProtocolError and no other exception. Java:
RemotingCommand, RemotingSerializable.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from rocketapp.errors import ProtocolError
from rocketapp.wire.command import JSON, Command

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class JsonHeader(msgspec.Struct):
    """A command header that is written, with its members in the order in which Java writes them."""

    code: int
    extFields: dict[str, str] | msgspec.UnsetType  # noqa: N815 - the name on the wire
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: str  # noqa: N815 - the name on the wire
    version: int


class ReadCommand(Command, rename={"fields": "extFields", "body": "not here", "serializer": "nor here"}):
    """A command made of the members of its header in one step, because every message pays for it."""

    code: _Int32
    fields: dict[str, str] | None = None
    body: bytes = b""
    opaque: _Int32 = 0
    flag: _Int32 = 0
    language: str = "OTHER"
    version: _Int32 = 0
    serializer: int = JSON


_write = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(ReadCommand).decode


def encode(command: Command) -> bytes:
    """The header of a command as UTF-8 JSON."""
    unset = msgspec.UNSET
    ext = unset if command.fields is None else command.fields
    remark = unset if command.remark is None else command.remark
    header = JsonHeader(
        command.code, ext, command.flag, command.language, command.opaque, remark, "JSON", command.version
    )
    try:
        return _write(header)
    except UnicodeEncodeError:
        # A string with lone surrogates, such as an error with a file name in it, must not end the connection.
        if command.fields is not None:
            header.extFields = {_clean(name): _clean(value) for name, value in command.fields.items()}
        if command.remark is not None:
            header.remark = _clean(command.remark)
        header.language = _clean(command.language)
        return _write(header)


def decode(data: bytes, body: bytes) -> Command:
    """The command with this header. Raises ProtocolError when it is unreadable."""
    try:
        read = _read(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        read = _decode_tolerantly(data)
    read.body = body
    return read


def _decode_tolerantly(data: bytes) -> ReadCommand:
    try:
        raw: Any = msgspec.json.decode(data.decode("utf-8", "replace"))
        if isinstance(raw, dict):
            raw = {name: value for name, value in raw.items() if value is not None}
            ext = raw.get("extFields")
            if isinstance(ext, dict):
                raw["extFields"] = {name: _as_text(value) for name, value in ext.items() if value is not None}
            raw.update({name: _as_text(raw[name]) for name in ("language", "remark") if name in raw})
        return msgspec.convert(raw, ReadCommand, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise ProtocolError(f"command header is not readable JSON: {error}") from None


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
