"""What a user must be allowed to do, so that a request is answered: as the line above each processor's method says.

A request about a topic without a name needs the permission for the empty name, which only an entry for all names gives.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketapp.model.names import DLQ_PREFIX, RETRY_PREFIX
from rocketapp.transport.answers import Need, NeedRule, Needs, on_group, on_topic
from rocketapp.wire.command import Command
from rocketapp.wire.requests.clients import Heartbeat
from rocketapp.wire.requests.locks import LockBody


def needs_of(needs: Needs, command: Command, cluster: str) -> Iterable[Need]:
    """All that the request needs. Raises ProtocolError for a body that cannot be read."""
    if callable(needs):
        yield from needs(command.body)
        return
    fields = command.fields or {}
    for rule in needs or ():
        if rule.kind == "Cluster":
            yield Need("Cluster", cluster, rule.actions)
            continue
        names = [fields[name] for name in rule.fields if name in fields]
        yield from (_need(rule, name) for name in names or ([] if rule.is_optional else [""]))


def _need(rule: NeedRule, name: str) -> Need:
    """Who may consume as a group may use its retry topic and its dead letters."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            actions = ("Sub",) if rule.actions == ("Pub",) else rule.actions
            return Need("Group", name.removeprefix(prefix), actions)
    return Need(rule.kind, name, rule.actions)


def _consume(group: str, topics: Iterable[str]) -> Iterable[Need]:
    yield _need(on_group("Sub"), group)
    for topic in sorted(set(topics)):
        if not topic.startswith(RETRY_PREFIX):
            yield _need(on_topic("Sub"), topic)


def of_heartbeat(body: bytes) -> Iterable[Need]:
    for consumer in Heartbeat.decode(body).consumers:
        yield from _consume(consumer.group, (subscription.topic for subscription in consumer.subscriptions))


def of_locks(body: bytes) -> Iterable[Need]:
    asked = LockBody.decode(body)
    return _consume(asked.group, (queue.topic for queue in asked.queues))
