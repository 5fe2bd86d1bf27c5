"""Decoders for the types that handlers ask for, and the built-in codecs: JSON and MessagePack.

Only types that a body can become are accepted, checked at registration: a field that JSON cannot fill would turn every
message into a dead letter.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import types
import typing
from codecs import lookup
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec

from rocketapp.model.topic import TypeByProperty, TypeByTag
from rocketapp.wire.body import encode_body, has_fields, is_pydantic

Choice = TypeByTag | TypeByProperty
"""What decides which type a body has."""


def choice_in(kind: Any) -> Choice | None:
    """The TypeByTag or TypeByProperty in `Annotated[...]`; None for every other annotation."""
    if typing.get_origin(kind) is not typing.Annotated:
        return None
    return next((said for said in kind.__metadata__ if isinstance(said, Choice)), None)


def without_metadata(annotation: Any) -> Any:
    """`T` of `Annotated[T, ...]`, except where the metadata chooses between types."""
    if typing.get_origin(annotation) is typing.Annotated and choice_in(annotation) is None:
        return typing.get_args(annotation)[0]
    return annotation


def without_none(kind: Any) -> Any:
    """`T` of `T | None`; anything else as it is."""
    others = [one for one in typing.get_args(kind) if one is not types.NoneType]
    return others[0] if is_union(kind) and len(others) == 1 else kind


def is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def class_of(kind: Any) -> Any:
    """The class of a payload type: `Page` for `Page[int] | None`."""
    one = without_none(kind)
    return typing.get_origin(one) or one


Decode = Callable[[bytes], Any]


class UnfitTypeError(TypeError):
    """Why a type that looks like a payload cannot be one."""


def decoder_of(kind: Any) -> Decode | None:
    """How to decode a body into `kind`; None when `kind` is not a payload type.

    Raises UnfitTypeError for a payload type with a part that JSON cannot fill, and
    NameError when one of its annotations names something that does not exist (yet).
    """
    if kind is bytes:
        return bytes
    if kind is str:
        return bytes.decode
    if isinstance(kind, type) and is_pydantic(kind):
        return kind.model_validate_json  # type: ignore[attr-defined,no-any-return]
    if hasattr(kind, "__pydantic_validator__"):
        validate: Decode = sys.modules["pydantic"].TypeAdapter(kind).validate_json
        return validate
    return msgspec_decoder(kind, msgspec.json.Decoder)


def msgspec_decoder(kind: Any, decoder: Callable[..., Any]) -> Decode | None:
    """A decoder for one of msgspec's formats: `decoder` is its Decoder class. None if `kind` is not a payload type."""
    if not _is_payload(kind):
        return None
    import msgspec.inspect  # slow, and only typed payloads need it

    try:
        unfit = next(_unfit_parts(msgspec.inspect.type_info(kind), set()), None)
        decode: Decode = decoder(kind, dec_hook=_decode_other).decode
    except TypeError as error:
        mend = "" if "tagged" not in str(error) else ": or say TypeByTag or TypeByProperty"
        raise UnfitTypeError(f"{error}{mend}") from error
    if unfit is not None:
        raise UnfitTypeError(f"no JSON becomes a {name_of_type(unfit)}, which is a part of it")
    return decode


def convert_other(members: Any, kind: Any) -> Any:
    """A payload from plain values. Raises ValidationError of msgspec or pydantic."""
    if isinstance(kind, type) and is_pydantic(kind):
        return kind.model_validate(members)  # type: ignore[attr-defined]
    return msgspec.convert(members, kind, dec_hook=_decode_other)


def name_of_type(kind: Any) -> str:
    if is_union(kind):
        return " | ".join("None" if one is types.NoneType else name_of_type(one) for one in typing.get_args(kind))
    return (
        kind.__qualname__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind).replace("typing.", "")
    )


def _is_payload(kind: Any) -> bool:
    origin = typing.get_origin(kind) or kind
    if is_union(kind):
        return all(one is types.NoneType or _is_payload(one) for one in typing.get_args(kind))
    if origin is dict:
        return True
    if not isinstance(origin, type):
        return False
    is_typed_dict = issubclass(origin, dict) and hasattr(origin, "__required_keys__")
    return (
        issubclass(origin, msgspec.Struct) or dataclasses.is_dataclass(origin) or is_typed_dict or is_pydantic(origin)
    )


def _unfit_parts(node: Any, seen: set[int]) -> Iterator[Any]:
    """Every class inside a type that neither msgspec nor pydantic knows."""
    from msgspec.inspect import CustomType

    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, CustomType):
        if not is_pydantic(node.cls):
            yield node.cls
    elif isinstance(node, msgspec.Struct):
        for name in node.__struct_fields__:
            yield from _unfit_parts(getattr(node, name), seen)
    elif isinstance(node, tuple):
        for part in node:
            yield from _unfit_parts(part, seen)


def _decode_other(kind: type[Any], value: Any) -> Any:
    """msgspec's hook for unknown types: after `_unfit_parts` these are pydantic's."""
    return kind.model_validate(value)


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


_CHARSET = re.compile(r"""(?i);\s*charset\s*=\s*["']?([\w.:-]+)""")


def canonical(content_type: str) -> str:
    """Normalise: `application/json` for `Application/JSON; charset=utf-8` and `application/cloudevents+json`."""
    name = content_type.partition(";")[0].strip().lower()
    return JSON if name.endswith("+json") else ALIASES.get(name, name)


def charset_of(content_type: str | None) -> str | None:
    """The charset that a content type names, None for UTF-8. Raises ValueError for one that Python does not know."""
    found = _CHARSET.search(content_type or "")
    if found is None or found[1].lower() in ("utf-8", "utf8", "us-ascii"):
        return None
    try:
        return lookup(found[1]).name
    except LookupError:
        raise ValueError(f"content-type {content_type!r}: no charset is called {found[1]!r}") from None


def _message_pack(body: Any) -> bytes:
    if not has_fields(body):
        raise TypeError(f"a body of type {type(body).__qualname__} has no form in MessagePack")
    return msgspec.msgpack.encode(body, enc_hook=_plain)


def _plain(value: Any) -> Any:
    if is_pydantic(type(value)):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__qualname__} has no form in MessagePack")


class BuiltIn(NamedTuple):
    """A built-in codec."""

    content_type: str
    decoder: Callable[[Any], Decode | None]
    encode: Callable[[Any], bytes]

    def claims(self, kind: type[Any]) -> bool:
        """Never: JSON is the default for bodies without a content type."""
        return False


BUILT_IN = (
    BuiltIn(JSON, decoder_of, encode_body),
    # Smaller than JSON and as fast; takes what JSON takes.
    BuiltIn(MESSAGE_PACK, partial(msgspec_decoder, decoder=msgspec.msgpack.Decoder), _message_pack),
)
