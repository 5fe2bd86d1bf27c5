"""A topic with the type of its payload, declared once for those who publish and those who handle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar, get_origin

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
