"""What an app receives and sends, as far as it was declared: handlers, `publishes`, and publishers of one type.

What a handler publishes by a `Publisher` or by `app.publish` is code, and is not known before it runs.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rocketapp.app.call.publication import Publication
from rocketapp.app.call.signature import Kind
from rocketapp.app.declare.declared import Declared
from rocketapp.app.declare.registry import Bound
from rocketapp.app.payloads.choice import choice_in, without_metadata
from rocketapp.app.places import plain_function
from rocketapp.model.outcome import Outcome
from rocketapp.model.subscription import Subscription
from rocketapp.model.topic import Topic


class TopicAt(NamedTuple):
    """A topic of one cluster; the cluster's name is empty for the unnamed one."""

    cluster: str
    topic: str


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
class Receiving:
    """One handler of one topic."""

    topic: TopicAt
    contents: tuple[Content, ...]
    subscription: Subscription
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What is published to one topic: by a handler, or by a publisher of the app."""

    topic: TopicAt
    contents: tuple[Content, ...]
    handler: str = ""
    """`module:name` of the handler that returns it; empty for a publisher."""
    doc: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def receiving(bound: Bound) -> Receiving:
    """What one handler takes."""
    one = bound.subscription
    payloads = [each.type for each in bound.binding.arguments or () if each.kind is Kind.PAYLOAD]
    kind = payloads[0] if payloads else bound.kind
    contents = tuple(_with_tags(content, one.tags) for content in _contents(kind) if _may_come(content, one.tags))
    topic = TopicAt(one.cluster, one.topic)
    return Receiving(topic=topic, contents=contents, subscription=one, doc=doc_of(bound.binding.function))


def sendings(declared: Declared, bounds: list[Bound]) -> Iterator[Sending]:
    """What handlers return for publication, and what the publishers of the app publish."""
    for bound in bounds:
        publication = bound.binding.publication
        if publication is not None:
            yield _returned(bound, publication)
    for topic in declared.publishers:
        yield Sending(topic=TopicAt("", topic.name), contents=tuple(_contents(topic.kind)))


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
    by_type: list[tuple[Any, list[str]]] = []
    for said, one in choice.types.items():
        same = next((texts for other, texts in by_type if other == one), None)
        if same is None:
            by_type.append((one, [said]))
        else:
            same.append(said)
    for one, said_by in by_type:
        if choice.property is None:
            yield Content(kind=one, tags=frozenset(said_by))
        else:
            yield Content(kind=one, property=choice.property, values=frozenset(said_by))


def _may_come(content: Content, tags: frozenset[str]) -> bool:
    return not tags or not content.tags or bool(tags & content.tags)


def _with_tags(content: Content, tags: frozenset[str]) -> Content:
    """What of it comes to a handler of these tags."""
    wanted = tags & content.tags if tags and content.tags else tags or content.tags
    return Content(kind=content.kind, tags=wanted, property=content.property, values=content.values)


def _returned(bound: Bound, publication: Publication) -> Sending:
    options = publication.options
    kind = publication.topic.kind if isinstance(publication.topic, Topic) else _returned_type(bound.binding.function)
    tag = options.get("tag")
    contents = tuple(
        Content(
            kind=content.kind,
            tags=frozenset([tag]) if tag else content.tags,
            property=content.property,
            values=content.values,
            content_type=options.get("content_type") or "",
            follows=True,
        )
        for content in _contents(kind)
    )
    cluster = options.get("cluster")
    return Sending(
        topic=TopicAt(bound.subscription.cluster if cluster is None else cluster, publication.topic_name),
        contents=contents,
        handler=bound.subscription.handler_name,
        doc=doc_of(bound.binding.function),
        options=options,
    )


def _returned_type(function: Callable[..., Any]) -> Any:
    """The annotation of what it returns, without None and outcomes; None when it says nothing of a body."""
    plain = plain_function(function)
    annotation = getattr(plain, "__annotations__", {}).get("return")
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, plain.__globals__, dict(inspect.getclosurevars(plain).nonlocals))
        except Exception:  # it may name what is there for type checkers alone
            return None
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        left = [one for one in typing.get_args(annotation) if not _is_no_body(one)]
        return typing.Union[tuple(left)] if left else None  # noqa: UP007 - its parts are known at run time
    return None if _is_no_body(annotation) else annotation


def _is_no_body(kind: Any) -> bool:
    if kind in (None, types.NoneType, Any, object):
        return True
    return isinstance(kind, type) and issubclass(kind, Outcome)
