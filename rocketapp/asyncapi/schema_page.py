"""A JSON schema as HTML: a table of its fields, and types in words with links to those that have a name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from rocketapp.asyncapi.schemas import PLACE
from rocketapp.asyncapi.style import prose

_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "matches {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "uniqueItems": "each item once",
    "default": "default {}",
}
_COMBINED = {"anyOf": " or ", "oneOf": " or ", "allOf": " and "}
_LONGEST_LIST = 20
"""Values of an enumeration that are shown."""


def schema_of(schema: Any) -> str:
    """A whole schema: description, fields, and for what is not an object its type in words."""
    if not isinstance(schema, dict):
        return f"<p>{type_text(schema)}</p>"
    parts = [prose(schema.get("description", ""))]
    if "schemaFormat" in schema:
        parts.append(f"<pre>{escape(json.dumps(schema['schema'], indent=2))}</pre>")
    elif "x-protobuf" in schema:
        parts.append(_table(_protobuf_rows(schema["x-protobuf"]["fields"])))
    elif schema.get("properties"):
        parts.append(_table(_rows(schema)))
    else:
        parts.append(f"<p>{type_text(schema)}{_bounds(schema)}</p>")
    return "".join(parts)


def type_text(schema: Any) -> str:
    """`array of <a>Item</a>`, `string (date-time) or null`, or the values of an enumeration. HTML."""
    if not isinstance(schema, dict):
        return "any" if schema else "nothing"
    if "schemaFormat" in schema or "x-protobuf" in schema:
        return _foreign(schema)
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix(PLACE)
        return f'<a href="#schema-{escape(name)}">{escape(name)}</a>'
    for key, word in _COMBINED.items():
        if key in schema:
            return word.join(map(type_text, schema[key]))
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return _plain_type(schema) if values is None else _listed(values)


def _listed(values: list[Any]) -> str:
    """The values of an enumeration."""
    more = f" and {len(values) - _LONGEST_LIST} more" if len(values) > _LONGEST_LIST else ""
    return " or ".join(f"<code>{_value(value)}</code>" for value in values[:_LONGEST_LIST]) + more


def _foreign(schema: Mapping[str, Any]) -> str:
    """A schema of another language, by its name."""
    if "x-protobuf" in schema:
        return f"<code>{escape(schema['x-protobuf']['message'])}</code>"
    own = schema["schema"]
    name = own.get("name", "") if isinstance(own, dict) else ""
    return f"<code>{escape(str(name))}</code>" if name else "a record"


def _plain_type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(escape(one) for one in kind)
    if kind == "array":
        items = schema.get("items")
        if isinstance(items, list):
            return f"array of {', then '.join(map(type_text, items))}"
        return "array" if items is None else f"array of {type_text(items)}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object with values of {type_text(schema['additionalProperties'])}"
    form = schema.get("format") or schema.get("contentEncoding")
    return escape(f"{kind} ({form})" if form else str(kind))


def _rows(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        is_needed = "" if name in required else ' <small class="soft">optional</small>'
        text = prose(field.get("description", "")) if isinstance(field, dict) else ""
        head = f"<code>{escape(name)}</code>{is_needed}"
        yield head, f"{type_text(field)}{_bounds(field)}", text


def _protobuf_rows(fields: list[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for field in fields:
        yield f"<code>{escape(field['name'])}</code>", escape(field["type"]), f"field {field['number']}"


def _table(rows: Iterator[tuple[str, str, str]]) -> str:
    # The roles are said because small screens lay the rows out as blocks, and a table without its layout has none.
    parts = ['<div class="scroll"><table role="table"><thead><tr role="row">']
    parts += (f'<th scope="col" role="columnheader">{head}</th>' for head in ("Field", "Type", "Meaning"))
    parts.append("</tr></thead><tbody>")
    for row in rows:
        cells = "".join(f'<td role="cell">{cell}</td>' for cell in row)
        parts.append(f'<tr role="row">{cells}</tr>')
    return "".join([*parts, "</tbody></table></div>"])


def _bounds(schema: Any) -> str:
    if not isinstance(schema, dict):
        return ""
    # An enumeration's least and most are not of interest, a tuple's are said by its types.
    is_tuple = isinstance(schema.get("items"), list)
    known = {key: text for key, text in _BOUNDS.items() if key in schema and not (is_tuple and key.endswith("Items"))}
    said = [text.format(_value(schema[key])) for key, text in known.items()]
    return f' <small class="soft">({", ".join(said)})</small>' if said else ""


def _value(value: Any) -> str:
    """As JSON has it, a text without its quotes."""
    return escape(value if isinstance(value, str) else json.dumps(value))
