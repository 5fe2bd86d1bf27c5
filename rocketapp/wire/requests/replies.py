"""Requests and replies: the properties that make them, and the call by which a broker hands over a reply.

Code: PUSH_REPLY_MESSAGE_TO_CLIENT 326 (broker to client). The body is the reply's, the response has neither fields nor
body. Java: ReplyMessageRequestHeader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rocketapp.model.names import DEFAULT_TOPIC
from rocketapp.wire import properties as names
from rocketapp.wire.fields import Header, Int32, MissingText, java_names
from rocketapp.wire.layout import BORN_IPV6, STORE_IPV6, Record

_NO_HOST = bytes(4), 0
_SUFFIX = "_REPLY_TOPIC"


class PushReply(
    Header,
    frozen=True,
    rename=java_names(
        group="producerGroup",
        born_ms="bornTimestamp",
        stored_ms="storeTimestamp",
        default_queues="defaultTopicQueueNums",
    ),
):
    """Everything about a reply except its body."""

    group: MissingText
    """The producer group of the client that replied."""
    topic: str
    queue_id: Int32
    sys_flag: Int32
    born_ms: int
    born_host: str
    """`ip:port` of the client that replied."""
    store_host: str
    stored_ms: int
    flag: Int32 = 0
    properties: str = ""
    """Encoded: see `wire.properties`."""
    default_topic: str = DEFAULT_TOPIC
    """This and the next: brokers hand on what the Java client puts into each send."""
    default_queues: Int32 = 4

    def record(self, body: bytes) -> Record:
        """The reply as a stored message would be, at offset 0."""
        born_host, born_port = _host(self.born_host)
        store_host, store_port = _host(self.store_host)
        return Record(
            topic=self.topic,
            body=body,
            raw_properties=self.properties.encode(),
            queue_id=self.queue_id,
            flag=self.flag,
            # The hosts are here in four bytes, whatever they were.
            sys_flag=self.sys_flag & ~(BORN_IPV6 | STORE_IPV6),
            born_ms=self.born_ms,
            born_host=born_host,
            born_port=born_port,
            stored_ms=self.stored_ms,
            store_host=store_host,
            store_port=store_port,
        )


def _host(text: str) -> tuple[bytes, int]:
    """The bytes of `a.b.c.d:port`; zeros for any other text: it is for display alone."""
    host, _, port = text.rpartition(":")
    parts = host.removeprefix("/").split(".")
    if len(parts) != 4 or not all(part.isdecimal() and int(part) < 256 for part in parts) or not port.isdecimal():
        return _NO_HOST
    return bytes(map(int, parts)), int(port) & 0xFFFF


def reply_topic(cluster: str) -> str:
    """The topic of all replies in a RocketMQ cluster, `DefaultCluster` for example."""
    return cluster + _SUFFIX


def request_marks(correlation_id: str, client_id: str, timeout: float) -> dict[str, str]:
    """The properties of a request. `timeout`: seconds that its sender waits."""
    return {
        names.CORRELATION_ID: correlation_id,
        names.REPLY_TO_CLIENT: client_id,
        names.TTL: str(max(1, int(timeout * 1000))),
    }


class ReplyTo(NamedTuple):
    """Where the reply to a request goes."""

    topic: str
    marks: Mapping[str, str]
    """The properties of the reply."""


def reply_to(properties: Mapping[str, str]) -> ReplyTo | None:
    """For a message with these properties; None when it is not a request, or names no cluster.

    Brokers name theirs in every message that they store.
    """
    found = {name: properties[name] for name in (names.CORRELATION_ID, names.REPLY_TO_CLIENT) if name in properties}
    cluster = properties.get(names.CLUSTER)
    if len(found) < 2 or not cluster:
        return None
    if names.TTL in properties:
        found[names.TTL] = properties[names.TTL]
    return ReplyTo(reply_topic(cluster), {names.MSG_TYPE: names.REPLY, **found})
