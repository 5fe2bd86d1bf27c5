"""Renders an AsyncAPI document as an HTML page: one file, without a script, and nothing loaded from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from textwrap import dedent
from typing import Any, Final

from rocketapp.asyncapi.diagram import cluster_of, diagram, name_of
from rocketapp.asyncapi.document import BINDING
from rocketapp.asyncapi.schemas import PLACE
from rocketapp.asyncapi.style import BASE, file_of, policy_of

STYLE: Final = f"{BASE}\n{file_of(__package__, 'document.css')}"

_CODE = re.compile(r"`([^`\n]+)`")
_INDENTED = re.compile(r" {4}")


def prose(text: str, tag: str = "p") -> str:
    """A docstring as HTML: backticks become code, and an indented paragraph keeps its lines."""
    parts = re.split(r"\n\s*\n", text.strip("\n"))
    return "".join(_paragraph(part, tag) for part in parts if part.strip())


def _paragraph(text: str, tag: str) -> str:
    if _INDENTED.match(text):
        return f"<pre>{escape(dedent(text))}</pre>"
    return f"<{tag}>{_with_code(text.strip())}</{tag}>"


def _with_code(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))


_REFERENCE = re.compile(re.escape(PLACE) + r"([\w.-]+)")


def schema_of(schema: Any) -> str:
    """A schema as HTML: its description as text, the rest as JSON in which references are links."""
    about = schema.get("description", "") if isinstance(schema, dict) else ""
    rest = {key: value for key, value in schema.items() if key != "description"} if about else schema
    shown = escape(json.dumps(rest, indent=2, ensure_ascii=False), quote=False)
    return f"{prose(about)}<pre>{_REFERENCE.sub(_link, shown)}</pre>"


def _link(reference: re.Match[str]) -> str:
    return f'<a href="#schema-{reference[1]}">{reference[1]}</a>'


_ITSELF = f"{policy_of(STYLE)}; form-action 'none'"
CONTENT_POLICY: Final = f"{_ITSELF}; frame-ancestors 'none'"
"""A browser loads nothing and runs nothing."""
_WORDS = {"send": "sends", "receive": "receives"}
_STARTS = {"first": "with the oldest message", "last": "with the next message"}
Objects = Mapping[str, Any]
Operations = Mapping[str, Sequence[tuple[str, Objects]]]
"""Those of each channel, with their names."""


def page_of(document: Objects) -> str:
    """The whole page for a document that `document_of` returned, or that was read from a file."""
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
        link = f'<a href="#channel-{name}">{escape(name_of(channel))}</a>'
        yield f'<li>{link} <small class="quiet">{escape(cluster_of(channel))} {said}</small></li>'
    yield "</ul>"
    if schemas:
        yield "<h2>Schemas</h2><ul>"
        yield from (f'<li><a href="#schema-{escape(name)}">{escape(name)}</a></li>' for name in schemas)
        yield "</ul>"
    yield "</nav>"


def _channel(
    name: str, channel: Objects, operations: Sequence[tuple[str, Objects]], messages: Objects
) -> Iterator[str]:
    yield f'<section id="channel-{name}" class="card"><h2>{escape(name_of(channel))}'
    yield f' <small class="quiet">{escape(cluster_of(channel))}</small></h2>{prose(channel["description"])}'
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


def _facts(binding: Objects) -> Iterator[tuple[str, str]]:
    """The facts of an operation: headings, and HTML."""
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
    payload = message.get("payload", {})
    named = f"{_REFERENCE.sub(_link, escape(payload['$ref']))} as " if "$ref" in payload else ""
    yield f'<dl class="facts"><div><dt>Body</dt><dd>{named}{_code(message["contentType"])}</dd></div>'
    headers = message.get("headers", {}).get("properties", {})
    found = {"Tag": headers["tag"]} if "tag" in headers else {}
    known = headers.get("properties", {}).get("properties", {})
    found.update((f"Property {_code(name)}", schema) for name, schema in known.items())
    for name, schema in found.items():
        values = [schema["const"]] if "const" in schema else schema["enum"]
        yield f"<div><dt>{name}</dt><dd>{' or '.join(map(_code, values))}</dd></div>"
    yield "</dl>"
    if payload and not named:
        yield schema_of(payload)
    yield "</article>"


def _schemas(schemas: Objects) -> Iterator[str]:
    if not schemas:
        return
    yield '<section aria-labelledby="schemas" class="card"><h2 id="schemas">Schemas</h2>'
    for name, schema in schemas.items():
        yield f'<article id="schema-{escape(name)}"><h3>{escape(name)}</h3>{schema_of(schema)}</article>'
    yield "</section>"


def _code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>"
