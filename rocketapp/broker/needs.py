"""What a user must be allowed to do, so that a request is answered (Java: the annotations of the header classes).

Every code that is served is in one of the tables here. A request about a topic without a name needs the permission
for the empty name, which only an entry for all names gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from rocketapp.model.names import DLQ_PREFIX, RETRY_PREFIX
from rocketapp.wire.codes import RequestCode as Code
from rocketapp.wire.command import Command
from rocketapp.wire.requests.clients import Heartbeat
from rocketapp.wire.requests.locks import LockBody


class Need(NamedTuple):
    """Any one of these actions on a resource."""

    kind: str
    """`Topic`, `Group` or `Cluster`."""
    name: str
    actions: tuple[str, ...]


class _Rule(NamedTuple):
    kind: str
    fields: tuple[str, ...]
    """Each of these fields that a request has names a resource."""
    actions: tuple[str, ...]
    is_optional: bool = False
    """Whether a request may have none of the fields."""


def _topic(*actions: str, optional: bool = False) -> _Rule:
    return _Rule("Topic", ("topic",), actions, optional)


def _group(*actions: str, field: str = "consumerGroup", optional: bool = False) -> _Rule:
    return _Rule("Group", (field,), actions, optional)


_SEND = (_Rule("Topic", ("topic", "b"), ("Pub",)),)
_CONSUME = (_topic("Sub"), _group("Sub"))
_READ_TOPIC = (_topic("Get"),)
_SEE_CLUSTER = (_Rule("Cluster", (), ("Get",)),)
_CHANGE_CLUSTER = (_Rule("Cluster", (), ("Update",)),)
_RULES: Mapping[int, tuple[_Rule, ...]] = {
    Code.SEND_MESSAGE: _SEND,
    Code.SEND_MESSAGE_V2: _SEND,
    Code.SEND_BATCH_MESSAGE: _SEND,
    Code.RECALL_MESSAGE: (_topic("Pub"),),
    Code.END_TRANSACTION: (_topic("Pub", optional=True),),
    Code.PULL_MESSAGE: _CONSUME,
    Code.LITE_PULL_MESSAGE: _CONSUME,
    Code.POP_MESSAGE: _CONSUME,
    Code.ACK_MESSAGE: _CONSUME,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _CONSUME,
    Code.PEEK_MESSAGE: _CONSUME,
    Code.NOTIFICATION: _CONSUME,
    Code.POLLING_INFO: (_topic("Get"), _group("Get")),
    Code.CONSUMER_SEND_MSG_BACK: (_group("Sub", field="group"),),
    Code.UNREGISTER_CLIENT: (_group("Sub", optional=True),),
    Code.GET_CONSUMER_LIST_BY_GROUP: (_group("Sub", "Get"),),
    Code.QUERY_CONSUMER_OFFSET: (_topic("Sub", "Get"), _group("Sub", "Get")),
    Code.UPDATE_CONSUMER_OFFSET: (_topic("Sub", "Update"), _group("Sub", "Update")),
    Code.QUERY_MESSAGE: (_topic("Sub", "Get"),),
    Code.VIEW_MESSAGE_BY_ID: _READ_TOPIC,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _READ_TOPIC,
    Code.GET_MAX_OFFSET: _READ_TOPIC,
    Code.GET_MIN_OFFSET: _READ_TOPIC,
    Code.GET_EARLIEST_MSG_STORETIME: _READ_TOPIC,
    Code.GET_TOPIC_STATS_INFO: _READ_TOPIC,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _READ_TOPIC,
    Code.GET_TOPIC_CONFIG: _READ_TOPIC,
    Code.GET_CONSUMER_CONNECTION_LIST: (_group("Get"),),
    Code.GET_CONSUME_STATS: (_group("Get"), _topic("Get", optional=True)),
    Code.GET_CONSUMER_RUNNING_INFO: (_group("Get"),),
    Code.QUERY_TOPICS_BY_CONSUMER: (_group("Get", field="group"),),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: (_group("Get", field="group"),),
    Code.CONSUME_MESSAGE_DIRECTLY: (_group("Sub"), _topic("Sub", optional=True)),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: (_group("Update", field="group"), _topic("Update")),
    Code.UPDATE_AND_CREATE_TOPIC: (_topic("Create"),),
    Code.DELETE_TOPIC_IN_BROKER: (_topic("Delete"),),
    Code.DELETE_TOPIC_IN_NAMESRV: (_topic("Delete"),),
    Code.DELETE_SUBSCRIPTIONGROUP: (_group("Delete", field="groupName"),),
    Code.GET_PRODUCER_CONNECTION_LIST: _SEE_CLUSTER,
    Code.GET_BROKER_CONSUME_STATS: _SEE_CLUSTER,
    Code.GET_NAMESRV_CONFIG: _SEE_CLUSTER,
    Code.GET_KV_CONFIG: _SEE_CLUSTER,
    Code.GET_KVLIST_BY_NAMESPACE: _SEE_CLUSTER,
    Code.AUTH_GET_USER: _SEE_CLUSTER,
    Code.AUTH_LIST_USER: _SEE_CLUSTER,
    Code.AUTH_GET_ACL: _SEE_CLUSTER,
    Code.AUTH_LIST_ACL: _SEE_CLUSTER,
    Code.PUT_KV_CONFIG: _CHANGE_CLUSTER,
    Code.AUTH_CREATE_USER: _CHANGE_CLUSTER,
    Code.AUTH_UPDATE_USER: _CHANGE_CLUSTER,
    Code.AUTH_DELETE_USER: _CHANGE_CLUSTER,
    Code.AUTH_CREATE_ACL: _CHANGE_CLUSTER,
    Code.AUTH_UPDATE_ACL: _CHANGE_CLUSTER,
    Code.AUTH_DELETE_ACL: _CHANGE_CLUSTER,
    Code.DELETE_KV_CONFIG: _CHANGE_CLUSTER,
    Code.WIPE_WRITE_PERM_OF_BROKER: _CHANGE_CLUSTER,
    Code.ADD_WRITE_PERM_OF_BROKER: _CHANGE_CLUSTER,
    Code.REGISTER_BROKER: _CHANGE_CLUSTER,
    Code.UNREGISTER_BROKER: _CHANGE_CLUSTER,
    Code.QUERY_DATA_VERSION: _CHANGE_CLUSTER,
    Code.GET_ALL_DELAY_OFFSET: _SEE_CLUSTER,
    Code.GET_BROKER_HA_STATUS: _SEE_CLUSTER,
    Code.EXCHANGE_BROKER_HA_INFO: _SEE_CLUSTER,
    Code.GET_TIMER_CHECK_POINT: _SEE_CLUSTER,
    Code.GET_TIMER_METRICS: _SEE_CLUSTER,
}
KEYS_ARE_ENOUGH = frozenset(
    {
        Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_BROKER_CONFIG,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.CHECK_CLIENT_CONFIG,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
        Code.QUERY_ASSIGNMENT,
        Code.SET_MESSAGE_REQUEST_MODE,
        Code.GET_ALL_MESSAGE_REQUEST_MODE,
        Code.BATCH_ACK_MESSAGE,
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Code.GET_TOPICS_BY_CLUSTER,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    }
)
"""As in Apache RocketMQ 5, these are answered to every user; the name server's questions there to everybody."""
FOR_EVERYBODY = frozenset({Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_BROKER_CLUSTER_INFO})
"""Where brokers are. Clients with wrong keys learn from those what is wrong; a refused name server is "no route"."""


def needs_of(command: Command, cluster: str) -> list[Need]:
    """All that the request needs. A code that is in no table needs what only an entry for everything gives.

    Raises ProtocolError for a body that cannot be read.
    """
    if command.code in KEYS_ARE_ENOUGH:
        return []
    of_body = _BODIES.get(command.code)
    if of_body is not None:
        return list(of_body(command.body))
    rules = _RULES.get(command.code)
    if rules is None:
        return [Need("", "", ("Update",))]
    fields = command.fields or {}
    needs = []
    for rule in rules:
        if rule.kind == "Cluster":
            needs.append(Need("Cluster", cluster, rule.actions))
            continue
        names = [fields[name] for name in rule.fields if name in fields]
        needs += [_need(rule, name) for name in names or ([] if rule.is_optional else [""])]
    return needs


def _need(rule: _Rule, name: str) -> Need:
    """Who may consume as a group may use its retry topic and its dead letters."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            actions = ("Sub",) if rule.actions == ("Pub",) else rule.actions
            return Need("Group", name.removeprefix(prefix), actions)
    return Need(rule.kind, name, rule.actions)


def _consume(group: str, topics: Iterable[str]) -> Iterable[Need]:
    yield _need(_group("Sub"), group)
    for topic in sorted(set(topics)):
        if not topic.startswith(RETRY_PREFIX):
            yield _need(_topic("Sub"), topic)


def _of_heartbeat(body: bytes) -> Iterable[Need]:
    for consumer in Heartbeat.decode(body).consumers:
        yield from _consume(consumer.group, (subscription.topic for subscription in consumer.subscriptions))


def _of_locks(body: bytes) -> Iterable[Need]:
    asked = LockBody.decode(body)
    return _consume(asked.group, (queue.topic for queue in asked.queues))


_BODIES: Mapping[int, Callable[[bytes], Iterable[Need]]] = {
    Code.HEART_BEAT: _of_heartbeat,
    Code.LOCK_BATCH_MQ: _of_locks,
    Code.UNLOCK_BATCH_MQ: _of_locks,
}
SERVED = FOR_EVERYBODY | frozenset(_RULES) | frozenset(_BODIES) | KEYS_ARE_ENOUGH
