"""What a topic holds: a topic with the type of its payload, and which of several types a message has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, get_origin

from rocketapp.model.names import topic_problem

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Topic(Generic[T]):
    """A topic's whole name (no router puts a prefix before it) and the type of its payload.

    `subscribe(topic)` takes handlers of this type, `publish(topic, payload)` and `publisher(topic)` payloads of it:
    type checkers say where one differs, and so do registration and publishing.
    Raises ValueError for a name that no topic has, TypeError for anything but a type.
    """

    name: str
    kind: type[T]

    def __post_init__(self) -> None:
        problem = topic_problem(self.name) if isinstance(self.name, str) else f"topic={self.name!r} is not a name"
        if problem is not None:
            raise ValueError(f"Topic: {problem}")
        kind: object = self.kind
        if not isinstance(kind, type) and get_origin(kind) is None and not hasattr(kind, "__supertype__"):
            mend = "give the type itself, not its name" if isinstance(kind, str) else "give the type of its payload"
            raise TypeError(f"Topic({self.name!r}, {kind!r}): {mend}")

    def name_for(self, payload: object) -> str:
        """The name, for publishing this payload. Raises TypeError for one of another type."""
        try:
            fits = isinstance(payload, self.kind)
        except TypeError:
            fits = True  # a TypedDict, or a type with arguments: only checkers look into it
        if not fits:
            kind = getattr(self.kind, "__qualname__", self.kind)
            raise TypeError(f"topic {self.name!r} holds {kind}, not {type(payload).__qualname__}")
        return self.name


CONTENT_TYPE: Final = "content-type"
"""The property that names how a body is encoded. A body without it is JSON, text or bytes, as the handler asks."""
PAYLOAD_VERSION: Final = "payload-version"
"""The property that holds the version of a type with upcasters. A body without it has version 1."""


@dataclass(frozen=True, slots=True)
class TypeByTag:
    """The message's tag says which type its body has: `Annotated[Paid | Refunded, TypeByTag({"paid": Paid, ...})]`.

    Raises TypeError or ValueError for what no tag is, and without a single type.
    """

    types: Mapping[str, Any]
    """By tag. A message with another tag is a dead letter."""

    def __post_init__(self) -> None:
        _check_types("TypeByTag", "tag", self.types)
        for tag in self.types:
            if tag == "*" or "||" in tag or tag != tag.strip():
                raise ValueError(f"TypeByTag: {tag!r}: a message has one tag, without || or blanks at its ends")


@dataclass(frozen=True, slots=True)
class TypeByProperty:
    """A property of the message says which type its body has.

    Raises TypeError or ValueError for what no property is, and without a single type.
    """

    name: str
    """The property."""
    types: Mapping[str, Any]
    """By its value. A message with another value, or without the property, is a dead letter."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"TypeByProperty({self.name!r}, ...): give the name of a property")
        _check_types("TypeByProperty", "value", self.types)


def _check_types(name: str, said: str, types: object) -> None:
    if not isinstance(types, Mapping) or not types:
        raise TypeError(f"{name}({types!r}): give types by {said}, {{'paid': Paid}}")
    for one in types:
        if not isinstance(one, str) or not one:
            raise TypeError(f"{name}: {one!r} is the {said} of no message: give a str")
