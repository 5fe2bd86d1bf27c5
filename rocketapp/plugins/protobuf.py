"""Protobuf payloads: a handler annotated with a generated message class gets one, and such messages are published.

The content type is `application/protobuf`. The runtime, in the extra `protobuf`, is imported by the generated classes,
not here. What it refuses is a dead letter with its reason. So is a message without a field that its definition requires
(proto2, or editions), which the runtime alone would let pass.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from rocketapp.plugin import Codec, hookimpl

CONTENT_TYPE = "application/protobuf"


class Protobuf:
    """The plugin. It changes nothing for apps without generated classes."""

    @hookimpl
    def payload_codec(self) -> Codec:
        return ProtobufCodec()


class ProtobufCodec:
    """Bodies in Protobuf's wire format."""

    content_type = CONTENT_TYPE

    def claims(self, kind: type[Any]) -> bool:
        """Every generated class: it has one natural form."""
        return _is_generated(kind)

    def decoder(self, kind: Any) -> Callable[[bytes], Any] | None:
        if not _is_generated(kind):
            return None

        def decode(body: bytes) -> Any:
            value = kind.FromString(body)
            _check_required(value)
            return value

        return decode

    def encode(self, body: Any) -> bytes:
        if not _is_generated(type(body)):
            name = type(body).__qualname__
            if not _is_installed():
                raise TypeError(f"content_type={CONTENT_TYPE!r} needs Protobuf: pip install 'rocketapp[protobuf]'")
            raise TypeError(f"a body of type {name} has no form in Protobuf: give a message of a generated class")
        _check_required(body)
        encoded: bytes = body.SerializeToString()
        return encoded

    def payload_schema(self, kind: Any) -> dict[str, Any]:
        """Which message it is: AsyncAPI has no form for a definition without its file."""
        message = kind.DESCRIPTOR
        text = f"The Protobuf message {message.full_name} of {message.file.name}."
        return {"type": "string", "format": "binary", "description": text}


def _is_generated(kind: Any) -> bool:
    """Where a generated class is, the runtime is imported."""
    runtime = sys.modules.get("google.protobuf.message")
    return runtime is not None and isinstance(kind, type) and issubclass(kind, runtime.Message)


def _is_installed() -> bool:
    try:
        return find_spec("google.protobuf") is not None
    except ModuleNotFoundError:  # not even the package `google`
        return False


def _check_required(value: Any) -> None:
    if not value.IsInitialized():
        missing = ", ".join(value.FindInitializationErrors())
        raise ValueError(f"field {missing}: missing, and {value.DESCRIPTOR.full_name} requires it")
