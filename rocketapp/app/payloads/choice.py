"""Several types on one topic: what an annotation says of how to tell them apart."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

from rocketapp.model.payload import TypeByProperty, TypeByTag


class Choice(NamedTuple):
    """What decides which type a body has."""

    property: str | None
    """None: the tag."""
    types: Mapping[str, Any]


def choice_in(kind: Any) -> Choice | None:
    """What `Annotated[..., TypeByTag(...)]` says; None for every other annotation."""
    if typing.get_origin(kind) is not typing.Annotated:
        return None
    for said in kind.__metadata__:
        if isinstance(said, TypeByTag):
            return Choice(None, said.types)
        if isinstance(said, TypeByProperty):
            return Choice(said.name, said.types)
    return None


def without_metadata(annotation: Any) -> Any:
    """`T` of `Annotated[T, ...]`, except where the metadata chooses between types."""
    if typing.get_origin(annotation) is typing.Annotated and choice_in(annotation) is None:
        return typing.get_args(annotation)[0]
    return annotation
