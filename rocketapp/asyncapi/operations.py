"""What a handler or publisher is in a document: an Operation Object.

AsyncAPI has no binding for RocketMQ. So `bindings` holds an extension, `x-rocketmq`, with what the protocol's own
bindings hold for others: the group, what is selected, how the handler runs, and what becomes of a message that fails.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from rocketapp.asyncapi.messages import ReceiveOperation, SendOperation
from rocketapp.model.handler_kind import kind_of
from rocketapp.model.names import dlq_topic
from rocketapp.model.subscription import Subscription
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


def function_name(handler: str) -> str:
    """`settle` of `shop.orders:Orders.settle`."""
    return handler.rpartition(":")[2].rpartition(".")[2].strip("<>")


def receive(one: ReceiveOperation, *, suspend: float) -> Described:
    """Everything but the channel and its messages. `suspend` is consumer.suspend."""
    subscription = one.subscription
    return {
        "action": "receive",
        "title": function_name(subscription.handler_name),
        **_said(one.doc),
        "tags": [{"name": subscription.group}],
        "bindings": {BINDING: _subscribed(subscription, suspend)},
    }


def send(one: SendOperation, title: str) -> Described:
    """The same for what is published. `title`: of its message."""
    if not one.handler:
        return {"action": "send", "title": title, "summary": "Published by a publisher of the app."}
    binding: Described = {"handler": one.handler}
    for key, name in (("tag", "tag"), ("delay", "delay"), ("order_key", "orderKey")):
        value = one.options.get(key)
        if value is not None:
            binding[name] = value
    return {
        "action": "send",
        "title": function_name(one.handler),
        "summary": "What the handler returns.",
        "bindings": {BINDING: binding},
    }


def _said(doc: str) -> Described:
    """The first paragraph is the summary, all of a longer text the description."""
    first, _, rest = doc.partition("\n\n")
    found = {"summary": " ".join(first.split())} if first else {}
    return {**found, "description": doc} if rest else found


def _subscribed(one: Subscription, suspend: float) -> Described:
    """What was not asked for is left out; seconds are numbers."""
    found: Described = {
        "group": one.group,
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
        "deadLetterTopic": None if one.retries < 0 else dlq_topic(one.group),
    }
    return {name: value for name, value in found.items() if value is not None}


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
