"""The codecs that are built in: JSON and MessagePack, both by msgspec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rocketapp.app.payloads.decode import decoder_of, msgspec_decoder
from rocketapp.wire.body import encode_body, has_fields, is_pydantic

JSON, MESSAGE_PACK = "application/json", "application/msgpack"
ANY = "application/octet-stream"
"""Says nothing of a structure: the handler's type decides, as without a content type."""
ALIASES = {
    "text/json": JSON,
    "text/plain": ANY,
    "application/x-msgpack": MESSAGE_PACK,
    "application/vnd.msgpack": MESSAGE_PACK,
    "application/x-protobuf": "application/protobuf",
    "application/vnd.google.protobuf": "application/protobuf",
    "avro/binary": "application/avro",
    "application/x-avro": "application/avro",
}
"""Other names in use."""


def canonical(content_type: str) -> str:
    """`application/json` for `Application/JSON; charset=utf-8` and `application/cloudevents+json`."""
    name = content_type.partition(";")[0].strip().lower()
    return JSON if name.endswith("+json") else ALIASES.get(name, name)


class JsonCodec:
    """What bodies are without a content type."""

    content_type = JSON

    def claims(self, kind: type[Any]) -> bool:
        return False

    def decoder(self, kind: Any) -> Callable[[bytes], Any] | None:
        return decoder_of(kind)

    def encode(self, body: Any) -> bytes:
        return encode_body(body)


class MessagePackCodec:
    """Smaller than JSON and as fast; takes what JSON takes."""

    content_type = MESSAGE_PACK

    def claims(self, kind: type[Any]) -> bool:
        return False

    def decoder(self, kind: Any) -> Callable[[bytes], Any] | None:
        return msgspec_decoder(kind, msgspec.msgpack.Decoder)

    def encode(self, body: Any) -> bytes:
        if not has_fields(body):
            raise TypeError(f"a body of type {type(body).__qualname__} has no form in MessagePack")
        return msgspec.msgpack.encode(body, enc_hook=_plain)


def _plain(value: Any) -> Any:
    if is_pydantic(type(value)):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__qualname__} has no form in MessagePack")
