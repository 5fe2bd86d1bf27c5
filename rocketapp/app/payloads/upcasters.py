"""Versions of a payload's type: functions that turn the members of version N into those of N + 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from rocketapp.app.payloads.decode import convert_other
from rocketapp.app.places import is_async, is_generator, name_of_function, takes
from rocketapp.errors import SetupError
from rocketapp.model.numbers import is_whole

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class Versions:
    """The upcasters of one type."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._steps: dict[int, tuple[Upcaster, str]] = {}

    @property
    def present(self) -> int:
        """The version of the type itself: one above the last upcaster."""
        return max(self._steps, default=0) + 1

    def add(self, version: int, upcast: Upcaster, place: str) -> None:
        if version in self._steps:
            other = self._steps[version][1]
            raise SetupError(
                place, f"version {version} of {self._kind.__qualname__} has an upcaster already, at {other}"
            )
        self._steps[version] = (upcast, place)

    def check(self) -> None:
        """Raises SetupError for a version between others that no upcaster begins with."""
        missing = [version for version in range(1, self.present) if version not in self._steps]
        if missing:
            place = self._steps[max(self._steps)][1]
            raise SetupError(place, f"version {missing[0]} of {self._kind.__qualname__} has no upcaster: add it")

    def refuse(self, content_type: str) -> NoReturn:
        """Raises SetupError: the codec of this content type has no members that a function could turn into others."""
        place = next(iter(self._steps.values()))[1]
        raise SetupError(
            place,
            f"{self._kind.__qualname__} is read as {content_type}, which an upcaster cannot change: it is for JSON and "
            "MessagePack; use the versions that the schema has",
        )

    def convert(self, members: dict[str, Any], version: int) -> Any:
        """The payload, from the members of an older version.

        Raises ValidationError, or ValueError with the upcaster's place for what an upcaster raises.
        """
        for step in range(version, self.present):
            upcast, place = self._steps[step]
            try:
                members = upcast(members)
            except Exception as error:
                raise ValueError(f"the upcaster at {place} raised {type(error).__name__}: {error}") from error
        return convert_other(members, self._kind)


class Upcasters:
    """The upcasters of one app, by type."""

    def __init__(self) -> None:
        self._versions: dict[Any, Versions] = {}

    def __bool__(self) -> bool:
        return bool(self._versions)

    def __contains__(self, kind: Any) -> bool:
        return kind in self._versions if self._versions else False

    def add(self, kind: Any, version: int, upcast: Upcaster, place: str) -> None:
        """Raises SetupError unless it gets a class, a version and a function."""
        if not isinstance(kind, type):
            raise SetupError(place, f"upcaster({kind!r}): give the class of the payload")
        if not is_whole(version) or version < 1:
            raise SetupError(place, f"upcaster: version={version!r}: give the old version, a whole number from 1")
        if not callable(upcast):
            raise SetupError(place, f"upcaster decorates functions, and {upcast!r} cannot be called")
        if is_async(upcast) or is_generator(upcast) or not takes(upcast, "members"):
            wanted = "an upcaster is a plain function of the old members that returns the new ones"
            raise SetupError(place, f"{wanted}: {name_of_function(upcast)} is not")
        self._versions.setdefault(kind, Versions(kind)).add(version, upcast, place)

    def of(self, kind: Any) -> Versions | None:
        """The versions of a type with upcasters. Raises SetupError when one is missing."""
        versions = self._versions.get(kind) if kind in self else None
        if versions is not None:
            versions.check()
        return versions

    def present(self, kind: Any) -> int | None:
        """The present version of a type with upcasters, else None."""
        versions = self._versions.get(kind)
        return None if versions is None else versions.present
