"""What a handler says of its payload beside the type: which of several types a message has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

CONTENT_TYPE: Final = "content-type"
"""The property that names how a body is encoded. A body without it is JSON, text or bytes, as the handler asks."""
PAYLOAD_VERSION: Final = "payload-version"
"""The property that holds the version of a type with upcasters. A body without it has version 1."""


@dataclass(frozen=True, slots=True)
class TypeByTag:
    """The message's tag says which type its body has: `Annotated[Paid | Refunded, TypeByTag({"paid": Paid, ...})]`."""

    types: Mapping[str, Any]
    """By tag. A message with another tag is a dead letter."""


@dataclass(frozen=True, slots=True)
class TypeByProperty:
    """A property of the message says which type its body has."""

    name: str
    """The property."""
    types: Mapping[str, Any]
    """By its value. A message with another value, or without the property, is a dead letter."""
