"""Files of documents, and how they differ."""

from __future__ import annotations

from typing import Any

import pytest

from rocketapp.asyncapi.document import Format, decoded, difference, encoded
from rocketapp.asyncapi.messages import Names, identifier
from rocketapp.asyncapi.schemas import draft_07

DOCUMENT = {"asyncapi": "3.0.0", "info": {"title": "Käse: yes", "version": "1"}, "channels": {"on": {"address": None}}}


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_file_holds_the_same_document(form: Format) -> None:
    text = encoded(DOCUMENT, form)
    assert decoded(text, form) == DOCUMENT
    assert text.endswith("\n")
    assert "Käse" in text


def test_equal_documents_do_not_differ_however_they_are_laid_out() -> None:
    assert difference(decoded(encoded(DOCUMENT, "yaml"), "yaml"), DOCUMENT, ("file", "app"), most=9) == []


def test_a_difference_shows_the_lines_and_says_how_many_more() -> None:
    other = {**DOCUMENT, "info": {"title": "Brot", "version": "2"}}
    lines = difference(DOCUMENT, other, ("file", "app"), most=100)
    assert lines[:2] == ["--- file", "+++ app"]
    assert '+    "title": "Brot",' in lines
    assert difference(DOCUMENT, other, ("file", "app"), most=3)[3:] == [f"... and {len(lines) - 3} more lines"]


@pytest.mark.parametrize(
    ("text", "name"),
    [("orders", "orders"), ("%DLQ%shop", "DLQ-shop"), ("Page[Order]", "Page-Order"), ("%%", "unnamed")],
)
def test_names_are_legal_in_references(text: str, name: str) -> None:
    assert identifier(text) == name


def test_a_name_is_given_once() -> None:
    names = Names()
    assert [names.take(text) for text in ("a|b", "a%b", "a-b", "c")] == ["a-b", "a-b-2", "a-b-3", "c"]


@pytest.mark.parametrize(
    ("new", "old"),
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
