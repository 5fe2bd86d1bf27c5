"""The messages of one channel: one for each type of body, with what is known of its tags and properties."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

from rocketapp.app.payloads.codecs import ANY, JSON
from rocketapp.app.payloads.payloads import Form, Payloads, described
from rocketapp.asyncapi.gathering import Content
from rocketapp.asyncapi.names import Names
from rocketapp.model.payload import CONTENT_TYPE, PAYLOAD_VERSION

_TEXT = "text/plain"
UNKNOWN = "Message"
"""The name of messages whose body the code says nothing of."""
CORRELATION = "rocketapp.correlation_id"
TRAIT = "rocketmq"
"""The name of what all messages have."""


class Message:
    """Messages of one channel with bodies of one type. `name` is given when all of the channel are known."""

    def __init__(self, content: Content, form: Form, version: int | None) -> None:
        """`version`: of a type with upcasters."""
        self.kind: Any = content.kind
        self._given_type, self._form, self._version = content.content_type, form, version
        self.name: str = ""
        self._tags: set[str] = set()
        self._has_any_tag = False
        self._values: dict[str, set[str]] = {}
        self._follows = False

    def __repr__(self) -> str:
        return f"<Message {self.title}: {self.content_type}>"

    @property
    def title(self) -> str:
        return UNKNOWN if self.kind is None else title_of(self.kind)

    @property
    def content_type(self) -> str:
        return self._given_type or self._form.content_type

    @property
    def own_schema(self) -> Mapping[str, Any] | None:
        """What the codec of its type says of the payload; None where the type says it."""
        return None if self._given_type else self._form.schema

    def holds(self, content: Content) -> bool:
        """Whether these are messages like those."""
        return bool(self.kind == content.kind) and self._given_type == content.content_type

    def add(self, content: Content) -> None:
        """One more place that receives or sends such messages."""
        self._tags |= content.tags
        self._has_any_tag = self._has_any_tag or not content.tags
        self._follows = self._follows or content.follows
        if content.property:
            self._values.setdefault(content.property, set()).update(content.values)

    def described(self, payload: Any) -> dict[str, Any]:
        """The Message Object. `payload`: its schema; None where nothing is known."""
        found: dict[str, Any] = {"name": self.title, "title": self.title, "contentType": self.content_type}
        if payload is None:
            found["summary"] = "The code says nothing of the body."
        found["traits"] = [{"$ref": f"#/components/messageTraits/{TRAIT}"}]
        headers = self._headers()
        if headers:
            found["headers"] = headers
        if payload is not None:
            found["payload"] = payload
        if self._follows:
            location = f"$message.header#/properties/{CORRELATION}"
            text = "Of the first message of a chain; a message that a handler publishes carries on what it handled."
            found["correlationId"] = {"description": text, "location": location}
        return found

    def _headers(self) -> dict[str, Any]:
        """What is known beyond the trait."""
        found: dict[str, Any] = {}
        needed: list[str] = []
        if self._tags and not self._has_any_tag:
            found["tag"] = {"type": "string", "enum": sorted(self._tags)}
            needed.append("tag")
        properties = self._properties()
        if properties:
            found["properties"] = {"type": "object", "properties": properties}
        if self._values:
            found["properties"]["required"] = sorted(self._values)
            needed.append("properties")
        if not found:
            return {}
        return {"type": "object", "properties": found, **({"required": needed} if needed else {})}

    def _properties(self) -> dict[str, Any]:
        known: dict[str, Any] = {}
        if self.content_type not in (ANY, JSON, _TEXT):
            known[CONTENT_TYPE] = {"type": "string", "const": self.content_type}
        if self._version is not None:
            text = "The version of the payload's type; older ones are turned into it. Without it: 1."
            known[PAYLOAD_VERSION] = {"type": "string", "const": str(self._version), "description": text}
        for name, values in sorted(self._values.items()):
            known[name] = {"type": "string", "enum": sorted(values), "description": "Tells the type of the body."}
        return known


def traits() -> dict[str, Any]:
    """What all messages have, for `components`."""
    properties = {
        "tag": {"type": "string", "description": "What subscriptions select by."},
        "keys": {"type": "array", "items": {"type": "string"}, "description": "Words that find the message later."},
        "properties": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Properties of the message.",
        },
    }
    return {TRAIT: {"headers": {"type": "object", "properties": properties}}}


class Messages:
    """Those of one channel."""

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = payloads
        self._found: list[Message] = []

    def __repr__(self) -> str:
        return f"<Messages: {len(self._found)}>"

    def of(self, content: Content) -> Message | None:
        """The message for this content, if there is one."""
        return next((one for one in self._found if one.holds(content)), None)

    def add(self, content: Content) -> None:
        """Messages with this content are on the channel."""
        message = self.of(content)
        if message is None:
            form = Form(ANY) if content.kind is None else self._payloads.form_of(content.kind)
            version = self._payloads.upcasters.present(content.kind) if isinstance(content.kind, type) else None
            message = Message(content, form, version)
            self._found.append(message)
        message.add(content)

    def named(self) -> Mapping[str, Message]:
        """All of them by name, in its order."""
        names = Names()
        for message in sorted(self._found, key=_order):
            message.name = names.take(message.title)
        return {one.name: one for one in sorted(self._found, key=lambda one: one.name)}


def title_of(kind: Any) -> str:
    """The type's name without its modules: `list[Order]`, `Paid | Refunded`."""
    arguments = [title_of(one) for one in typing.get_args(kind)]
    if not arguments:
        return "None" if kind is types.NoneType else described(kind)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(arguments)
    return f"{described(origin)}[{', '.join(arguments)}]"


def _order(message: Message) -> tuple[str, str, str, str]:
    """The same every time, whatever is imported first."""
    kind = message.kind
    return message.title, getattr(kind, "__module__", ""), str(kind), message.content_type
