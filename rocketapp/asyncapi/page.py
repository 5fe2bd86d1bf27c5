"""A document as a page for people: one file of HTML without a script, and nothing from elsewhere.

A JSON schema is a table of its fields, with types in words and links to those that have a name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from textwrap import dedent
from typing import Any, Final

from rocketapp.asyncapi.diagram import diagram
from rocketapp.asyncapi.document import BINDING
from rocketapp.asyncapi.schemas import PLACE
from rocketapp.asyncapi.style import BASE, policy_of

STYLE: Final = (
    BASE
    + """
.skip:not(:focus) { clip-path: inset(50%); position: absolute; }
h1 small { font-size: 1rem; font-weight: 400; } h3 { margin: .2rem 0 .5rem; }
header p { margin: .3rem 0; } header dl.facts { margin: .4rem 0; }
article { border-left: 3px solid var(--line); margin: 1.1rem 0; padding: .1rem 0 .1rem 1rem; }
article > :first-child { margin-top: 0; }
article.send { border-color: var(--warn); } article.receive { border-color: var(--good); }
.send .pill { color: var(--warn); } .receive .pill { color: var(--good); }
dl.facts { margin: .5rem 0; }
dl.facts > div { display: grid; gap: 0 1rem; grid-template-columns: 8.5rem 1fr; padding: .12rem 0; }
dt { color: var(--quiet); } dd { margin: 0; min-width: 0; } dd p, td p { margin: 0; }
.scroll { overflow-x: auto; }
nav ul { columns: 16rem; list-style: none; margin: 0; padding: 0; } nav h2:not(:first-child) { margin-top: 1rem; }
.diagram { display: block; margin: 0 auto; }
.diagram text { dominant-baseline: central; fill: var(--ink); font: 13px system-ui, sans-serif; text-anchor: middle; }
.diagram rect { fill: var(--paper); stroke: var(--line); stroke-width: 1.5; }
.diagram a.receive rect { stroke: var(--good); } .diagram a.send rect { stroke: var(--warn); }
.diagram a.handler rect { fill: var(--ground); } .diagram a.own rect { stroke-dasharray: 5 4; }
.diagram a { text-decoration: none; } .diagram a:hover rect, .diagram a:focus-visible rect { stroke: var(--accent); }
.line { fill: none; opacity: .55; stroke-width: 1.4; } .line.receive { stroke: var(--good); }
.line.send { stroke: var(--warn); } .arrow.receive { fill: var(--good); } .arrow.send { fill: var(--warn); }
@media (max-width: 36rem) {
  dl.facts > div { grid-template-columns: 1fr; padding: .3rem 0; }
  table, tbody, tr, td { display: block; } thead { clip-path: inset(50%); position: absolute; }
  td { border: 0; padding: .05rem 0; } tr { border-bottom: 1px solid var(--line); padding: .4rem 0; } }
"""
).strip()

_CODE = re.compile(r"`([^`\n]+)`")
_INDENTED = re.compile(r" {4}")


def prose(text: str, tag: str = "p") -> str:
    """A docstring as HTML: what stands in backticks is code, and a paragraph that is indented keeps its lines."""
    parts = re.split(r"\n\s*\n", text.strip("\n"))
    return "".join(_paragraph(part, tag) for part in parts if part.strip())


def _paragraph(text: str, tag: str) -> str:
    if _INDENTED.match(text):
        return f"<pre>{escape(dedent(text))}</pre>"
    return f"<{tag}>{_with_code(text.strip())}</{tag}>"


def _with_code(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))


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
        is_needed = "" if name in required else ' <small class="quiet">optional</small>'
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
    return f' <small class="quiet">({", ".join(said)})</small>' if said else ""


def _value(value: Any) -> str:
    """As JSON has it, a text without its quotes."""
    return escape(value if isinstance(value, str) else json.dumps(value))


_ITSELF = f"{policy_of(STYLE)}; form-action 'none'"
CONTENT_POLICY: Final = f"{_ITSELF}; frame-ancestors 'none'"
"""A browser loads nothing and runs nothing."""
_WORDS = {"send": "sends", "receive": "receives"}
_STARTS = {"first": "with the oldest message", "last": "with the next message"}
_SHOWN = ("properties", "schemaFormat", "x-protobuf")
"""What a payload has that is more than its type in words."""
Objects = Mapping[str, Any]
Operations = Mapping[str, Sequence[tuple[str, Objects]]]
"""Those of each channel, with their names."""


def page_of(document: Objects) -> str:
    """All of it, as text: what `document_of` returns, or a file holds that was made of it."""
    channels, schemas = document["channels"], document["components"]["schemas"]
    operations: dict[str, list[tuple[str, Objects]]] = {name: [] for name in channels}
    for key, one in document["operations"].items():
        operations[one["channel"]["$ref"].removeprefix("#/channels/")].append((key, one))
    drawing = diagram(channels, document["operations"])
    if drawing:
        label = 'tabindex="0" role="region" aria-label="Topics and handlers"'
        drawing = f'<div class="card scroll" {label}>{drawing}</div>'
    parts = [*_head(document), drawing, *_contents(channels, operations, schemas), '<main id="main">']
    if not channels:
        parts.append("<p>Nothing is subscribed or published.</p>")
    for name, channel in channels.items():
        parts += _channel(name, channel, operations[name], document["components"]["messages"])
    parts += _schemas(schemas)
    return "\n".join([*parts, "</main></body></html>"]) + "\n"


def _head(document: Objects) -> Iterator[str]:
    info = document["info"]
    title = escape(info["title"])
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_ITSELF}">'
    yield f"<title>{title}: messages</title><style>{STYLE}</style></head><body>"
    yield '<a class="skip" href="#main">Skip to the topics</a>'
    yield f'<header><h1>{title} <small class="quiet">{escape(info["version"])}</small></h1>'
    yield prose(info.get("description", ""))
    yield '<dl class="facts">'
    for server in document["servers"].values():
        where, what = escape(server["host"]), prose(server["description"], "span")
        yield f"<div><dt>{escape(server['protocol'])}</dt><dd><code>{where}</code> {what}</dd></div>"
    yield f"</dl><p><small>AsyncAPI {escape(document['asyncapi'])}</small></p></header>"


def _contents(channels: Objects, operations: Operations, schemas: Objects) -> Iterator[str]:
    if not channels:
        return
    yield '<nav aria-label="Contents" class="card"><h2>Topics</h2><ul>'
    for name, channel in channels.items():
        said = ", ".join(_WORDS[action] for action in sorted({one["action"] for _, one in operations[name]}))
        link = f'<a href="#channel-{name}">{escape(_name(channel))}</a>'
        yield f'<li>{link} <small class="quiet">{_cluster(channel)} {said}</small></li>'
    yield "</ul>"
    if schemas:
        yield "<h2>Schemas</h2><ul>"
        yield from (f'<li><a href="#schema-{escape(name)}">{escape(name)}</a></li>' for name in schemas)
        yield "</ul>"
    yield "</nav>"


def _channel(
    name: str, channel: Objects, operations: Sequence[tuple[str, Objects]], messages: Objects
) -> Iterator[str]:
    yield f'<section id="channel-{name}" class="card"><h2>{escape(_name(channel))}'
    yield f' <small class="quiet">{_cluster(channel)}</small></h2>{prose(channel["description"])}'
    for key, one in operations:
        yield from _operation(key, one, messages)
    if channel["messages"]:
        yield "<h3>Messages</h3>"
    for key in channel["messages"]:
        yield from _message(f"{name}.{key}", messages[f"{name}.{key}"])
    yield "</section>"


def _operation(key: str, one: Objects, messages: Objects) -> Iterator[str]:
    word = _WORDS[one["action"]]
    yield f'<article id="operation-{key}" class="{one["action"]}">'
    yield f'<h3><span class="pill">{word}</span> {escape(one["title"])}</h3>'
    yield prose(one.get("description") or one.get("summary", ""))
    rows = list(_facts(one.get("bindings", {}).get(BINDING, {})))
    links = [_message_link(message["$ref"], messages) for message in one["messages"]]
    rows.insert(0, ("Message" if len(links) == 1 else "Messages", " or ".join(links)))
    if "reply" in one:
        answers = [_message_link(message["$ref"], messages) for message in one["reply"]["messages"]]
        rows.insert(1, ("Answers requests with", " or ".join(answers)))
    yield '<dl class="facts">'
    yield from (f"<div><dt>{head}</dt><dd>{text}</dd></div>" for head, text in rows)
    yield "</dl></article>"


def _message_link(reference: str, messages: Objects) -> str:
    _, _, channel, _, message = reference.split("/")
    key = f"{channel}.{message}"
    return f'<a href="#message-{key}">{escape(messages[key]["title"])}</a>'


def _name(channel: Objects) -> str:
    """Its topic; replies go through none."""
    name: str = channel["address"] or channel["title"]
    return name


def _cluster(channel: Objects) -> str:
    name = channel.get("bindings", {}).get(BINDING, {}).get("cluster")
    return f"on {escape(name)}" if name else ""


def _facts(binding: Objects) -> Iterator[tuple[str, str]]:
    """What is told of an operation: heads, and HTML."""
    if "group" in binding:
        yield "Group", _code(binding["group"])
        tags = " or ".join(map(_code, binding.get("tags", ())))
        yield "Tags", tags or "every tag that no other handler of the group names"
    if "tag" in binding:
        yield "Tag", _code(binding["tag"])
    if "delay" in binding:
        yield "Delay", f"{binding['delay']:g} s"
    if "orderKey" in binding:
        yield "Order key", _code(binding["orderKey"])
    if "runs" in binding:
        yield "Runs", escape(binding["runs"])
        yield "Starts", f"a new group begins {_STARTS.get(binding['start'], escape('at ' + binding['start']))}"
    if "idempotent" in binding:
        yield "Once", f"copies are told by {escape(binding['idempotent'])}"
    if "retry" in binding:
        yield from _failures(binding["retry"])
    if "transaction" in binding:
        yield "Published", "when the transaction of its function is committed"
    if "deadLetterTopic" in binding:
        yield "Dead letters", _code(binding["deadLetterTopic"])
    yield "Handler", _code(binding["handler"]) if "handler" in binding else "none: the app's own code publishes"


def _failures(retry: Objects) -> Iterator[tuple[str, str]]:
    yield "Failures", escape(retry["failures"])
    if "on" in retry:
        yield "Exceptions", ", ".join(f"{_code(kind)}: {escape(what)}" for kind, what in retry["on"].items())
    if "breaker" in retry:
        one = retry["breaker"]
        when = f"{one['failures']} failures within {one['within']:g} s, {one['share']:.0%} of the calls"
        yield "Breaker", f"after {when}: the topic is paused for {one['pause']:g} s"


def _message(key: str, message: Objects) -> Iterator[str]:
    yield f'<article id="message-{key}" class="message"><h4>{escape(message["title"])}</h4>'
    yield prose(message.get("summary", ""))
    yield f'<dl class="facts"><div><dt>Body</dt><dd>{_payload_text(message)}</dd></div>'
    headers = message.get("headers", {}).get("properties", {})
    if "tag" in headers:
        yield f"<div><dt>Tag</dt><dd>{' or '.join(map(_code, headers['tag']['enum']))}</dd></div>"
    for name, schema in headers.get("properties", {}).get("properties", {}).items():
        yield f"<div><dt>Property {_code(name)}</dt><dd>{type_text(schema)}</dd></div>"
    yield "</dl>"
    payload = message.get("payload")
    if payload is not None and any(key in payload for key in _SHOWN):
        yield schema_of(payload)
    yield "</article>"


def _payload_text(message: Objects) -> str:
    content_type = _code(message["contentType"])
    return f"{type_text(message['payload'])} as {content_type}" if "payload" in message else content_type


def _schemas(schemas: Objects) -> Iterator[str]:
    if not schemas:
        return
    yield '<section aria-labelledby="schemas" class="card"><h2 id="schemas">Schemas</h2>'
    for name, schema in schemas.items():
        yield f'<article id="schema-{escape(name)}"><h3>{escape(name)}</h3>{schema_of(schema)}</article>'
    yield "</section>"


def _code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>"
