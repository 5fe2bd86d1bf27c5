"""An AsyncAPI 3.0 document of an app: channels are topics, operations are handlers and publishers.

AsyncAPI has no binding for RocketMQ. So `bindings` holds an extension, `x-rocketmq`, with what the protocol's own
bindings hold for others: the group, what is selected, how the handler runs, and what becomes of a message that fails.

Nothing in it depends on the order of imports, on line numbers or on folders, so that it can be committed and compared.
Nothing is started or connected for it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from rocketapp.app.declare.phases import Declared, TwoPhases, complete, declared_of, handlers_of
from rocketapp.app.settings import Settings
from rocketapp.asyncapi.messages import (
    MessageObject,
    Messages,
    Names,
    TopicAt,
    TopicOperation,
    identifier,
    receiving,
    sendings,
)
from rocketapp.asyncapi.schemas import schemas_of
from rocketapp.client.name_servers import address_server, parse_name_servers
from rocketapp.model.names import DLQ_PREFIX, RETRY_PREFIX, dlq_topic
from rocketapp.model.subscription import Subscription, kind_of
from rocketapp.model.subscription_words import (
    delays_of,
    describe_failures,
    describe_outcome,
    describe_run,
    idempotency_key,
    key_name,
)

BINDING = "x-rocketmq"
Described = dict[str, Any]
VERSION = "3.0.0"
"""Of AsyncAPI."""
UNVERSIONED = "unversioned"
"""The version of an app that has none."""
_WHO_ASKED = {
    "location": "$message.header#/properties/REPLY_TO_CLIENT",
    "description": "The client that asked, if it did.",
}
_EMBEDDED = "embedded broker"
"""Where a running app with an embedded broker has its name server from."""


def document_of(app: TwoPhases, settings: Settings) -> Described:
    """The document, as plain values. Raises SetupError and PluginError for declarations that contradict each other."""
    declared = declared_of(app)
    settings = complete(app, settings)
    handlers = handlers_of(app, settings)
    receives, sends = sorted(map(receiving, handlers), key=_order), sorted(sendings(declared, handlers), key=_order)
    channels = _Channels(declared, [*receives, *sends, *(one.reply for one in receives if one.reply is not None)])
    operations = dict(sorted(_operations(channels, [*receives, *sends], settings)))
    servers = _servers(declared, settings, {topic.cluster for topic in channels.ids})
    info = {"title": app.name, "version": settings.app.version or UNVERSIONED}
    document = {
        "asyncapi": VERSION,
        "info": {**info, **_description(declared)},
        "defaultContentType": "application/json",
        "servers": {name: server for some in servers.values() for name, server in some.items()},
        "channels": channels.described(servers),
        "operations": operations,
        "components": channels.components(),
    }
    plain: Described = msgspec.to_builtins(document, str_keys=True, enc_hook=str)
    return plain


class _Channels:
    """All topics that are received from or sent to, with their messages."""

    def __init__(self, declared: Declared, some: Sequence[TopicOperation]) -> None:
        names, topics = Names(), sorted({one.topic for one in some})
        self.ids: dict[TopicAt, str] = {topic: names.take(topic.text()) for topic in topics}
        self.messages: dict[TopicAt, Messages] = {
            topic: Messages((each for one in some if one.topic == topic for each in one.contents), declared.payloads)
            for topic in topics
        }
        self._groups: dict[TopicAt, set[str]] = {}
        for one in some:
            if one.subscription is not None:
                self._groups.setdefault(one.topic, set()).add(one.subscription.group)

    def described(self, servers: Mapping[str, Mapping[str, Described]]) -> Described:
        found = {}
        for topic, name in self.ids.items():
            found[name] = {
                **_address(topic),
                "description": _topic_text(topic, sorted(self._groups.get(topic, ()))),
                "servers": [{"$ref": f"#/servers/{server}"} for server in servers[topic.cluster]],
                "messages": {
                    one.name: {"$ref": f"#/components/messages/{name}.{one.name}"} for one in self.messages[topic].all
                },
                **({"bindings": {BINDING: {"cluster": topic.cluster}}} if topic.cluster else {}),
            }
        return dict(sorted(found.items()))

    def components(self) -> Described:
        known = [(f"{name}.{one.name}", one) for topic, name in self.ids.items() for one in self.messages[topic].all]
        as_json = [message for _, message in known if message.kind not in (None, bytes, str) and not message.own_schema]
        schemas = schemas_of([message.kind for message in as_json])
        payloads: dict[int, Any] = {id(message): of for message, of in zip(as_json, schemas.of, strict=True)}
        described = {name: message.described(payloads.get(id(message), _plain(message))) for name, message in known}
        return {"messages": dict(sorted(described.items())), "schemas": schemas.named}


def _plain(message: MessageObject) -> Any:
    """The payload of a message whose type has no JSON schema."""
    if message.kind is bytes:
        return {"type": "string", "format": "binary"}
    return {"type": "string"} if message.kind is str else message.own_schema


def _operations(
    channels: _Channels, some: Sequence[TopicOperation], settings: Settings
) -> Iterator[tuple[str, Described]]:
    names = Names()
    for one in some:
        place, channel = _place(channels, one), channels.ids[one.topic]
        if one.subscription is not None:
            described = _received(one, one.subscription, suspend=settings.consumer.suspend)
            if one.reply is not None:
                described["reply"] = {"address": _WHO_ASKED, **_place(channels, one.reply)}
            name = f"receive.{channel}.{function_name(one.handler)}"
        else:
            title = " or ".join(message.title for message in channels.messages[one.topic].of(one.contents))
            described = _sent(one, title)
            name = f"send.{channel}.{function_name(one.handler) if one.handler else identifier(title)}"
        last: Described = {key: described.pop(key) for key in ("reply", "bindings") if key in described}
        head = {"action": described.pop("action"), "channel": place.pop("channel")}
        yield names.take(name), {**head, **described, **place, **last}


def _place(channels: _Channels, one: TopicOperation) -> Described:
    """The channel of an operation, and its messages there."""
    channel = f"#/channels/{channels.ids[one.topic]}"
    messages = [{"$ref": f"{channel}/messages/{each.name}"} for each in channels.messages[one.topic].of(one.contents)]
    return {"channel": {"$ref": channel}, "messages": messages}


def _address(topic: TopicAt) -> Described:
    """The first fields of a channel: a client that waits for a reply has an address of its own."""
    return {"address": None, "title": f"Replies to {topic.topic}"} if topic.is_of_replies else {"address": topic.topic}


def function_name(handler: str) -> str:
    """The last part of a handler's name: `settle` of `shop.orders:Orders.settle`."""
    return handler.rpartition(":")[2].rpartition(".")[2].strip("<>")


def _received(one: TopicOperation, subscription: Subscription, *, suspend: float) -> Described:
    """An operation that receives, without channel and messages. `suspend` is consumer.suspend."""
    return {
        "action": "receive",
        "title": function_name(one.handler),
        **_said(one.doc),
        "tags": [{"name": subscription.group}],
        "bindings": {BINDING: _subscribed(subscription, suspend)},
    }


def _sent(one: TopicOperation, title: str) -> Described:
    """An operation that sends, without channel and messages. `title`: of its message."""
    if not one.handler:
        return {"action": "send", "title": title, "summary": "Published by a publisher of the app."}
    binding: Described = {"handler": one.handler}
    for key, name in (("tag", "tag"), ("delay", "delay"), ("order_key", "orderKey")):
        if (value := one.options.get(key)) is not None:
            binding[name] = value
    said = {"summary": "What the handler returns."}
    if one.is_transaction:
        said, binding["transaction"] = _said(one.doc) or {"summary": "Published if the function says so."}, True
    return {"action": "send", "title": function_name(one.handler), **said, "bindings": {BINDING: binding}}


def _said(doc: str) -> Described:
    """A docstring as summary (the first paragraph) and description (all of a longer text)."""
    first, _, rest = doc.partition("\n\n")
    found = {"summary": " ".join(first.split())} if first else {}
    return {**found, "description": doc} if rest else found


def _subscribed(one: Subscription, suspend: float) -> Described:
    """The subscription, without what was not asked for; times in seconds."""
    found: Described = {
        "group": one.group,
        "broadcast": one.broadcast or None,
        "tags": sorted(one.tags) or None,
        "handler": one.handler_name,
        "order": kind_of(one).order,
        "orderBy": None if one.order_by is None else key_name(one),
        "every": one.every,
        "concurrency": None if one.orderly else one.concurrency,
        "batch": None if one.batch is None else {"size": one.batch, "wait": one.batch_wait},
        "rate": one.rate,
        "timeout": one.timeout,
        "idempotent": idempotency_key(one) if one.idempotent else None,
        "start": one.start if isinstance(one.start, str) else one.start.isoformat(),
        "runs": describe_run(one),
        "retry": _retry(one, suspend),
        "deadLetterTopic": dlq_topic(one.group) if _gives_up(one) else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _gives_up(one: Subscription) -> bool:
    """Whether messages that fail too often become dead letters: not dropped, and not retried without end."""
    return kind_of(one).by_message and not one.broadcast and one.retries >= 0


def _retry(one: Subscription, suspend: float) -> Described:
    policy = one.retry
    found: Described = {"retries": "unlimited" if one.retries < 0 else one.retries}
    if one.retries and policy is not None and policy.delays:
        found["delays"] = delays_of(one, suspend=suspend)
    if policy is not None and policy.on:
        found["on"] = {kind.__name__: describe_outcome(answer) for kind, answer in policy.on.items()}
    if policy is not None and policy.breaker is not None:
        found["breaker"] = dataclasses.asdict(policy.breaker)
    return {**found, "failures": describe_failures(one, suspend=suspend)}


def _servers(declared: Declared, settings: Settings, used: set[str]) -> dict[str, dict[str, Described]]:
    """The name servers of each cluster in use, by the cluster's name."""
    names, found = Names(), {}
    for cluster in sorted(used | {""} if not declared.clusters else used):
        text = declared.clusters[cluster] if cluster else settings.client.name_server
        says = {"description": f"Name server of the cluster {cluster}." if cluster else "Name server."}
        if not cluster and (not text or settings.source_of("client", "name_server") == _EMBEDDED):
            text = text or settings.broker.listen
            says = {"description": "The embedded broker of `rocketapp run`: no name server is set."}
        found[cluster] = {names.take(cluster or "default"): {**says, **server} for server in _addresses(text)}
    return found


def _addresses(text: str) -> list[Described]:
    """The name servers, or the URL of their address server."""
    url = address_server(text)
    if url is not None:
        says = "Address server: it names the name servers."
        return [{"host": url.address, "pathname": url.path, "protocol": url.scheme, "description": says}]
    return [{"host": address, "protocol": "rocketmq"} for address in parse_name_servers(text)]


def _topic_text(topic: TopicAt, groups: Sequence[str]) -> str:
    """The description of a channel, in one line."""
    where = f" on cluster `{topic.cluster}`" if topic.cluster else ""
    if topic.is_of_replies:
        return f"Answers to requests of topic `{topic.topic}`{where}: each goes to the client that asked."
    for prefix, what in ((DLQ_PREFIX, "Dead letters"), (RETRY_PREFIX, "Retries")):
        if topic.topic.startswith(prefix):
            return f"{what} of group `{topic.topic.removeprefix(prefix)}`{where}."
    taken = f", consumed by group{'s' * (len(groups) > 1)} {', '.join(f'`{one}`' for one in groups)}" if groups else ""
    return f"Topic `{topic.topic}`{where}{taken}."


def _description(declared: Declared) -> dict[str, str]:
    """The docstring of the module that makes the app."""
    file = declared.place.rpartition(":")[0]
    for module in tuple(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if names.get("__file__") == file and names.get("__doc__"):
            return {"description": names["__doc__"].strip()}
    return {}


def _order(one: TopicOperation) -> tuple[Any, ...]:
    selected = () if one.subscription is None else (one.subscription.group, sorted(one.subscription.tags))
    return one.topic, one.handler, *selected, [str(content.kind) for content in one.contents]


def encoded(document: Mapping[str, Any]) -> str:
    """The document as the text of a file."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
