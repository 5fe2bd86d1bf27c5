"""The JSON schemas of payload types, and their conversion to AsyncAPI's superset of JSON Schema draft 7.

msgspec writes the schemas of Structs, dataclasses, TypedDicts and their parts, pydantic those of its models, also of
models inside the others. A type that neither can describe gets a schema that says why.

Three things differ in draft 7. It ignores what stands beside `$ref`. Its tuples are an `items` of several schemas; with
`prefixItems` they would be arrays of anything. And AsyncAPI's `discriminator` is a name, for schemas whose value is the
schema's own name: ours is an object with a mapping, and is left out, because the tag is one of the properties.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from inspect import cleandoc
from typing import Any, NamedTuple

import msgspec

from rocketapp.asyncapi.messages import Names
from rocketapp.wire.body import is_pydantic

Schema = dict[str, Any]
_OF_NAMES = frozenset({"properties", "patternProperties"})
_OF_MANY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_OF_ONE = frozenset(
    {"additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
)


def draft_07(schema: Any, link: Callable[[str], Schema]) -> Any:
    """The schema in draft 7. `link`: returns what replaces a `$ref`."""
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


PLACE = "#/components/schemas/"
_STRUCT, _MODEL, _INSIDE = "struct:", "model:", "inside:"
"""Beginnings of references until all names are known: of msgspec, of pydantic, and to a model inside of a Struct."""
_LONGEST = 200
_UNKNOWN = "Its fields cannot be described"
Made = tuple[list[Schema], dict[str, Schema]]
"""A schema for each type, and the parts that they name."""


class Schemas(NamedTuple):
    """The schemas of some types, and their named parts."""

    of: list[Schema]
    """One for each type, in their order."""
    named: dict[str, Schema]
    """For `components`, in the order of their names."""


def schemas_of(kinds: Sequence[Any]) -> Schemas:
    """The schemas of types that are written as JSON."""
    inside: list[type[Any]] = []
    structs, parts = _together([kind for kind in kinds if not _is_of_pydantic(kind)], lambda some: _made(some, inside))
    count = sum(map(_is_of_pydantic, kinds))
    models, model_parts = _together([*(kind for kind in kinds if _is_of_pydantic(kind)), *inside], _made_by_pydantic)
    names = Names()
    final = {f"{_STRUCT}{name}": names.take(name) for name in sorted(parts)}
    final.update((f"{_MODEL}{name}", names.take(name)) for name in sorted(model_parts))

    def link(reference: str) -> Schema:
        if reference.startswith(_INSIDE):
            model: Schema = draft_07(models[count + int(reference.removeprefix(_INSIDE))], link)
            return model
        # pydantic refers to a model that holds itself and a part without a schema, and does not describe it.
        return {"$ref": PLACE + final[reference]} if reference in final else {"description": f"{_UNKNOWN}."}

    whole = {f"{_STRUCT}{name}": part for name, part in parts.items()}
    whole.update((f"{_MODEL}{name}", part) for name, part in model_parts.items())
    named = {name: draft_07(whole[reference], link) for reference, name in final.items()}
    of_structs, of_models = iter(structs), iter(models)
    of = [draft_07(next(of_models if _is_of_pydantic(kind) else of_structs), link) for kind in kinds]
    return Schemas(of, dict(sorted(named.items())))


def _together(kinds: Sequence[Any], make: Callable[[Sequence[Any]], Made]) -> Made:
    """Describe all types at once, so that parts with equal names get different ones.

    A type without a schema spoils only its own.
    """
    try:
        return make(kinds)
    except Exception:
        problems = [_problem(kind, make) for kind in kinds]
    schemas, parts = make([kind for kind, problem in zip(kinds, problems, strict=True) if problem is None])
    good = iter(schemas)
    return [next(good) if problem is None else {"description": problem} for problem in problems], parts


def _problem(kind: Any, make: Callable[[Sequence[Any]], Made]) -> str | None:
    try:
        make([kind])
    except Exception as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        return f"{_UNKNOWN}: {said}"[:_LONGEST]
    return None


def _made(kinds: Sequence[Any], inside: list[type[Any]]) -> Made:
    """By msgspec; collects pydantic models that it meets in `inside`."""
    inside.clear()

    def model(kind: type[Any]) -> Schema:
        if not is_pydantic(kind):
            raise TypeError(f"neither msgspec nor pydantic knows {kind.__qualname__}")
        if kind not in inside:
            inside.append(kind)
        return {"$ref": f"{_INSIDE}{inside.index(kind)}"}

    schemas, parts = msgspec.json.schema_components(kinds, schema_hook=model, ref_template=_STRUCT + "{name}")
    return list(schemas), parts


def _made_by_pydantic(kinds: Sequence[Any]) -> Made:
    if not kinds:
        return [], {}
    adapter = sys.modules["pydantic"].TypeAdapter  # where a model is, it is imported
    asked = [(number, "validation", adapter(kind)) for number, kind in enumerate(kinds)]
    found, rest = adapter.json_schemas(asked, ref_template=_MODEL + "{model}")
    return [found[number, "validation"] for number in range(len(kinds))], rest.get("$defs", {})


def _is_of_pydantic(kind: Any) -> bool:
    return hasattr(kind, "__pydantic_validator__") or (isinstance(kind, type) and is_pydantic(kind))
