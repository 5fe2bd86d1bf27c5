"""What an app receives and sends, as far as it was declared, and the messages of each channel.

Handlers, `publishes`, transactions and publishers of one type are declared. What a handler publishes by a `Publisher`
or by `app.publish` is code, and is not known before it runs.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rocketapp.app.call.returned import Publication
from rocketapp.app.call.signature import Kind
from rocketapp.app.codecs import ANY, JSON, choice_in, without_metadata
from rocketapp.app.declare.declaration import Declaration
from rocketapp.app.declare.phases import Declared
from rocketapp.app.payloads import Form, Payloads, described
from rocketapp.app.places import plain_function
from rocketapp.model.outcome import Outcome
from rocketapp.model.subscription import Subscription
from rocketapp.model.topic import CONTENT_TYPE, PAYLOAD_VERSION, Topic, TypeByTag

_OTHERS = re.compile(r"[^A-Za-z0-9_.-]+")


def identifier(text: str) -> str:
    """The text with a dash for each run of characters that a reference would have to escape."""
    return _OTHERS.sub("-", text).strip("-.").rstrip("_") or "unnamed"


class Names:
    """Gives each name once; the second time it gets a number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, text: str) -> str:
        """The identifier of a text, unlike all before it."""
        wanted = name = identifier(text)
        number = 1
        while name in self._taken:
            number += 1
            name = f"{wanted}-{number}"
        self._taken.add(name)
        return name


class TopicAt(NamedTuple):
    """A topic of one cluster; the cluster's name is empty for the unnamed one."""

    cluster: str
    topic: str
    is_of_replies: bool = False
    """What answers requests of this topic goes to those that asked, and through no topic that has a name here."""

    def text(self) -> str:
        """Its name, and of which cluster."""
        return ".".join(filter(None, ("reply" if self.is_of_replies else "", self.cluster, self.topic)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Messages with bodies of one type."""

    kind: Any = None
    """None: the code says nothing of the body."""
    tags: frozenset[str] = frozenset()
    """Empty: any tag, or none."""
    property: str = ""
    """The property whose value tells this type from others of the topic; empty for none."""
    values: frozenset[str] = frozenset()
    content_type: str = ""
    """Empty: the usual one of the type."""
    follows: bool = False
    """It carries the correlation id of the message that led to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveOperation:
    """One handler of one topic."""

    topic: TopicAt
    contents: tuple[Content, ...]
    subscription: Subscription
    doc: str
    reply: SendOperation | None = None
    """What answers its requests; None when nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOperation:
    """What is published to one topic: by a handler, a transaction, or a publisher of the app."""

    topic: TopicAt
    contents: tuple[Content, ...]
    handler: str = ""
    """`module:name` of the handler that returns it, or of the transaction's function; empty for a publisher."""
    options: Mapping[str, Any] = field(default_factory=dict)
    is_transaction: bool = False
    doc: str = ""
    """Of a transaction's function."""


def receiving(declaration: Declaration) -> ReceiveOperation:
    """What one handler takes."""
    one = declaration.subscription
    payloads = [each.type for each in declaration.arguments or () if each.kind is Kind.PAYLOAD]
    kind = payloads[0] if payloads else declaration.kind
    contents = tuple(_with_tags(content, one.tags) for content in _contents(kind) if _may_come(content, one.tags))
    topic, function = TopicAt(one.cluster, one.topic), declaration.function
    reply = None
    if declaration.answers and _bodies(function):
        answered = tuple(_contents(_returned_type(function)))
        reply = SendOperation(topic=topic._replace(is_of_replies=True), contents=answered, handler=one.handler_name)
    return ReceiveOperation(topic=topic, contents=contents, subscription=one, doc=doc_of(function), reply=reply)


def sendings(declared: Declared, declarations: list[Declaration]) -> Iterator[SendOperation]:
    """What handlers return for publication, and what transactions and the publishers of the app publish."""
    for declaration in declarations:
        publication = declaration.publication
        if publication is not None:
            yield _returned(declaration, publication)
    for transaction in declared.transactions:
        named = transaction.topic
        kind = named.kind if isinstance(named, Topic) else _payload_type(transaction.function)
        yield SendOperation(
            topic=TopicAt(transaction.cluster, transaction.topic_name),
            contents=tuple(_contents(kind)),
            handler=transaction.name,
            is_transaction=True,
            doc=doc_of(transaction.function),
        )
    for topic in declared.publishers:
        yield SendOperation(topic=TopicAt("", topic.name), contents=tuple(_contents(topic.kind)))


def doc_of(function: Callable[..., Any]) -> str:
    """Its docstring, of a callable object that of its class; empty for a function without one."""
    plain = plain_function(function)
    doc = getattr(plain, "__doc__", None)
    if not doc and getattr(plain, "__name__", "") == "__call__":
        doc = type(function).__doc__
    return inspect.cleandoc(doc) if doc else ""


def _contents(kind: Any) -> Iterator[Content]:
    """One for each type that the messages may have."""
    choice = None if kind is None else choice_in(kind)
    if choice is None:
        yield Content(kind=without_metadata(kind))
        return
    kinds = [*choice.types.values()]
    for one in (one for at, one in enumerate(kinds) if one not in kinds[:at]):
        said_by = frozenset(said for said, other in choice.types.items() if other == one)
        if isinstance(choice, TypeByTag):
            yield Content(kind=one, tags=said_by)
        else:
            yield Content(kind=one, property=choice.name, values=said_by)


def _may_come(content: Content, tags: frozenset[str]) -> bool:
    return not tags or not content.tags or bool(tags & content.tags)


def _with_tags(content: Content, tags: frozenset[str]) -> Content:
    """What of it comes to a handler of these tags."""
    wanted = tags & content.tags if tags and content.tags else tags or content.tags
    return replace(content, tags=wanted)


def _returned(declaration: Declaration, publication: Publication) -> SendOperation:
    options = publication.options
    kind = publication.topic.kind if isinstance(publication.topic, Topic) else _returned_type(declaration.function)
    if typing.get_origin(kind) is list and not isinstance(publication.topic, Topic):
        (kind,) = typing.get_args(kind)  # each item is a message
    tag = options.get("tag")
    contents = tuple(
        replace(
            content,
            tags=frozenset([tag]) if tag else content.tags,
            content_type=options.get("content_type") or "",
            follows=True,
        )
        for content in _contents(kind)
    )
    cluster = options.get("cluster")
    return SendOperation(
        topic=TopicAt(declaration.subscription.cluster if cluster is None else cluster, publication.topic_name),
        contents=contents,
        handler=declaration.subscription.handler_name,
        options=options,
    )


def _returned_type(function: Callable[..., Any]) -> Any:
    """The annotation of what it returns, without None and outcomes; None when it says nothing of a body."""
    known = [one for one in _bodies(function) if one not in (Any, object)]
    return typing.Union[tuple(known)] if known else None  # noqa: UP007 - its parts are known at run time


def _bodies(function: Callable[..., Any]) -> list[Any]:
    """The types of what it returns, but None and outcomes, which are no bodies."""
    annotation = _annotation(function, "return")
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return [one for one in (typing.get_args(annotation) if is_union else (annotation,)) if not _is_no_body(one)]


def _payload_type(function: Callable[..., Any]) -> Any:
    """The annotation of its one argument; None when it says nothing of a body."""
    first = next(iter(inspect.signature(plain_function(function)).parameters), "")
    annotation = _annotation(function, first)
    return None if annotation in (Any, object) else annotation


def _annotation(function: Callable[..., Any], name: str) -> Any:
    """That of an argument or of `return`; Any for one that is not there, or not known at run time."""
    plain = plain_function(function)
    annotation = getattr(plain, "__annotations__", {}).get(name, Any)
    if isinstance(annotation, str):
        try:
            return eval(annotation, plain.__globals__, dict(inspect.getclosurevars(plain).nonlocals))
        except Exception:  # it may name what is there for type checkers alone
            return Any
    return annotation


def _is_no_body(kind: Any) -> bool:
    return kind in (None, types.NoneType) or (isinstance(kind, type) and issubclass(kind, Outcome))


_TEXT = "text/plain"
UNKNOWN = "Message"
"""The name of messages whose body the code says nothing of."""
CORRELATION = "rocketapp.correlation_id"
TRAIT = "rocketmq"
"""The name of what all messages have."""


class MessageObject:
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
        self._found: list[MessageObject] = []

    def of(self, content: Content) -> MessageObject | None:
        """The message for this content, if there is one."""
        return next((one for one in self._found if one.holds(content)), None)

    def add(self, content: Content) -> None:
        """Messages with this content are on the channel."""
        message = self.of(content)
        if message is None:
            form = Form(ANY) if content.kind is None else self._payloads.form_of(content.kind)
            version = self._payloads.present_version(content.kind) if isinstance(content.kind, type) else None
            message = MessageObject(content, form, version)
            self._found.append(message)
        message.add(content)

    def named(self) -> Mapping[str, MessageObject]:
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


def _order(message: MessageObject) -> tuple[str, str, str, str]:
    """The same every time, whatever is imported first."""
    kind = message.kind
    return message.title, getattr(kind, "__module__", ""), str(kind), message.content_type
