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

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class JsonHeader(msgspec.Struct):
    """A command header, with its members in the order in which Java writes them."""

    code: _Int32
    extFields: dict[str, str] | msgspec.UnsetType | None = msgspec.UNSET  # noqa: N815 - the name on the wire
    flag: _Int32 = 0
    language: str = "OTHER"
    opaque: _Int32 = 0
    remark: str | msgspec.UnsetType | None = msgspec.UNSET
    serializeTypeCurrentRPC: str = "JSON"  # noqa: N815 - the name on the wire
    version: _Int32 = 0


_write = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(JsonHeader).decode


def encode(
    *, code: int, fields: dict[str, str] | None, flag: int, language: str, opaque: int, remark: str | None, version: int
) -> bytes:
    """One header as UTF-8 JSON."""
    unset = msgspec.UNSET
    ext = unset if fields is None else fields
    try:
        return _write(
            JsonHeader(code, ext, flag, language, opaque, unset if remark is None else remark, "JSON", version)
        )
    except UnicodeEncodeError:
        # A string with lone surrogates, such as an error with a file name in it, must not end the connection.
        ext = unset if fields is None else {_clean(name): _clean(value) for name, value in fields.items()}
        text = unset if remark is None else _clean(remark)
        return _write(JsonHeader(code, ext, flag, _clean(language), opaque, text, "JSON", version))


def decode(data: bytes) -> JsonHeader:
    """Decode one header. Raises ProtocolError when it is unreadable."""
    try:
        return _read(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _decode_tolerantly(data)


def _decode_tolerantly(data: bytes) -> JsonHeader:
    try:
        raw: Any = msgspec.json.decode(data.decode("utf-8", "replace"))
        if isinstance(raw, dict):
            raw = {name: value for name, value in raw.items() if value is not None}
            ext = raw.get("extFields")
            if isinstance(ext, dict):
                raw["extFields"] = {name: _as_text(value) for name, value in ext.items() if value is not None}
            raw.update({name: _as_text(raw[name]) for name in ("language", "remark") if name in raw})
        return msgspec.convert(raw, JsonHeader, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise ProtocolError(f"command header is not readable JSON: {error}") from None


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
