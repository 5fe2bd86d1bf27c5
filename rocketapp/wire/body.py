"""What a user publishes -> the bytes of a body.

bytes stay as they are, str becomes UTF-8, everything with fields becomes JSON.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any

import msgspec


def encode_body(body: Any) -> bytes:
    """Raises TypeError, naming what is possible, for anything else; ValueError for inf, nan and text beyond UTF-8."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"a str that UTF-8 cannot encode cannot be published: {error}: give bytes") from None
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    if not has_fields(body):
        raise TypeError(
            f"a body of type {type(body).__qualname__} cannot be published: "
            "give bytes, str, dict, list, a msgspec Struct, a dataclass or a pydantic model"
        )
    encoded = _encoder.encode(body)
    if b"null" in encoded:
        # JSON has neither infinity nor "not a number": msgspec and pydantic write null for them.
        _refuse_infinite(body)
    return encoded


def _refuse_infinite(body: Any) -> None:
    value = msgspec.to_builtins(body, enc_hook=_plain, builtin_types=(bytes, bytearray, memoryview))
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"a body with {value!r} in it cannot be published: JSON has no such number")
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value


def _plain(value: Any) -> Any:
    return value.model_dump() if is_pydantic(type(value)) else str(value)


def has_fields(body: Any) -> bool:
    if isinstance(body, dict | list | tuple | msgspec.Struct) or is_pydantic(type(body)):
        return True
    return dataclasses.is_dataclass(body) and not isinstance(body, type)


def is_pydantic(kind: type[Any]) -> bool:
    """Does not import pydantic: where a model exists it is imported already."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def _encode_other(value: Any) -> Any:
    if is_pydantic(type(value)):
        return msgspec.Raw(value.model_dump_json().encode())
    raise TypeError(f"{type(value).__qualname__} has no form in JSON")


_encoder = msgspec.json.Encoder(enc_hook=_encode_other)
