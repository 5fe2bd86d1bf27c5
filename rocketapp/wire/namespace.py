"""Namespaces: on the wire topics and groups are called `NAMESPACE%name`, in this process `name`.

Here is the one place that knows. What a client sends is wrapped when it is complete, and what it receives is unwrapped
before anything reads it. Names of brokers' own topics and groups stay as they are. Java: NamespaceUtil, and the calls
of it that are spread over producers and consumers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from rocketapp.model.names import DLQ_PREFIX, FORBIDDEN_TOPICS, RETRY_PREFIX
from rocketapp.wire import properties
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import decode_record, encode_record
from rocketapp.wire.lenient_json import dump

_SYSTEM_TOPICS = FORBIDDEN_TOPICS | {"TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"}
_SYSTEM_PREFIXES = ("rmq_sys_", "CID_RMQ_SYS_")
_OF_GROUPS = (RETRY_PREFIX, DLQ_PREFIX)
_NAMED = frozenset({"topic", "originTopic", "consumerGroup", "producerGroup", "group", "groupName"})
"""Fields and JSON members that hold such a name."""
_NAMED_IN_JSON = re.compile(rb'("(?:%s)":")([^"\\]*)"' % "|".join(sorted(_NAMED)).encode())
"""The same in compact JSON; texts that hold JSON themselves are left as they are."""
_REPLIES = "_REPLY_TOPIC"
"""The end of a RocketMQ cluster's own topic of replies: all namespaces share it."""
_SENDS = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2})
_SEND_NAMED = ("a", "b")
"""Producer group and topic, in the short names of a send."""
_NAMING = f"(?:{properties.RETRY_TOPIC}|{properties.PGROUP})\x01"
"""Properties that hold such a name: the topic of a retry, and the producer group of a half message."""
_RECORDS = frozenset({RequestCode.CONSUME_MESSAGE_DIRECTLY, RequestCode.CHECK_TRANSACTION_STATE})
"""Requests of brokers whose body is a stored message."""
_BODIES = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.BATCH_ACK_MESSAGE,
    }
)
"""Requests whose body is JSON with names in it."""
_OF_POPPED = frozenset({RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME})
_LEGAL = r"[%|a-zA-Z0-9_-]*"


class Namespace:
    """Translates between the names of one namespace and bare ones."""

    def __init__(self, name: str) -> None:
        self.name: str = name
        self._mark = f"{name}%"
        self._in_json = [(f'"{prefix}{self._mark}'.encode(), f'"{prefix}'.encode()) for prefix in ("", *_OF_GROUPS)]
        mark = re.escape(self._mark)
        self._in_sent = re.compile(rf"(^|\x02)({_NAMING})(?!{mark})")
        self._in_stored = re.compile(rf"({_NAMING}){mark}({_LEGAL})".encode())
        # Records keep their sizes: what becomes free is filled with ends of entries, which say nothing.
        self._bare_stored = rb"\1\2" + b"\x02" * len(self._mark.encode())

    def __repr__(self) -> str:
        return f"<Namespace {self.name}>"

    def wrap(self, name: str) -> str:
        """The name on the wire. One that is in the namespace already stays as it is."""
        prefix, bare = _split(name)
        if not bare or bare in _SYSTEM_TOPICS or bare.startswith((*_SYSTEM_PREFIXES, self._mark)):
            return name
        if bare.endswith(_REPLIES):
            return name
        return f"{prefix}{self._mark}{bare}"

    def bare(self, name: str) -> str:
        """The name in this process. One of another namespace stays as it is."""
        prefix, rest = _split(name)
        return prefix + rest.removeprefix(self._mark)

    def complete(self, request: Command) -> None:
        """Wrap the names in a request of ours."""
        if request.fields:
            fields = _changed(request.fields, self.wrap)
            if request.code in _OF_POPPED:
                fields["topic"] = self._where_popped(request.fields)
            if request.code in _SENDS:
                fields.update((key, self.wrap(fields[key])) for key in _SEND_NAMED if key in fields)
                fields["i"] = self._sent_properties(fields.get("i", ""))
            request.fields = fields
        if request.code in _BODIES:
            request.body = dump(_deeply(msgspec.json.decode(request.body), self.wrap))

    def body(self, body: bytes) -> bytes:
        """Wrap the names in the JSON body of an answer of ours, which may have queues as keys."""
        return _NAMED_IN_JSON.sub(lambda found: found[1] + self.wrap(found[2].decode()).encode() + b'"', body)

    def restore(self, request: Command | None, received: Command) -> None:
        """Unwrap the names in a response to `request`, or without one in a request of a broker."""
        if received.fields:
            received.fields = _changed(received.fields, self.bare)
        body = received.body
        if request is None and received.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return  # its body is a user's, also when it looks like JSON of ours
        if body[:1] in (b"{", b"["):
            for wrapped, bare in self._in_json:
                body = body.replace(wrapped, bare)
            received.body = body
        elif body and request is not None and _is_of_group(request):
            received.body = self._in_stored.sub(self._bare_stored, body)
        elif body and request is None and received.code in _RECORDS:
            received.body = self._bare_record(body)

    def _where_popped(self, fields: dict[str, str]) -> str:
        """The topic of a popped message, perhaps the retry topic that is named by its group and its topic."""
        topic, of_group = fields["topic"], RETRY_PREFIX + fields["consumerGroup"]
        sign = topic[len(of_group) : len(of_group) + 1]
        if not topic.startswith(of_group) or sign not in ("_", "+"):
            return self.wrap(topic)
        return f"{self.wrap(of_group)}{sign}{self.wrap(topic[len(of_group) + 1 :])}"

    def _bare_record(self, body: bytes) -> bytes:
        """One stored message, with the topic that our handlers subscribe to."""
        record = decode_record(self._in_stored.sub(self._bare_stored, body))
        return encode_record(record._replace(topic=self.bare(record.topic)))

    def _sent_properties(self, encoded: str) -> str:
        """A copy for a retry names its topic as brokers name it that make such copies; a half message its group."""
        wrapped = self._in_sent.sub(rf"\1\g<2>{self._mark}", encoded)
        if f"{properties.INSTANCE_ID}\x01" in wrapped:
            return wrapped
        between = "" if not wrapped or wrapped.endswith(properties.ENTRY_END) else properties.ENTRY_END
        return f"{wrapped}{between}{properties.INSTANCE_ID}\x01{self.name}\x02"


def _split(name: str) -> tuple[str, str]:
    """`%RETRY%` or `%DLQ%`, if it begins so, and the rest."""
    for prefix in _OF_GROUPS:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_of_group(request: Command) -> bool:
    return bool(request.fields) and _split((request.fields or {}).get("topic", ""))[0] != ""


def _changed(fields: dict[str, str], change: Callable[[str], str]) -> dict[str, str]:
    return {key: change(value) if key in _NAMED else value for key, value in fields.items()}


def _deeply(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {
            key: change(one) if key in _NAMED and isinstance(one, str) else _deeply(one, change)
            for key, one in value.items()
        }
    return [_deeply(one, change) for one in value] if isinstance(value, list) else value
