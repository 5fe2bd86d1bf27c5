"""Names and schemas of documents."""

from __future__ import annotations

from typing import Any

import pytest

from rocketapp.asyncapi.messages import Names, identifier
from rocketapp.asyncapi.schemas import draft_07
from tests.cases import cases


@pytest.mark.parametrize(
    ("text", "name"),
    [("orders", "orders"), ("%DLQ%shop", "DLQ-shop"), ("Page[Order]", "Page-Order"), ("%%", "unnamed")],
)
def test_names_are_legal_in_references(text: str, name: str) -> None:
    assert identifier(text) == name


def test_a_name_is_given_once() -> None:
    names = Names()
    assert [names.take(text) for text in ("a|b", "a%b", "a-b", "c")] == ["a-b", "a-b-2", "a-b-3", "c"]


@cases(
    "new, old",
    [
        (True, True),
        ({"$ref": "a", "description": "b"}, {"description": "b", "allOf": [{"$ref": "to a"}]}),
        ({"$ref": "a", "allOf": [{"type": "null"}]}, {"allOf": [{"$ref": "to a"}, {"type": "null"}]}),
        ({"prefixItems": [{"$ref": "a"}], "items": False}, {"items": [{"$ref": "to a"}], "additionalItems": False}),
        ({"prefixItems": [], "items": False, "maxItems": 0}, {"additionalItems": False, "maxItems": 0}),
        ({"anyOf": [{"$ref": "a"}], "discriminator": {"propertyName": "type"}}, {"anyOf": [{"$ref": "to a"}]}),
        (
            {"properties": {"discriminator": {"$ref": "a"}, "$ref": {"type": "string"}}},
            {"properties": {"discriminator": {"$ref": "to a"}, "$ref": {"type": "string"}}},
        ),
        ({"description": "One\n\n    two"}, {"description": "One\n\ntwo"}),
        ({"default": {"$ref": "a"}, "enum": [{"$ref": "a"}]}, {"default": {"$ref": "a"}, "enum": [{"$ref": "a"}]}),
    ],
)
def test_schemas_are_those_of_draft_7(new: Any, old: Any) -> None:
    assert draft_07(new, lambda reference: {"$ref": f"to {reference}"}) == old
