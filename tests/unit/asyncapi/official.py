"""The official JSON schema of AsyncAPI 3.0.0, which `make test` installs; nothing is fetched here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).parents[3]
_SCHEMAS = ROOT / ".cache/asyncapi/node_modules/@asyncapi/specs/schemas"


@cache
def _validator() -> jsonschema.Draft7Validator:
    file = _SCHEMAS / "3.0.0.json"
    if not file.exists():
        pytest.skip("the schemas of AsyncAPI are not installed: make .cache/asyncapi/.stamp")
    return jsonschema.Draft7Validator(json.loads(file.read_text()))


def problems(document: Mapping[str, Any]) -> list[str]:
    """What the schema refuses, references that lead nowhere, and what is not a schema; empty for a valid document."""
    found = [f"{error.json_path}: {error.message[:300]}" for error in _validator().iter_errors(document)]
    found += [f"{one} leads nowhere" for one in references(document) if not leads_somewhere(document, one)]
    return found


def references(value: Any) -> Iterator[str]:
    """Every `$ref` in it."""
    if isinstance(value, Mapping):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def leads_somewhere(document: Mapping[str, Any], reference: str) -> bool:
    at: Any = document
    for name in reference.removeprefix("#/").split("/"):
        if not isinstance(at, Mapping) or name not in at:
            return False
        at = at[name]
    return True


def accepts(document: Mapping[str, Any], message: str, body: Any) -> bool:
    """Whether a body is one, by the payload's schema of a message in the document."""
    payload = document["components"]["messages"][message]["payload"]
    whole = {**payload, "components": document["components"]} if "$ref" not in payload else None
    schema = whole or {"allOf": [payload], "components": document["components"]}
    return jsonschema.Draft7Validator(schema).is_valid(body)
