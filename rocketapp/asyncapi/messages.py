"""The declared operations of an app, and the messages of each channel.

Handlers, `publishes`, transactions and publishers of one type are declared. What a handler publishes through a
`Publisher` or `app.publish` is code, and unknown before it runs.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rocketapp.app.call.arguments import Kind
from rocketapp.app.call.returned import Publication
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
    """Makes names unique: the second use of a name gets a number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, text: str) -> str:
        """A new identifier for this text."""
        wanted = name = identifier(text)
        number = 1
        while name in self._taken:
            number += 1
            name = f"{wanted}-{number}"
        self._taken.add(name)
        return name


class TopicAt(NamedTuple):
    """A topic on a cluster; the name of the unnamed cluster is empty."""

    cluster: str
    topic: str
    is_of_replies: bool = False
    """What answers requests of this topic goes to those that asked, and through no topic that has a name here."""

    def text(self) -> str:
        """The topic's name, and its cluster if named."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOperation:
    """What one handler receives, or what a handler, a transaction or a publisher sends to one topic."""

    topic: TopicAt
    contents: tuple[Content, ...]
    handler: str = ""
    """`module:name` of the handler, or of the transaction's function; empty for a publisher of the app."""
    subscription: Subscription | None = None
    """Of what is received; None of what is sent."""
    options: Mapping[str, Any] = field(default_factory=dict)
    is_transaction: bool = False
    doc: str = ""
    """Of a handler that receives, and of a transaction's function."""
    reply: TopicOperation | None = None
    """What answers requests that are received; None when nothing does."""


def receiving(declaration: Declaration) -> TopicOperation:
    """The operation of one handler."""
    one, function = declaration.subscription, declaration.function
    payloads = [each.type for each in declaration.arguments or () if each.kind is Kind.PAYLOAD]
    kind = payloads[0] if payloads else declaration.kind
    contents = tuple(_with_tags(content, one.tags) for content in _contents(kind) if _may_come(content, one.tags))
    topic, handler, reply = TopicAt(one.cluster, one.topic), one.handler_name, None
    if declaration.answers and _bodies(function):
        answered = tuple(_contents(_returned_type(function)))
        reply = TopicOperation(topic=topic._replace(is_of_replies=True), contents=answered, handler=handler)
    return TopicOperation(
        topic=topic, contents=contents, handler=handler, subscription=one, doc=doc_of(function), reply=reply
    )


def sendings(declared: Declared, declarations: list[Declaration]) -> Iterator[TopicOperation]:
    """The operations of `publishes`, transactions and publishers."""
    for declaration in declarations:
        publication = declaration.publication
        if publication is not None:
            yield _returned(declaration, publication)
    for transaction in declared.transactions:
        named = transaction.topic
        kind = named.kind if isinstance(named, Topic) else _payload_type(transaction.function)
        yield TopicOperation(
            topic=TopicAt(transaction.cluster, transaction.topic_name),
            contents=tuple(_contents(kind)),
            handler=transaction.name,
            is_transaction=True,
            doc=doc_of(transaction.function),
        )
    for topic in declared.publishers:
        yield TopicOperation(topic=TopicAt("", topic.name), contents=tuple(_contents(topic.kind)))


def doc_of(function: Callable[..., Any]) -> str:
    """The docstring of a function, or of a callable object's class; empty without one."""
    plain = plain_function(function)
    doc = getattr(plain, "__doc__", None)
    if not doc and getattr(plain, "__name__", "") == "__call__":
        doc = type(function).__doc__
    return inspect.cleandoc(doc) if doc else ""


def _contents(kind: Any) -> Iterator[Content]:
    """One content for each type that the messages may have."""
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
    """The part of a content that reaches a handler with these tags."""
    wanted = tags & content.tags if tags and content.tags else tags or content.tags
    return replace(content, tags=wanted)


def _returned(declaration: Declaration, publication: Publication) -> TopicOperation:
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
        )
        for content in _contents(kind)
    )
    cluster = options.get("cluster")
    return TopicOperation(
        topic=TopicAt(declaration.subscription.cluster if cluster is None else cluster, publication.topic_name),
        contents=contents,
        handler=declaration.subscription.handler_name,
        options=options,
    )


def _returned_type(function: Callable[..., Any]) -> Any:
    """The return annotation without None and outcomes; None when it describes no body."""
    known = [one for one in _bodies(function) if one not in (Any, object)]
    return typing.Union[tuple(known)] if known else None  # noqa: UP007 - its parts are known at run time


def _bodies(function: Callable[..., Any]) -> list[Any]:
    """The types that it returns, without None and outcomes."""
    annotation = _annotation(function, "return")
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return [one for one in (typing.get_args(annotation) if is_union else (annotation,)) if not _is_no_body(one)]


def _payload_type(function: Callable[..., Any]) -> Any:
    """The annotation of its only argument; None when it describes no body."""
    first = next(iter(inspect.signature(plain_function(function)).parameters), "")
    annotation = _annotation(function, first)
    return None if annotation in (Any, object) else annotation


def _annotation(function: Callable[..., Any], name: str) -> Any:
    """The annotation of an argument or of `return`; Any if it is missing or unknown at run time."""
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


class MessageObject:
    """Messages of one channel with bodies of one type. `name` is set when all messages of the channel are known."""

    def __init__(self, content: Content, payloads: Payloads) -> None:
        kind = content.kind
        form = Form(ANY) if kind is None else payloads.form_of(kind)
        self.kind: Any = kind
        self.contents: list[Content] = [content]
        """Of each place that receives or sends such messages."""
        self.name: str = ""
        self.title: str = UNKNOWN if kind is None else title_of(kind)
        self.content_type: str = content.content_type or form.content_type
        self.own_schema: Mapping[str, Any] | None = None if content.content_type else form.schema
        """What the codec of its type says of the payload; None where the type says it."""
        self._version = payloads.present_version(kind) if isinstance(kind, type) else None
        """Of a type with upcasters."""

    def holds(self, content: Content) -> bool:
        """Whether these are the messages of this content."""
        return bool(self.kind == content.kind) and self.contents[0].content_type == content.content_type

    def described(self, payload: Any) -> dict[str, Any]:
        """The Message Object. `payload`: the schema; None where nothing is known."""
        found: dict[str, Any] = {"name": self.title, "title": self.title, "contentType": self.content_type}
        if payload is None:
            found["summary"] = "The code says nothing of the body."
        headers = self._headers()
        if headers:
            found["headers"] = headers
        if payload is not None:
            found["payload"] = payload
        return found

    def _headers(self) -> dict[str, Any]:
        """The schema of tag and properties."""
        found: dict[str, Any] = {}
        needed: list[str] = []
        if all(content.tags for content in self.contents):
            tags = {tag for content in self.contents for tag in content.tags}
            found["tag"] = {"type": "string", "enum": sorted(tags)}
            needed.append("tag")
        told = sorted({content.property for content in self.contents if content.property})
        if properties := self._properties(told):
            found["properties"] = {"type": "object", "properties": properties}
        if told:
            found["properties"]["required"] = told
            needed.append("properties")
        if not found:
            return {}
        return {"type": "object", "properties": found, **({"required": needed} if needed else {})}

    def _properties(self, told: Sequence[str]) -> dict[str, Any]:
        """`told`: the properties that determine the type of the body."""
        known: dict[str, Any] = {}
        if self.content_type not in (ANY, JSON, _TEXT):
            known[CONTENT_TYPE] = {"type": "string", "const": self.content_type}
        if self._version is not None:
            text = "The version of the payload's type; older ones are turned into it. Without it: 1."
            known[PAYLOAD_VERSION] = {"type": "string", "const": str(self._version), "description": text}
        for name in told:
            values = {value for content in self.contents if content.property == name for value in content.values}
            known[name] = {"type": "string", "enum": sorted(values), "description": "Tells the type of the body."}
        return known


class Messages:
    """The messages of one channel: one for each type and content type of a body."""

    def __init__(self, contents: Iterable[Content], payloads: Payloads) -> None:
        found: list[MessageObject] = []
        for content in contents:
            message = next((one for one in found if one.holds(content)), None)
            if message is None:
                found.append(MessageObject(content, payloads))
            else:
                message.contents.append(content)
        names = Names()
        for message in sorted(found, key=_order):
            message.name = names.take(message.title)
        self.all: list[MessageObject] = sorted(found, key=lambda one: one.name)
        """Sorted by their names."""

    def of(self, contents: Sequence[Content]) -> list[MessageObject]:
        """The messages with these contents, by name."""
        return [one for one in self.all if any(map(one.holds, contents))]


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
    """A sort key that does not depend on the order of imports."""
    kind = message.kind
    return message.title, getattr(kind, "__module__", ""), str(kind), message.content_type
