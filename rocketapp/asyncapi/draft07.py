"""JSON schemas as msgspec and pydantic write them -> as AsyncAPI has them: a superset of draft 7.

Three things differ. Draft 7 overlooks what stands beside `$ref`. Its tuples are an `items` of several schemas; with
`prefixItems` they would be arrays of anything. And AsyncAPI's `discriminator` is a name, for schemas whose value is
the schema's own name: ours is an object with a mapping, and is left out, because the tag is one of the properties.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from typing import Any

Schema = dict[str, Any]
_OF_NAMES = frozenset({"properties", "patternProperties"})
_OF_MANY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_OF_ONE = frozenset(
    {"additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
)


def draft_07(schema: Any, link: Callable[[str], Schema]) -> Any:
    """The same schema in draft 7. `link`: what to put in place of a `$ref`."""
    if not isinstance(schema, dict):
        return schema  # True and False are schemas too
    new = {key: _converted(key, value, link) for key, value in schema.items() if not _is_left_out(key, value)}
    if "prefixItems" in new:
        first = new.pop("prefixItems")
        if "items" in new:
            new["additionalItems"] = new.pop("items")
        if first:
            new["items"] = first
    if "$ref" not in new:
        return new
    target = link(new.pop("$ref"))
    if not new:
        return target
    return {**new, "allOf": [target, *new.get("allOf", ())]}


def _is_left_out(key: str, value: Any) -> bool:
    return key == "discriminator" and isinstance(value, dict)


def _converted(key: str, value: Any, link: Callable[[str], Schema]) -> Any:
    if key in _OF_NAMES and isinstance(value, dict):
        return {name: draft_07(part, link) for name, part in value.items()}
    if key in _OF_MANY and isinstance(value, list):
        return [draft_07(part, link) for part in value]
    if key == "description" and isinstance(value, str):
        return cleandoc(value)
    return draft_07(value, link) if key in _OF_ONE else value
