"""A document as a page for people: one file of HTML without a script, and nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from rocketapp.asyncapi.operations import BINDING
from rocketapp.asyncapi.schema_page import schema_of, type_text
from rocketapp.asyncapi.style import STYLE, prose

_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_ITSELF = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"
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
    parts = [*_head(document), *_contents(channels, operations, schemas), '<main id="main">']
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
    yield f'<header><h1>{title} <small class="soft">{escape(info["version"])}</small></h1>'
    yield prose(info.get("description", ""))
    yield '<dl class="facts">'
    for server in document["servers"].values():
        where, what = escape(server["host"]), prose(server["description"], "span")
        yield f"<div><dt>{escape(server['protocol'])}</dt><dd><code>{where}</code> {what}</dd></div>"
    yield f"</dl><p><small>AsyncAPI {escape(document['asyncapi'])}</small></p></header>"


def _contents(channels: Objects, operations: Operations, schemas: Objects) -> Iterator[str]:
    if not channels:
        return
    yield '<nav aria-label="Contents"><h2>Topics</h2><ul>'
    for name, channel in channels.items():
        said = ", ".join(_WORDS[action] for action in sorted({one["action"] for _, one in operations[name]}))
        link = f'<a href="#channel-{name}">{escape(channel["address"])}</a>'
        yield f'<li>{link} <small class="soft">{_cluster(channel)} {said}</small></li>'
    yield "</ul>"
    if schemas:
        yield "<h2>Schemas</h2><ul>"
        yield from (f'<li><a href="#schema-{escape(name)}">{escape(name)}</a></li>' for name in schemas)
        yield "</ul>"
    yield "</nav>"


def _channel(
    name: str, channel: Objects, operations: Sequence[tuple[str, Objects]], messages: Objects
) -> Iterator[str]:
    yield f'<section id="channel-{name}" class="channel"><h2>{escape(channel["address"])}'
    yield f' <small class="soft">{_cluster(channel)}</small></h2>{prose(channel["description"])}'
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
    yield f'<h3><span class="badge">{word}</span> {escape(one["title"])}</h3>'
    yield prose(one.get("description") or one.get("summary", ""))
    rows = list(_facts(one.get("bindings", {}).get(BINDING, {})))
    links = [_message_link(message["$ref"], messages) for message in one["messages"]]
    rows.insert(0, ("Message" if len(links) == 1 else "Messages", " or ".join(links)))
    yield '<dl class="facts">'
    yield from (f"<div><dt>{head}</dt><dd>{text}</dd></div>" for head, text in rows)
    yield "</dl></article>"


def _message_link(reference: str, messages: Objects) -> str:
    _, _, channel, _, message = reference.split("/")
    key = f"{channel}.{message}"
    return f'<a href="#message-{key}">{escape(messages[key]["title"])}</a>'


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
    yield '<section aria-labelledby="schemas"><h2 id="schemas">Schemas</h2>'
    for name, schema in schemas.items():
        yield f'<article id="schema-{escape(name)}"><h3>{escape(name)}</h3>{schema_of(schema)}</article>'
    yield "</section>"


def _code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>"
